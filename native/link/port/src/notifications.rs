//! Notifications of a link's connection: the connection notes them here, and the port takes them after each of its
//! calls.

use std::sync::atomic::{AtomicBool, Ordering};

use inet_rdma_engine::connection::{Caller, Notifier, Woken};

/// Flags that callbacks of one port take, which the VM runs one at a time. These callbacks set them, too, and so does
/// the thread that gets memory for connections, at any time.
#[derive(Debug, Default)]
pub struct Notifications {
    /// There may be something to read.
    pub(crate) readable: Flag,
    /// There may be room.
    pub(crate) writable: Flag,
}

impl Notifier for Notifications {
    fn wake(&self, woken: Woken, _caller: Caller) {
        if woken.reader {
            self.readable.set();
        }
        if woken.writer {
            self.writable.set();
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Flag(AtomicBool);

impl Flag {
    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was set since the last call, without a locked instruction. A flag that another thread sets between
    /// load and store is lost without harm: the connection's state changed under its lock first, and the port's next
    /// call takes that lock. A port that waits for an event is armed, and the end of its connection makes an event.
    pub fn take(&self) -> bool {
        let is_set = self.0.load(Ordering::Relaxed);
        if is_set {
            self.0.store(false, Ordering::Relaxed);
        }
        is_set
    }
}
