//! Asks the system's scheduler for short turns of polling threads.

/// The shortest slice that the scheduler grants.
const SLICE_NS: u64 = 100_000;

/// Asks for short and prompt turns for this thread.
///
/// A polling thread has little work, but it is urgent. If all processors are taken (schedulers of the BEAM spin before
/// they sleep), the thread would wait for milliseconds until another thread's time slice ends. From Linux 6.12 on a
/// thread may ask for the length of its slice (`sched_setattr(2)`, `sched_runtime` of `SCHED_OTHER`), and a shorter
/// slice runs first. Older kernels refuse or ignore the request; nothing depends on it.
pub fn ask_for_short_turns() {
    // SAFETY: getpriority only reads; for the calling thread (0) it cannot fail.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let attributes = SchedAttr {
        size: size_of::<SchedAttr>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice,
        priority: 0,
        runtime: SLICE_NS,
        deadline: 0,
        period: 0,
    };
    // SAFETY: `attributes` is a sched_attr of the size that it says, which the call only reads.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

/// `struct sched_attr` in its first version.
#[repr(C)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}
