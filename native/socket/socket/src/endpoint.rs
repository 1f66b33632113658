//! Connections that polling threads serve.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use inet_rdma_engine::connection::{Closed, Connection};
use inet_rdma_fabric::FabricError;

use crate::poller::{PollStep, Polled, PolledId, Poller, Polling};

/// The polling threads of a process.
pub struct Pollers {
    pollers: Vec<Poller>,
    next: AtomicUsize,
}

impl Pollers {
    /// Starts `threads` polling threads (at least one).
    pub fn start(threads: usize, polling: Polling) -> Result<Self, FabricError> {
        let pollers = (0..threads.max(1))
            .map(|index| Poller::start(polling, format!("inet_rdma/{index}")))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            pollers,
            next: AtomicUsize::new(0),
        })
    }

    /// Gives a connection to one of the threads, in turn.
    pub fn attach(self: &Arc<Self>, connection: Arc<Connection>) -> Result<Attachment, FabricError> {
        let index = self.next.fetch_add(1, Ordering::Relaxed) % self.pollers.len();
        let poller = &self.pollers[index];
        let id = poller.add(Arc::new(Attached(Arc::clone(&connection))))?;
        connection.set_polling_thread(Box::new(poller.kicker(id)));
        // The thread may have looked, as `add` asks it to, before the kicker was set. If that look could not arm it had
        // no kicker to call: kick now.
        poller.kick(id);
        Ok(Attachment {
            pollers: Arc::clone(self),
            index,
            id,
        })
    }
}

/// A connection stays with its polling thread as long as this lives.
pub struct Attachment {
    pollers: Arc<Pollers>,
    index: usize,
    id: PolledId,
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.pollers.pollers[self.index].remove(self.id);
    }
}

/// A connection, as a polling thread serves it.
struct Attached(Arc<Connection>);

const EVENT: usize = 0;

impl Polled for Attached {
    fn event_fds(&self) -> Vec<BorrowedFd<'_>> {
        let qp = self.0.queue_pair();
        let mut fds = vec![qp.event_fd(), qp.liveness_fd()];
        fds.dedup_by_key(|fd| fd.as_raw_fd());
        fds
    }

    fn handle_event(&self, index: usize, spin: bool) -> PollStep {
        if index == EVENT && self.0.drain_event() {
            return self.handle_kick(spin);
        }
        if self.0.handle_liveness() {
            PollStep::Wait
        } else {
            PollStep::Over
        }
    }

    fn handle_kick(&self, spin: bool) -> PollStep {
        if self.0.attend(spin) {
            PollStep::Busy
        } else {
            PollStep::Wait
        }
    }

    fn poll(&self) -> PollStep {
        match self.0.poll() {
            None => PollStep::Wait,
            Some(true) => PollStep::Busy,
            Some(false) => PollStep::Quiet,
        }
    }

    fn sleep(&self) {
        self.0.sleep();
    }

    fn fail(&self) {
        self.0.close_with(Closed::Fabric(FabricError::Panicked(
            "the polling thread of this connection",
        )));
    }
}
