//! Messages for a thread that sleeps in an epoll set.

use std::os::fd::{AsFd, BorrowedFd};

use inet_rdma_fabric::FabricError;
use inet_rdma_fabric::event::Event;
use parking_lot::Mutex;

/// A list of messages, and a descriptor that is readable while there may be some.
pub(crate) struct Mailbox<T> {
    messages: Mutex<Vec<T>>,
    is_filled: Event,
}

impl<T> Mailbox<T> {
    pub(crate) fn new() -> Result<Mailbox<T>, FabricError> {
        Ok(Mailbox {
            messages: Mutex::default(),
            is_filled: Event::new()?,
        })
    }

    /// Adds a message and wakes the thread.
    pub(crate) fn send(&self, message: T) {
        self.messages.lock().push(message);
        self.is_filled.set();
    }

    /// Takes all messages, in the order in which they came.
    pub(crate) fn take(&self) -> Vec<T> {
        self.is_filled.clear();
        std::mem::take(&mut *self.messages.lock())
    }
}

impl<T> AsFd for Mailbox<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.is_filled.as_fd()
    }
}
