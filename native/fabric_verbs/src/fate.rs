//! The end of one connection, as the connection manager or the device tells of it.

use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, OnceLock};

use inet_rdma_fabric::FabricError;
use inet_rdma_verbs::qp::QueuePair;
use parking_lot::Mutex;

use crate::reaper;

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// The peer disconnected, or its process ended.
    Peer,
    /// Something else.
    Failed(FabricError),
}

/// The end of one connection, if it has come.
pub(crate) struct Fate {
    /// The token of the connection's id.
    token: usize,
    end: OnceLock<End>,
    /// None: the connection is being taken apart.
    queue_pair: Mutex<Option<Arc<QueuePair>>>,
    /// The thread that has called [`Self::wake`].
    #[cfg(test)]
    woken_by: OnceLock<std::thread::ThreadId>,
}

impl Fate {
    /// Of a connection that is alive.
    pub(crate) fn of(token: usize, queue_pair: Option<Arc<QueuePair>>) -> Fate {
        Fate {
            token,
            end: OnceLock::new(),
            queue_pair: Mutex::new(queue_pair),
            #[cfg(test)]
            woken_by: OnceLock::new(),
        }
    }

    /// The first end counts. True: this is it; [`Self::wake`] must follow.
    #[must_use]
    pub(crate) fn tell(&self, end: End) -> bool {
        self.end.set(end).is_ok()
    }

    /// Tells an end that the caller has seen itself. The reaper calls [`Self::wake`]: the caller may be a scheduler that
    /// holds a port's lock.
    pub(crate) fn tell_and_have_woken(self: &Arc<Self>, end: End) {
        if self.tell(end) {
            reaper::wake(Arc::clone(self));
        }
    }

    /// The end, if it was told. No lock.
    pub(crate) fn end(&self) -> Option<&End> {
        self.end.get()
    }

    /// Whether the end was told, for a caller that has armed the completion queue before it asks. False: the queue pair
    /// is not yet on its way to the error state, so the receives that are flushed there raise the event.
    pub(crate) fn has_ended_since_armed(&self) -> bool {
        // Orders the arming before the load; its counterpart is in `wake`.
        fence(Ordering::SeqCst);
        self.end.get().is_some()
    }

    /// Wakes the user and the reaper of a connection whose end was told. Moves the queue pair to the error state: the
    /// receives that are posted are flushed, which makes an event of an armed completion queue. Says goodbye to the peer,
    /// which need not wait for this side's user then. Asks the kernel: not on a thread that wakes other connections.
    pub(crate) fn wake(&self) {
        #[cfg(test)]
        let _first = self.woken_by.set(std::thread::current().id());
        // Orders the store of the end before the flush.
        fence(Ordering::SeqCst);
        if let Some(queue_pair) = &*self.queue_pair.lock() {
            // Fails on a device that is gone, whose completion channels the kernel makes readable for ever.
            let _ = queue_pair.move_to_error();
            // Fails where the peer was told before.
            let _ = queue_pair.id().disconnect();
        }
        reaper::ended(self.token);
    }

    /// The connection is about to be taken apart: its queue pair is left alone from now on.
    pub(crate) fn let_go(&self) {
        let queue_pair = self.queue_pair.lock().take();
        // Without the lock; and the connection itself has the last reference.
        drop(queue_pair);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_the_user_sees_is_carried_out_by_the_reaper() {
        reaper::start().expect("a thread");
        let fate = Arc::new(Fate::of(1, None));
        fate.tell_and_have_woken(End::Peer);
        assert_eq!(fate.end(), Some(&End::Peer));
        // No bound: without the reaper's call the test runner's ends it.
        while fate.woken_by.get().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_ne!(fate.woken_by.get(), Some(&std::thread::current().id()));
    }
}
