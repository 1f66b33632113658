//! The end of one connection, as the connection manager or the device reports it.

use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, OnceLock};
#[cfg(test)]
use std::thread::ThreadId;

use inet_rdma_fabric::FabricError;
use inet_rdma_verbs::qp::QueuePair;
use parking_lot::Mutex;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// The peer disconnected, or its process ended.
    Peer,
    /// A failure on this side or on the way.
    Failed(FabricError),
    /// The whole device has failed, or was removed.
    DeviceFailed(FabricError),
}

/// The end of one connection, once it has come.
pub(crate) struct ConnectionEnd {
    token: usize,
    end: OnceLock<End>,
    /// The queue pair; None: the connection is being destroyed.
    queue_pair: Mutex<Option<Arc<QueuePair>>>,
    #[cfg(test)]
    carried_out_by: OnceLock<ThreadId>,
}

impl ConnectionEnd {
    pub(crate) fn new(token: usize, queue_pair: Option<Arc<QueuePair>>) -> ConnectionEnd {
        ConnectionEnd {
            token,
            end: OnceLock::new(),
            queue_pair: Mutex::new(queue_pair),
            #[cfg(test)]
            carried_out_by: OnceLock::new(),
        }
    }

    pub(crate) fn token(&self) -> usize {
        self.token
    }

    /// Stores the end; the first one counts. True: this is the first; [`Self::carry_out`] must follow.
    #[must_use]
    pub(crate) fn set(&self, end: End) -> bool {
        self.end.set(end).is_ok()
    }

    /// The end, if it is set. No lock.
    pub(crate) fn get(&self) -> Option<&End> {
        self.end.get()
    }

    /// Whether the end is set, for a caller that has armed the completion queue before it asks. False: the queue pair
    /// is not yet on its way to the error state, so the receives that are flushed there raise the event.
    pub(crate) fn is_set_since_armed(&self) -> bool {
        // Orders the arming before the load; its counterpart is in `carry_out`.
        fence(Ordering::SeqCst);
        self.end.get().is_some()
    }

    /// Wakes the user of a connection whose end is set: moves the queue pair to the error state, which flushes the
    /// posted receives, which makes an event of an armed completion queue. Disconnects, so that the peer need not wait
    /// for this side's user. Asks the kernel: do not call it on a thread that wakes other connections.
    pub(crate) fn carry_out(&self) {
        #[cfg(test)]
        let _first = self.carried_out_by.set(std::thread::current().id());
        // Orders the store of the end before the flush.
        fence(Ordering::SeqCst);
        if let Some(queue_pair) = &*self.queue_pair.lock() {
            // This fails on a device that was removed, whose completion channels the kernel makes readable for ever.
            let _ = queue_pair.move_to_error();
            // This fails if the connection was disconnected before.
            let _ = queue_pair.id().disconnect();
        }
    }

    /// Releases the queue pair: the connection is about to be destroyed.
    pub(crate) fn release_queue_pair(&self) {
        let queue_pair = self.queue_pair.lock().take();
        // Dropped without the lock held; the connection itself has the last reference.
        drop(queue_pair);
    }

    #[cfg(test)]
    pub(crate) fn carried_out_by(&self) -> Option<ThreadId> {
        self.carried_out_by.get().copied()
    }
}
