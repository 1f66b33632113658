//! Listeners of streams, each with a thread of its own. To accept a connection over verbs, the kernel registers memory
//! and makes a queue pair. That takes long, and a polling thread would wake no other connection meanwhile.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use inet_rdma_fabric::event::Event;
use inet_rdma_fabric::{FabricError, Listener, QueuePair, threads, waiting};
use parking_lot::Mutex;

/// Tells the user of a listener, on the listener's thread. Must not block.
pub trait AcceptWaker: Send + Sync {
    /// There is a connection to accept, or the listener has failed: see [`Acceptor::accept`].
    fn accepted(&self);
    /// A peer was refused.
    fn refused(&self, error: &FabricError);
}

/// A listening port. Dropping it closes the port; connections live on.
pub struct Acceptor {
    shared: Arc<Shared>,
    port: u16,
}

struct Shared {
    /// None: closed. The thread holds the lock while it accepts: a caller that must not wait may only try the lock.
    listener: Mutex<Option<Box<dyn Listener>>>,
    /// Queue pairs that the thread has accepted and the user has not taken yet.
    accepted: Mutex<VecDeque<Box<dyn QueuePair>>>,
    backlog: usize,
    waker: Box<dyn AcceptWaker>,
    /// A copy of the listener's descriptor: waited on without the lock.
    event: OwnedFd,
    /// Set once the acceptor is dropped.
    stop: Event,
    is_stopped: AtomicBool,
    /// The reason why the thread has ended before that.
    failure: OnceLock<FabricError>,
}

impl Acceptor {
    /// Starts the thread of a listener. At most `backlog` connections wait for [`Self::accept`]; further peers are
    /// disconnected.
    pub fn start(
        listener: Box<dyn Listener>,
        backlog: usize,
        waker: Box<dyn AcceptWaker>,
    ) -> Result<Acceptor, FabricError> {
        let port = listener.port();
        let event = listener.event_fd().try_clone_to_owned();
        let event = event.map_err(|error| FabricError::system("copying the event of a listener", error))?;
        let stop = Event::new()?;
        let shared = Arc::new(Shared {
            listener: Mutex::new(Some(listener)),
            accepted: Mutex::default(),
            backlog,
            waker,
            event,
            stop,
            is_stopped: AtomicBool::new(false),
            failure: OnceLock::new(),
        });
        let thread = Arc::clone(&shared);
        threads::start("inet_rdma/listen", move || thread.run())?;
        Ok(Acceptor { shared, port })
    }

    /// Takes the next connection. None: there is none yet; the waker tells when there is. Err: the listener has failed,
    /// and its port is closed.
    pub fn accept(&self) -> Result<Option<Box<dyn QueuePair>>, FabricError> {
        let next = self.shared.accepted.lock().pop_front();
        match self.shared.failure.get() {
            Some(failure) if next.is_none() => Err(failure.clone()),
            _ => Ok(next),
        }
    }

    /// The port that peers connect to.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Acceptor {
    /// Never waits: if the thread is accepting a connection at this moment, the thread closes the port afterwards.
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Release);
        self.shared.stop.set();
        if let Some(mut listener) = self.shared.listener.try_lock() {
            *listener = None;
        }
    }
}

impl Shared {
    fn run(&self) {
        let failure = match catch_unwind(AssertUnwindSafe(|| self.serve())) {
            Ok(Ok(())) => return,
            Ok(Err(failure)) => failure,
            Err(_panic) => FabricError::Panicked("the thread of this listener"),
        };
        // A port must not stay open without its thread.
        *self.listener.lock() = None;
        self.accepted.lock().clear();
        let _first = self.failure.set(failure);
        let _ = catch_unwind(AssertUnwindSafe(|| self.waker.accepted()));
    }

    /// Accepts until the acceptor is dropped. Err: the listener, or the wait for its peers, has failed.
    fn serve(&self) -> Result<(), FabricError> {
        loop {
            let deadline = {
                let mut listener = self.listener.lock();
                if self.is_stopped.load(Ordering::Acquire) {
                    *listener = None;
                }
                let Some(listener) = &mut *listener else { return Ok(()) };
                match listener.poll_accept() {
                    Some(Ok(queue_pair)) => {
                        self.keep(queue_pair);
                        continue;
                    }
                    Some(Err(error)) if listener.is_over() => return Err(error),
                    Some(Err(error)) => {
                        self.waker.refused(&error);
                        continue;
                    }
                    None => listener.next_deadline(),
                }
            };
            waiting::until_readable(&[self.event.as_fd(), self.stop.as_fd()], deadline, "waiting for peers")?;
        }
    }

    fn keep(&self, queue_pair: Box<dyn QueuePair>) {
        let mut accepted = self.accepted.lock();
        if accepted.len() >= self.backlog {
            drop(accepted);
            queue_pair.disconnect();
            self.waker.refused(&FabricError::BacklogFull);
            return;
        }
        accepted.push_back(queue_pair);
        drop(accepted);
        self.waker.accepted();
    }
}
