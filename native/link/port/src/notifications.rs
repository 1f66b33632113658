//! Notifications of a link's connection: the connection notes them here, and the port takes them after each of its
//! calls.

use std::sync::atomic::{AtomicBool, Ordering};

use inet_rdma_engine::connection::{Caller, Notifier, Woken};

/// Flags that callbacks of one port take, which the VM runs one at a time. These callbacks set them, too, and so does
/// the thread that gets memory for connections, at any time.
#[derive(Debug, Default)]
pub struct Notifications {
    readable: AtomicBool,
    writable: AtomicBool,
    key_due: AtomicBool,
}

impl Notifier for Notifications {
    fn wake(&self, woken: Woken, _caller: Caller) {
        if woken.reader {
            self.readable.store(true, Ordering::Relaxed);
        }
        if woken.writer {
            self.writable.store(true, Ordering::Relaxed);
        }
    }

    fn key_due(&self) {
        self.key_due.store(true, Ordering::Relaxed);
    }
}

impl Notifications {
    /// Whether there may be something to read, noted since the last call.
    pub fn take_readable(&self) -> bool {
        take(&self.readable)
    }

    /// Whether the sending key nears its limit, noted since the last call.
    pub fn take_key_due(&self) -> bool {
        take(&self.key_due)
    }

    /// Whether there may be room, noted since the last call.
    pub fn take_writable(&self) -> bool {
        take(&self.writable)
    }
}

/// Takes a flag without a locked instruction. A flag that another thread sets between load and store is lost without
/// harm: the connection's state changed under its lock first, and the port's next call takes that lock. A port that
/// waits for an event is armed, and the end of its connection makes an event.
fn take(noted: &AtomicBool) -> bool {
    let is_set = noted.load(Ordering::Relaxed);
    if is_set {
        noted.store(false, Ordering::Relaxed);
    }
    is_set
}
