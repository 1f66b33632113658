//! The outcome of an attempt, and the place where its thread leaves it for the user.

use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use inet_rdma_fabric::event::Event;
use inet_rdma_fabric::{FabricError, QueuePair};
use parking_lot::Mutex;

/// A queue pair, and the reason for its fabric, in words.
pub type Made = (Box<dyn QueuePair>, String);

/// The reason for the fabric of a queue pair that two nodes have settled on.
pub const SETTLED: &str = "both nodes settled on it";

/// A queue pair that two nodes have settled on, with that reason.
pub(super) fn settled(qp: Box<dyn QueuePair>) -> Made {
    let why = format!("{SETTLED}: {}", qp.route());
    (qp, why)
}

/// The outcome of an attempt.
pub type Outcome = Result<Made, AttemptError>;

/// The reason why an attempt gives no queue pair.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttemptError {
    /// The fabric failed, or the peer did not come in time.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The peer that was awaited did not come in time, but others did.
    #[error("timed out; {refused} other peers were refused, the last one because: {last}")]
    OnlyStrangers {
        /// Number of refused peers.
        refused: u32,
        /// The reason of the last refusal.
        last: FabricError,
    },
    /// A misuse: the queue pair was taken already.
    #[error("the queue pair of this attempt was taken already")]
    Taken,
}

/// Tells the user of an attempt that the outcome is there. Called once, on the attempt's thread, unless the attempt is
/// dropped before; must not block.
pub type Notify = Box<dyn FnOnce() + Send>;

/// The state shared by the user's handle and the thread.
pub(super) struct Slot {
    pub(super) state: Mutex<State>,
    pub(super) awaited: Awaited,
}

/// The event that the outcome depends on.
pub(super) enum Awaited {
    /// A connect, which ends at its deadline.
    Connect,
    /// The peer of a listener. The event is readable once the attempt is cancelled.
    Peer(Event),
    /// The peer with this token, at the shared listener.
    Expected(u64),
}

pub(super) enum State {
    /// No outcome yet. The notifier, if one was given.
    Pending(Option<Notify>),
    Done(Outcome),
    Taken,
    Cancelled,
}

impl Slot {
    pub(super) fn is_cancelled(&self) -> bool {
        matches!(*self.state.lock(), State::Cancelled)
    }

    /// Readable once the attempt is cancelled.
    pub(super) fn cancelled_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.awaited {
            Awaited::Peer(cancelled) => Some(cancelled.as_fd()),
            Awaited::Connect | Awaited::Expected(_) => None,
        }
    }
}

/// The thread's side of an attempt: it must give an outcome.
pub(super) struct Promise(pub(super) Arc<Slot>);

impl Promise {
    /// Does the work, unless the attempt is cancelled. Calls the notifier after the outcome is there. Closes the queue
    /// pair if the attempt was cancelled meanwhile.
    pub(super) fn keep(self, work: impl FnOnce(&Slot) -> Outcome) {
        if self.0.is_cancelled() {
            return;
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| work(&self.0)))
            .unwrap_or_else(|_| Err(FabricError::Panicked("the thread that made this connection").into()));
        let notify = {
            let mut state = self.0.state.lock();
            let State::Pending(notify) = &mut *state else { return };
            let notify = notify.take();
            *state = State::Done(outcome);
            notify
        };
        // The thread may have others to serve.
        if let Some(notify) = notify {
            let _ = catch_unwind(AssertUnwindSafe(notify));
        }
    }
}
