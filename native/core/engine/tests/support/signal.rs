//! The user of a connection in tests: it keeps what it is told.

#![allow(dead_code, reason = "no test uses all of it")]

use std::time::Instant;

use inet_rdma_engine::connection::{Caller, Notifier, Woken};
use parking_lot::{Condvar, Mutex};

use crate::pair::BOUND;

/// Who can go on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wakes {
    pub reader: bool,
    pub writer: bool,
}

impl Wakes {
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

#[derive(Default)]
pub struct Signal {
    wakes: Mutex<Wakes>,
    changed: Condvar,
}

impl Signal {
    /// The notifications since the last call.
    pub fn take(&self) -> Wakes {
        std::mem::take(&mut self.wakes.lock())
    }

    pub fn wait(&self, who: impl Fn(&mut Wakes) -> &mut bool, what: &str) {
        let end = Instant::now() + BOUND;
        let mut wakes = self.wakes.lock();
        while !std::mem::take(who(&mut wakes)) {
            let late = self.changed.wait_until(&mut wakes, end).timed_out();
            assert!(!late, "nobody woke the {what}");
        }
    }
}

impl Notifier for Signal {
    fn wake(&self, woken: Woken, _caller: Caller) {
        let mut wakes = self.wakes.lock();
        wakes.reader |= woken.reader;
        wakes.writer |= woken.writer;
        self.changed.notify_all();
    }
}
