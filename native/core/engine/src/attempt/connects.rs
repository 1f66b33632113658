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

/// A connect that waits or is under way.
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
pub(super) static CONNECTS: Connects = Connects {
    queue: Mutex::new(Queue {
        waiting: VecDeque::new(),
        threads: 0,
        has_timekeeper: false,
    }),
    changed: Condvar::new(),
};

pub(super) struct Connects {
    queue: Mutex<Queue>,
    /// Tells the timekeeper to look again: a connect was added, or none waits any more.
    changed: Condvar,
}

struct Queue {
    /// Connects that wait, oldest first. They wait long only while all threads are at work.
    waiting: VecDeque<Connect>,
    threads: usize,
    /// True while a thread exists that ends connects whose deadline passes in the queue.
    has_timekeeper: bool,
}

impl Connects {
    /// Starts the connect, or queues it. Err: no thread can be started, and none is at work that would take it from the
    /// queue.
    pub(super) fn add(&'static self, connect: Connect) -> Result<(), FabricError> {
        let mut queue = self.queue.lock();
        queue.waiting.push_back(connect);
        if queue.threads < CONNECTS_MAX {
            match start("inet_rdma/connect", || self.work()) {
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
        self.keep_time(&mut queue);
        Ok(())
    }

    /// Connects until nothing waits.
    fn work(&self) {
        loop {
            let mut queue = self.queue.lock();
            let next = queue.waiting.pop_front();
            if next.is_none() {
                queue.threads -= 1;
            }
            if queue.waiting.is_empty() && queue.has_timekeeper {
                self.changed.notify_one();
            }
            drop(queue);
            match next {
                Some(connect) => connect.run(),
                None => return,
            }
        }
    }

    /// Starts the thread that ends waiting connects at their deadlines. Without it they end when a place is free.
    fn keep_time(&'static self, queue: &mut Queue) {
        if queue.has_timekeeper {
            self.changed.notify_one();
        } else {
            queue.has_timekeeper = start("inet_rdma/expire", || self.expire()).is_ok();
        }
    }

    /// Ends connects whose deadline has passed, until none waits.
    fn expire(&self) {
        let mut queue = self.queue.lock();
        loop {
            let now = Instant::now();
            if let Some(late) = queue.waiting.iter().position(|connect| connect.deadline <= now) {
                let late = queue.waiting.remove(late);
                // The notifier is called without the lock.
                parking_lot::MutexGuard::unlocked(&mut queue, || late.map(Connect::run));
                continue;
            }
            match queue.waiting.iter().map(|connect| connect.deadline).min() {
                Some(next) => drop(self.changed.wait_until(&mut queue, next)),
                None => {
                    queue.has_timekeeper = false;
                    return;
                }
            }
        }
    }
}
