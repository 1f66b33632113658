//! Connections and listeners in the hands of polling threads.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;

use crate::assembly::Buffer;
use crate::connection::{Closed, Connection, Wakes};
use crate::fabric::{FabricError, Listener, QueuePair};
use crate::poller::{Next, Polled, PolledId, Poller, Polling};

/// Tells the user of a connection from a polling thread. Must not block.
pub trait Waker: Send + Sync {
    /// These can go on.
    fn wake(&self, wakes: Wakes);
}

/// Tells the user of a listener from a polling thread. Must not block.
pub trait AcceptWaker: Send + Sync {
    /// There is a connection to accept.
    fn accepted(&self);
    /// A peer was refused.
    fn refused(&self, error: &FabricError);
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

    /// Gives a listener to one of the threads.
    pub fn listen(
        self: &Arc<Self>,
        listener: Box<dyn Listener>,
        backlog: usize,
        waker: Box<dyn AcceptWaker>,
    ) -> Result<Acceptor, FabricError> {
        let port = listener.port();
        let event = listener
            .event_fd()
            .try_clone_to_owned()
            .map_err(|error| FabricError::System {
                doing: "copying the event of a listener",
                error: error.into(),
            })?;
        let queue = Arc::new(AcceptQueue {
            listener: Mutex::new(Some(listener)),
            waiting: Mutex::new(VecDeque::new()),
            backlog,
            waker,
        });
        let attachment = self.add(Arc::new(Door {
            queue: Arc::clone(&queue),
            event,
        }))?;
        Ok(Acceptor {
            queue,
            port,
            _attachment: attachment,
        })
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

/// What polling thread and acceptor share.
struct AcceptQueue {
    /// None: the polling thread panicked with it.
    listener: Mutex<Option<Box<dyn Listener>>>,
    waiting: Mutex<VecDeque<Box<dyn QueuePair>>>,
    backlog: usize,
    waker: Box<dyn AcceptWaker>,
}

impl AcceptQueue {
    fn take_in(&self) {
        let mut listener = self.listener.lock();
        while let Some(attempt) = listener.as_mut().and_then(|listener| listener.poll_accept()) {
            match attempt {
                Ok(qp) => self.keep(qp),
                Err(error) => self.waker.refused(&error),
            }
        }
    }

    fn keep(&self, qp: Box<dyn QueuePair>) {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= self.backlog {
            drop(waiting);
            qp.disconnect();
            self.waker.refused(&FabricError::QueueFull);
            return;
        }
        waiting.push_back(qp);
        drop(waiting);
        self.waker.accepted();
    }
}

/// A listener in a polling thread's hands. Its event fd is a copy, which needs no lock.
struct Door {
    queue: Arc<AcceptQueue>,
    event: OwnedFd,
}

impl Polled for Door {
    fn event_fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.event.as_fd()]
    }

    fn handle_event(&self, _index: usize, spin: bool) -> Next {
        self.handle_kick(spin)
    }

    fn handle_kick(&self, _spin: bool) -> Next {
        self.queue.take_in();
        Next::Wait
    }

    fn poll(&self) -> Next {
        Next::Wait
    }

    fn sleep(&self) {}

    fn has_deadlines(&self) -> bool {
        true
    }

    fn deadline(&self) -> Option<Instant> {
        self.queue
            .listener
            .lock()
            .as_ref()
            .and_then(|listener| listener.next_deadline())
    }

    /// The port is free again, and who waits for a connection finds out.
    fn fail(&self) {
        *self.queue.listener.lock() = None;
        self.queue.waiting.lock().clear();
        self.queue.waker.accepted();
    }
}

/// A listening port. Dropping it closes the port; connections live on.
pub struct Acceptor {
    queue: Arc<AcceptQueue>,
    port: u16,
    _attachment: Attachment,
}

impl Acceptor {
    /// The next connection that waits; None: none yet, the waker tells. Err: the listener has failed, its port is closed.
    pub fn accept(&self) -> Result<Option<Box<dyn QueuePair>>, FabricError> {
        let next = self.queue.waiting.lock().pop_front();
        if next.is_none() && self.queue.listener.lock().is_none() {
            return Err(FabricError::Panicked("the polling thread of this listener"));
        }
        Ok(next)
    }

    /// The port that peers connect to.
    pub fn port(&self) -> u16 {
        self.port
    }
}
