//! A descriptor by which one thread wakes another: an event fd of this process alone.

#[cfg(not(target_os = "linux"))]
compile_error!("inet_rdma's native library is for Linux: nodes of other systems run without it, over TCP");

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

use crate::FabricError;

/// Readable while it is set. No call blocks.
#[derive(Debug)]
pub struct Event(OwnedFd);

impl Event {
    /// An event that is not set.
    pub fn new() -> Result<Event, FabricError> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        fd.map(Event)
            .map_err(|errno| FabricError::system("creating an event", errno))
    }

    /// Sets it; wakes the thread that waits for it.
    pub fn set(&self) {
        // EAGAIN: the counter is full, so the event is set already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Takes it back, until it is set again.
    pub fn clear(&self) {
        // EAGAIN: it was not set.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
