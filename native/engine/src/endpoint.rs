//! Connections in the hands of polling threads.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use crate::assembly::Buffer;
use crate::connection::{Closed, Connection, Wakes};
use crate::fabric::FabricError;
use crate::poller::{Next, Polled, PolledId, Poller, Polling};

/// Tells the user of a connection from a polling thread. Must not block.
pub trait Waker: Send + Sync {
    /// These can go on.
    fn wake(&self, wakes: Wakes);
}

/// The polling threads of a process.
pub struct Engine {
    pollers: Vec<Poller>,
    next: AtomicUsize,
}

impl Engine {
    /// Starts so many polling threads (at least one).
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
    pub fn attach<B: Buffer + Send + 'static>(
        self: &Arc<Self>,
        connection: Arc<Connection<B>>,
        waker: Box<dyn Waker>,
    ) -> Result<Attachment, FabricError> {
        self.add(Arc::new(Link { connection, waker }))
    }

    fn add(self: &Arc<Self>, polled: Arc<dyn Polled>) -> Result<Attachment, FabricError> {
        let index = self.next.fetch_add(1, Ordering::Relaxed) % self.pollers.len();
        let id = self.pollers[index].add(polled)?;
        Ok(Attachment {
            engine: Arc::clone(self),
            index,
            id,
        })
    }
}

/// Something is in a polling thread's hands as long as this lives.
pub struct Attachment {
    engine: Arc<Engine>,
    index: usize,
    id: PolledId,
}

impl Attachment {
    /// Calls the thread back to it, also after [`Self`] was given away; does nothing once it is dropped.
    pub fn kicker(&self) -> Kicker {
        Kicker {
            engine: Arc::downgrade(&self.engine),
            index: self.index,
            id: self.id,
        }
    }
}

/// See [`Attachment::kicker`].
pub struct Kicker {
    engine: Weak<Engine>,
    index: usize,
    id: PolledId,
}

impl Kicker {
    /// Makes the thread look, soon.
    pub fn kick(&self) {
        if let Some(engine) = self.engine.upgrade() {
            engine.pollers[self.index].kick(self.id);
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.engine.pollers[self.index].remove(self.id);
    }
}

/// A connection and whom to tell.
struct Link<B> {
    connection: Arc<Connection<B>>,
    waker: Box<dyn Waker>,
}

impl<B> Link<B> {
    fn deliver(&self, wakes: Wakes) {
        if !wakes.is_empty() {
            self.waker.wake(wakes);
        }
    }
}

const EVENT: usize = 0;

impl<B: Buffer + Send> Polled for Link<B> {
    fn event_fds(&self) -> Vec<BorrowedFd<'_>> {
        let qp = self.connection.queue_pair();
        let mut fds = vec![qp.event_fd(), qp.liveness_fd()];
        fds.dedup_by_key(|fd| fd.as_raw_fd());
        fds
    }

    fn handle_event(&self, index: usize, spin: bool) -> Next {
        if index == EVENT && self.connection.drain_event() {
            return self.handle_kick(spin);
        }
        let (alive, wakes) = self.connection.handle_liveness();
        self.deliver(wakes);
        if alive { Next::Wait } else { Next::Over }
    }

    fn handle_kick(&self, spin: bool) -> Next {
        let (poll_on, wakes) = self.connection.attend(spin);
        self.deliver(wakes);
        if poll_on { Next::Busy } else { Next::Wait }
    }

    fn poll(&self) -> Next {
        match self.connection.poll() {
            None => Next::Wait,
            Some((came, wakes)) => {
                self.deliver(wakes);
                if came { Next::Busy } else { Next::Quiet }
            }
        }
    }

    fn sleep(&self) {
        self.deliver(self.connection.sleep());
    }

    fn fail(&self) {
        self.deliver(self.connection.close_with(Closed::Fabric(FabricError::Panicked(
            "the polling thread of this connection",
        ))));
    }
}
