//! Queue pairs in the making: an attempt connects, or waits for one peer, on a native thread, while its user does
//! something else.
//!
//! The thread makes the calls that may block, puts the outcome into the attempt, then calls the user's notifier. It
//! ends with the work. Signals are blocked in it, and a panic becomes the attempt's error.
//!
//! Dropping an attempt cancels it. A thread that waits for a peer is woken by an event and ends at once; its listener
//! is closed. A thread that connects ends at its deadline at the latest, and then closes its queue pair.

mod accept;
mod bounded;
mod connects;
mod promise;
mod shared_listener;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use inet_rdma_fabric::deadline::time_after;
use inet_rdma_fabric::event::Event;
use inet_rdma_fabric::{FabricError, Listener, Parameters, threads};
use inet_rdma_fabric_shm::connect_named;
use inet_rdma_fabric_shm::directory::SharedDirectory;
use inet_rdma_fabric_shm::socket_name::SocketName;
use parking_lot::Mutex;

use connects::Connect;
use promise::{Awaited, Promise, Slot, State, settled};

pub use connects::CONNECTS_MAX;
pub use promise::{AttemptError, Made, Notify, Outcome, SETTLED};

/// A queue pair in the making. See the module's description.
#[must_use = "dropping it cancels the attempt"]
pub struct Attempt {
    slot: Arc<Slot>,
}

impl Attempt {
    /// Calls `connect` on a thread, with the time that it may take. At most [`CONNECTS_MAX`] such calls are under way
    /// at a time; further ones wait in a queue. `timeout` counts from now, also in the queue: an attempt whose time
    /// passes there ends with [`FabricError::TimedOut`].
    ///
    /// Err: no thread can be started. `notify` is not called then.
    pub fn connect(
        timeout: Duration,
        connect: impl FnOnce(Duration) -> Result<Made, FabricError> + Send + 'static,
        notify: Notify,
    ) -> Result<Attempt, FabricError> {
        let (attempt, promise) = Attempt::pending(Awaited::Connect, Some(notify));
        connects::add(Connect {
            deadline: time_after(timeout),
            connect: Box::new(connect),
            promise,
        })?;
        Ok(attempt)
    }

    /// Waits on a thread until `listener` gives a queue pair, then closes the listener. A refused peer does not end the
    /// attempt, unless it has the token of a listener that takes one peer.
    ///
    /// Each such attempt has a thread, and their number is not bounded. With a bound, nodes that all connect to each
    /// other could fill it with waits for peers that are in a queue themselves, and no link would come up before the
    /// deadlines. The user bounds the attempts by the number of listeners that it opens.
    ///
    /// Err: no thread or no event can be made. `notify` is not called then.
    pub fn accept(listener: Box<dyn Listener>, timeout: Duration, notify: Notify) -> Result<Attempt, FabricError> {
        let (attempt, promise) = Attempt::pending(Awaited::Peer(Event::new()?), Some(notify));
        let deadline = time_after(timeout);
        threads::start("inet_rdma/accept", move || {
            promise.keep(|slot| accept::accept(listener, deadline, slot));
        })?;
        Ok(attempt)
    }

    /// Waits for the peer that connects over shared memory with the token of `parameters`. Returns the name to which it
    /// must connect. All such attempts of the process share a listener and its thread. See [`Self::notify`].
    ///
    /// Err: the listener cannot be opened.
    pub fn expect_shm(parameters: &Parameters, timeout: Duration) -> Result<(Attempt, SocketName), FabricError> {
        let (attempt, promise) = Attempt::pending(Awaited::Expected(parameters.token), None);
        let name = shared_listener::expect(parameters, time_after(timeout), promise)?;
        Ok((attempt, name))
    }

    fn pending(awaited: Awaited, notify: Option<Notify>) -> (Attempt, Promise) {
        let slot = Arc::new(Slot {
            state: Mutex::new(State::Pending(notify)),
            awaited,
        });
        let promise = Promise(Arc::clone(&slot));
        (Attempt { slot }, promise)
    }

    /// Replaces the attempt's notifier. False: the outcome is there, and the notifier is not called.
    #[must_use]
    pub fn notify(&self, notify: Notify) -> bool {
        let mut state = self.slot.state.lock();
        let State::Pending(slot) = &mut *state else {
            return false;
        };
        *slot = Some(notify);
        true
    }

    /// Takes the outcome, once. None: there is no outcome yet; the notifier tells when there is.
    pub fn take(&self) -> Option<Outcome> {
        let mut state = self.slot.state.lock();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Done(outcome) => Some(outcome),
            State::Taken | State::Cancelled => Some(Err(AttemptError::Taken)),
            pending @ State::Pending(_) => {
                *state = pending;
                None
            }
        }
    }

    /// Cancels the attempt. An outcome that was not taken is dropped, and its queue pair closed.
    pub fn cancel(&self) {
        let before = std::mem::replace(&mut *self.slot.state.lock(), State::Cancelled);
        if !matches!(before, State::Pending(_)) {
            return;
        }
        match &self.slot.awaited {
            Awaited::Connect => {}
            Awaited::Peer(cancelled) => cancelled.set(),
            Awaited::Expected(token) => shared_listener::forget(*token),
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// Connects over shm to the peer whose socket file has this name in a shared directory. A file system that does not
/// answer holds a thread of its own, beyond the deadline, and not the caller.
pub fn connect_in(
    directory: &SharedDirectory,
    name: &SocketName,
    parameters: &Parameters,
    timeout: Duration,
) -> Result<Made, FabricError> {
    let (directory, name, parameters) = (directory.clone(), name.clone(), *parameters);
    bounded::within(timeout, move || directory.connect(&name, &parameters, timeout)).map(settled)
}

/// Connects over shm to the peer of this network namespace that has this name.
pub fn connect_to(name: &SocketName, parameters: &Parameters, timeout: Duration) -> Result<Made, FabricError> {
    connect_named(name, parameters, timeout).map(settled)
}

/// A token for an expected peer: 64 random bits of the system, never 0.
pub fn token() -> u64 {
    let mut bytes = [0; size_of::<u64>()];
    // `getrandom(2)` gives up to 256 bytes whole, and without waiting once the system is up.
    let _taken = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    // The call has failed: take a hash whose keys the system seeded at the process's start, also hard to guess.
    match u64::from_ne_bytes(bytes) {
        0 => RandomState::new().hash_one(Instant::now()) | 1,
        token => token,
    }
}
