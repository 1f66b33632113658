//! Completion queues whose completions, and the events of these, come some time after the device has made them. The
//! process polls this library's queue, and reads the events of a channel through a pipe.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_int;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdma_sys::{ibv_comp_channel, ibv_cq, ibv_wc, ibv_wc_opcode, ibv_wc_status};

use crate::own;
use crate::profile::Profile;
use crate::pump::Pump;

/// Between two looks whether the process has asked for an event.
const LOOKS_EVERY: Duration = Duration::from_millis(20);

/// Completions that are taken from the device at once.
const BATCH: usize = 64;

struct Queue {
    /// Oldest first, each with the time from which the process may have it.
    held: VecDeque<(Instant, ibv_wc)>,
    /// True: the process has asked for an event.
    is_armed: bool,
    /// Events that the kernel has counted.
    events_read: u32,
    /// The number of the channel's descriptor.
    channel: c_int,
    profile: &'static Profile,
}

// SAFETY: completions are numbers.
unsafe impl Send for Queue {}

static QUEUES: Mutex<BTreeMap<usize, Queue>> = Mutex::new(BTreeMap::new());
/// By the number that the process knows: the kernel's descriptor of a channel, and the inode of the pipe.
static CHANNELS: Mutex<BTreeMap<c_int, (c_int, u64)>> = Mutex::new(BTreeMap::new());

fn queues() -> MutexGuard<'static, BTreeMap<usize, Queue>> {
    QUEUES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Queue {
    /// Takes what the device has.
    ///
    /// # Safety
    ///
    /// The queue lives.
    unsafe fn pull(&mut self, queue: *mut ibv_cq) {
        loop {
            // SAFETY: all zeros are a value of this struct of numbers; the queue lives, and there is room.
            let (taken, batch) = unsafe {
                let mut batch: [ibv_wc; BATCH] = std::mem::zeroed();
                let device = own((*queue).context).poll_cq;
                (device(queue, BATCH as c_int, batch.as_mut_ptr()), batch)
            };
            for completion in &batch[..usize::try_from(taken).unwrap_or(0)] {
                self.hold(*completion);
            }
            if taken < BATCH as c_int {
                return;
            }
        }
    }

    fn hold(&mut self, mut completion: ibv_wc) {
        let mut late = self.profile.late.unwrap_or_default();
        if completion.status != ibv_wc_status::IBV_WC_SUCCESS && self.profile.fails_vaguely {
            // Nothing but number, status, queue pair and vendor's word is valid: ibv_poll_cq(3).
            completion.opcode = ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM;
            completion.byte_len = u32::MAX;
            completion.imm_data_invalidated_rkey_union.imm_data = u32::MAX;
            completion.wc_flags = u32::MAX;
            // The failure that is the reason comes after the requests that are flushed in the other queue.
            if completion.status != ibv_wc_status::IBV_WC_WR_FLUSH_ERR {
                late *= 10;
            }
        }
        // Within one queue the order stays.
        let last = self.held.back().map_or_else(Instant::now, |(due, _)| *due);
        self.held.push_back((last.max(Instant::now() + late), completion));
    }

    fn due(&self) -> Option<Instant> {
        self.held.front().map(|(due, _)| *due)
    }
}

/// Takes completions that are due.
///
/// # Safety
///
/// As `ibv_poll_cq(3)`. None: this library does not know the queue.
pub(crate) unsafe fn poll(queue: *mut ibv_cq, most: c_int, to: *mut ibv_wc) -> Option<c_int> {
    let mut queues = queues();
    let known = queues.get_mut(&(queue as usize))?;
    // SAFETY: the caller's contract.
    unsafe { known.pull(queue) };
    let mut count = 0;
    while count < most {
        match known.due() {
            Some(due) if due <= Instant::now() => {}
            _ => break,
        }
        let Some((_, completion)) = known.held.pop_front() else {
            break;
        };
        // SAFETY: the caller's contract: there is room for `most`.
        unsafe { to.add(count as usize).write(completion) };
        count += 1;
    }
    Some(count)
}

/// The process asks for an event.
pub(crate) fn arm(queue: *mut ibv_cq) {
    if let Some(known) = queues().get_mut(&(queue as usize)) {
        known.is_armed = true;
    }
}

/// The kernel's descriptor of a channel, in whose place there is a pipe from now on.
///
/// # Safety
///
/// A channel that lives.
pub(crate) unsafe fn kernel_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: the caller's contract.
    let number = unsafe { (*channel).fd };
    let mut channels = CHANNELS.lock().unwrap_or_else(PoisonError::into_inner);
    match channels.get(&number) {
        Some((kernel, inode)) if *inode == inode_of(number) => *kernel,
        _ => {
            let pump = Pump::replace(number);
            let kernel = pump.kernel.as_raw_fd();
            channels.insert(number, (kernel, inode_of(number)));
            std::thread::spawn(move || run(&pump, number));
            kernel
        }
    }
}

fn inode_of(fd: c_int) -> u64 {
    // SAFETY: all zeros are a value of this struct of numbers, which is filled.
    unsafe {
        let mut facts: libc::stat = std::mem::zeroed();
        libc::fstat(fd, &raw mut facts);
        facts.st_ino
    }
}

/// From now on this library has the queue, whose events go to the channel with this number.
pub(crate) fn enter(queue: *mut ibv_cq, channel: c_int, profile: &'static Profile) {
    let known = Queue {
        held: VecDeque::new(),
        is_armed: false,
        events_read: 0,
        channel,
        profile,
    };
    queues().insert(queue as usize, known);
}

/// Destroys a queue by this function. libibverbs waits until as many events were acknowledged as the kernel counts.
///
/// # Safety
///
/// The queue lives, and none of its events are unacknowledged.
pub(crate) unsafe fn leave(queue: *mut ibv_cq, destroy: impl FnOnce() -> c_int) -> c_int {
    let mut queues = queues();
    if let Some(known) = queues.remove(&(queue as usize)) {
        // SAFETY: the caller's contract; no other thread acknowledges events of it.
        unsafe { (*queue).comp_events_completed = known.events_read };
    }
    // No event is read meanwhile.
    destroy()
}

/// Passes the events of one channel on, when the completions are due.
fn run(pump: &Pump, number: c_int) {
    let mut next = Instant::now();
    while pump.wait(next.saturating_duration_since(Instant::now())) {
        let mut queues = queues();
        let mut event = [0; 8];
        while let Ok(8) = (&pump.kernel).read(&mut event) {
            let queue = usize::from_ne_bytes(event);
            if let Some(known) = queues.get_mut(&queue) {
                known.events_read += 1;
                // SAFETY: a queue that is known lives: `leave` removes it first.
                unsafe { known.pull(queue as *mut ibv_cq) };
            }
        }
        let now = Instant::now();
        // The process may take completions from the device itself, and then ask for an event.
        next = now + LOOKS_EVERY;
        for (queue, known) in queues.iter_mut().filter(|(_, known)| known.channel == number) {
            match known.due() {
                Some(at) if known.is_armed && at <= now => {
                    known.is_armed = false;
                    pump.write(&queue.to_ne_bytes());
                }
                Some(at) if at > now => next = next.min(at),
                _ => {}
            }
        }
    }
    CHANNELS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .retain(|_, (kernel, _)| *kernel != pump.kernel.as_raw_fd());
}
