//! The threads that connect, and the queue before them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use inet_rdma_fabric::FabricError;
use inet_rdma_fabric::deadline::left_until;
use inet_rdma_fabric::threads::start;
use parking_lot::{Condvar, Mutex};

use super::promise::{Made, Promise};

/// Maximum number of connects under way, each on a thread.
///
/// A connect to a peer that does not answer holds its thread until its deadline. If a node has as many such peers at a
/// time as threads, other connects wait. A waiting thread costs 12.5 KiB of memory (resident memory before and after 30
/// connects over shm to a listener that does not answer) and its kernel stack of 16 KiB: 32 of them are below 1 MiB.
/// The bound is for a node that starts hundreds of connects at a time: each registers memory, and further threads would
/// only wait in the kernel instead of in this queue.
pub const CONNECTS_MAX: usize = 32;

pub(super) struct Connect {
    pub(super) deadline: Instant,
    pub(super) connect: Box<dyn FnOnce(Duration) -> Result<Made, FabricError> + Send>,
    pub(super) promise: Promise,
}

impl Connect {
    /// Blocks until the connect is done; returns at once if its deadline has passed.
    fn run(self) {
        self.promise.keep(|_| Ok((self.connect)(left_until(self.deadline)?)?));
    }
}

/// All connects of the process.
static QUEUE: Mutex<Queue> = Mutex::new(Queue {
    waiting: VecDeque::new(),
    threads: 0,
    has_timekeeper: false,
});

/// Tells the timekeeper to look again: a connect was added, or none is left.
static CHANGED: Condvar = Condvar::new();

struct Queue {
    /// Connects that wait, oldest first. They wait long only while all threads are at work.
    waiting: VecDeque<Connect>,
    threads: usize,
    /// True while a thread exists that ends connects whose deadline passes in the queue.
    has_timekeeper: bool,
}

/// Starts the connect, or queues it. Err: no thread can be started, and none is at work that would take it.
pub(super) fn add(connect: Connect) -> Result<(), FabricError> {
    let mut queue = QUEUE.lock();
    queue.waiting.push_back(connect);
    if queue.threads < CONNECTS_MAX {
        match start("inet_rdma/connect", work) {
            Ok(_thread) => {
                queue.threads += 1;
                return Ok(());
            }
            Err(error) if queue.threads == 0 => {
                queue.waiting.pop_back();
                return Err(error);
            }
            Err(_) => {}
        }
    }
    if queue.has_timekeeper {
        CHANGED.notify_one();
    } else {
        // Without the thread waiting connects end when a place is free.
        queue.has_timekeeper = start("inet_rdma/expire", expire).is_ok();
    }
    Ok(())
}

/// Connects until nothing waits.
fn work() {
    loop {
        let mut queue = QUEUE.lock();
        let next = queue.waiting.pop_front();
        if next.is_none() {
            queue.threads -= 1;
        }
        if queue.waiting.is_empty() && queue.has_timekeeper {
            CHANGED.notify_one();
        }
        drop(queue);
        match next {
            Some(connect) => connect.run(),
            None => return,
        }
    }
}

/// Ends connects whose deadline has passed, until none waits.
fn expire() {
    let mut queue = QUEUE.lock();
    loop {
        let now = Instant::now();
        if let Some(late) = queue.waiting.iter().position(|connect| connect.deadline <= now) {
            let late = queue.waiting.remove(late);
            // The notifier is called without the lock.
            parking_lot::MutexGuard::unlocked(&mut queue, || late.map(Connect::run));
            continue;
        }
        match queue.waiting.iter().map(|connect| connect.deadline).min() {
            Some(next) => drop(CHANGED.wait_until(&mut queue, next)),
            None => {
                queue.has_timekeeper = false;
                return;
            }
        }
    }
}
