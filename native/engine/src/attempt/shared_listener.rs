//! One listener for all peers that settle with this process by a token.
//!
//! It is opened with the first peer that is expected, and stays. A thread of its own, `inet_rdma/shm`, answers: nothing
//! of it runs on a thread that wakes connections. An expectation costs an entry of a map: no descriptor, no system
//! call.
//!
//! Lock order: `SHARED`, then `Shared::expected`. No promise is kept or dropped while either is held.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use inet_rdma_fabric::event::Event;
use inet_rdma_fabric::{FabricError, ListenOptions, Listener, Parameters, threads, waiting};
use inet_rdma_fabric_shm::listener::{Admission, ShmListener};
use inet_rdma_stream::Hello;
use parking_lot::Mutex;

use super::promise::Promise;
use crate::auto::SETTLED;

/// Peers that have connected and not greeted yet, at most. Each costs a descriptor until [`HELLO_TIMEOUT`]. A peer
/// beyond that is refused, and its link goes another way.
const BACKLOG: u16 = 1024;

/// How long a peer may take to greet. A peer that has the token greets at once.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

static SHARED: Mutex<Option<Arc<Shared>>> = Mutex::new(None);

/// The state shared by the listener's thread and the attempts that expect peers.
struct Shared {
    port: u16,
    expected: Mutex<Expected>,
    /// Set when the thread has to look at the deadlines again.
    changed: Event,
}

#[derive(Default)]
struct Expected {
    peers: HashMap<u64, Expectation>,
    /// When the thread looks at the deadlines next; None: not before it is told to.
    looks_at: Option<Instant>,
    /// The thread has ended.
    failed: Option<FabricError>,
}

struct Expectation {
    parameters: Parameters,
    deadline: Instant,
    promise: Promise,
    /// The peer has greeted: no other peer gets in by its token.
    is_met: bool,
}

/// Expects the peer whose hello has the token of `parameters`, until `deadline`. Returns the port that it must connect
/// to.
///
/// Err: the listener cannot be opened.
pub(super) fn expect(parameters: &Parameters, deadline: Instant, promise: Promise) -> Result<u16, FabricError> {
    let shared = shared(parameters)?;
    let mut expected = shared.expected.lock();
    if let Some(error) = &expected.failed {
        return Err(error.clone());
    }
    let before = expected.peers.insert(
        parameters.token,
        Expectation {
            parameters: *parameters,
            deadline,
            promise,
            is_met: false,
        },
    );
    let is_earlier = expected.looks_at.is_none_or(|at| deadline < at);
    drop(expected);
    // A token is 64 random bits: an earlier expectation with the same token is of a settlement that was given up.
    drop(before);
    if is_earlier {
        shared.changed.set();
    }
    Ok(shared.port)
}

/// Cancels the expectation of the peer with this token: it is refused from now on.
pub(super) fn forget(token: u64) {
    let Some(shared) = SHARED.lock().clone() else { return };
    let gone = shared.expected.lock().peers.remove(&token);
    drop(gone);
}

fn shared(parameters: &Parameters) -> Result<Arc<Shared>, FabricError> {
    let mut slot = SHARED.lock();
    if let Some(shared) = &*slot {
        return Ok(Arc::clone(shared));
    }
    let options = ListenOptions {
        address: None,
        ports: 0..=0,
        backlog: BACKLOG,
        hello_timeout: HELLO_TIMEOUT,
        parameters: *parameters,
    };
    let listener = ShmListener::listen(&options)?;
    let changed = Event::new()?;
    let shared = Arc::new(Shared {
        port: listener.port(),
        expected: Mutex::default(),
        changed,
    });
    let listener = listener.admitting(Box::new(Door(Arc::clone(&shared))));
    let run = Arc::clone(&shared);
    threads::start("inet_rdma/shm", move || {
        let failed = catch_unwind(AssertUnwindSafe(|| answer(listener, &run)));
        let error = failed.unwrap_or(FabricError::Panicked("the thread of the listener of links"));
        // The next expectation opens another listener.
        *SHARED.lock() = None;
        let lost = run.expected.lock().fail(&error);
        for peer in lost {
            peer.promise.keep(|_| Err(error.clone().into()));
        }
    })?;
    *slot = Some(Arc::clone(&shared));
    Ok(shared)
}

/// Lets in the peers that are expected.
struct Door(Arc<Shared>);

impl Admission for Door {
    fn admit(&mut self, hello: &Hello) -> Result<Parameters, FabricError> {
        match self.0.expected.lock().peers.get_mut(&hello.token) {
            Some(peer) if !peer.is_met => {
                peer.is_met = true;
                Ok(peer.parameters)
            }
            _ => Err(FabricError::WrongToken),
        }
    }
}

/// Answers peers for ever; why that has failed.
fn answer(mut listener: ShmListener, shared: &Shared) -> FabricError {
    loop {
        while let Some(met) = listener.next_peer() {
            // A peer without the token has no expectation: its outcome is dropped.
            let peer = met.token.and_then(|token| shared.expected.lock().peers.remove(&token));
            if let Some(peer) = peer {
                peer.promise.keep(|_| {
                    let qp = met.outcome?;
                    let why = format!("{SETTLED}: {}", qp.route());
                    Ok((qp, why))
                });
            }
            // Tell the peer of the refusal only now: it then asks why over its settlement, and the outcome must be
            // there.
            if let Some(refusal) = met.refusal {
                refusal.tell();
            }
        }
        let (late, next) = shared.expected.lock().late(listener.next_deadline());
        for peer in late {
            peer.promise.keep(|_| Err(FabricError::TimedOut.into()));
        }
        let fds = [listener.event_fd(), shared.changed.as_fd()];
        if let Err(error) = waiting::until_readable(&fds, next, "waiting for peers") {
            return error;
        }
        shared.changed.clear();
    }
}

impl Expected {
    /// No peer is answered any more; those that were expected.
    fn fail(&mut self, error: &FabricError) -> Vec<Expectation> {
        self.failed = Some(error.clone());
        self.peers.drain().map(|(_, peer)| peer).collect()
    }

    /// Takes out the peers that did not come in time; when to look again.
    fn late(&mut self, listener: Option<Instant>) -> (Vec<Expectation>, Option<Instant>) {
        let now = Instant::now();
        let late = self.peers.iter().filter(|(_, peer)| peer.deadline <= now);
        let late: Vec<u64> = late.map(|(token, _)| *token).collect();
        let late = late.iter().filter_map(|token| self.peers.remove(token)).collect();
        let own = self.peers.values().map(|peer| peer.deadline).min();
        self.looks_at = own.into_iter().chain(listener).min();
        (late, self.looks_at)
    }
}
