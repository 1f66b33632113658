//! What this process has and may have.

#![allow(dead_code, reason = "no program uses all of it")]

/// Memory of this process in bytes, shared pages counted once however often they are mapped.
pub fn proportional_bytes() -> u64 {
    bytes_of("/proc/self/smaps_rollup", "Pss:")
}

/// Memory that devices have pinned for this process, in bytes.
pub fn pinned_bytes() -> u64 {
    bytes_of("/proc/self/status", "VmPin:")
}

/// The number after a name in a file of procfs, which says it in KiB.
fn bytes_of(path: &str, name: &str) -> u64 {
    let file = std::fs::read_to_string(path).expect("procfs");
    let line = file.lines().find(|line| line.starts_with(name)).expect("a sum");
    let kilobytes: u64 = line
        .split_whitespace()
        .nth(1)
        .expect("a number")
        .parse()
        .expect("a number");
    kilobytes * 1024
}

/// The process may need more than the usual number of descriptors.
pub fn allow_descriptors(wanted: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit {
            current: Some(wanted),
            ..limit
        };
        setrlimit(Resource::Nofile, raised).expect("a hard limit of open files that allows it");
    }
}

/// Open descriptors of this process.
pub fn descriptors() -> usize {
    // The listing itself has one open.
    std::fs::read_dir("/proc/self/fd").expect("procfs").count() - 1
}

/// CPU time of all threads of this process so far.
pub fn cpu_time() -> std::time::Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    spent.try_into().expect("a time that has passed")
}
