//! One listener for all peers that settle with this process by a token.
//!
//! It is opened with the first peer that is expected, and stays. A thread of its own, `inet_rdma/shm`, answers: nothing
//! of it runs on a thread that wakes connections. An expectation costs an entry of a map: no descriptor, no system
//! call.
//!
//! Peers of other network namespaces come to a second listener of the same thread, at a socket file in a shared
//! directory.
//!
//! Lock order: `SHARED`, then `Shared::expected`. No promise is kept or dropped while either is held. `Shared::meeting`
//! is held for itself, and never while the directory is looked at.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use inet_rdma_fabric::event::Event;
use inet_rdma_fabric::{FabricError, ListenOptions, Listener, Parameters, threads, waiting};
use inet_rdma_fabric_shm::directory::{SharedDirectory, SocketFile};
use inet_rdma_fabric_shm::listener::{Admission, ShmListener};
use inet_rdma_fabric_shm::socket_name::SocketName;
use inet_rdma_stream::{Hello, Limits};
use parking_lot::Mutex;

use super::Attempt;
use super::promise::{Promise, settled};

/// Peers that have connected and not greeted yet, at most. Each costs a descriptor until [`HELLO_TIMEOUT`]. A peer
/// beyond that is refused, and its link goes another way.
const BACKLOG: u16 = 1024;

/// How long a peer may take to greet. A peer that has the token greets at once.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

static SHARED: Mutex<Option<Arc<Shared>>> = Mutex::new(None);

/// The state shared by the listener's thread and the attempts that expect peers.
struct Shared {
    /// The name of this process, under which it listens.
    name: SocketName,
    expected: Mutex<Expected>,
    meeting: Mutex<Option<Meeting>>,
    /// Set when the thread has to look at the deadlines, or for another listener in a directory.
    changed: Event,
}

/// The listener in a shared directory.
struct Meeting {
    directory: SharedDirectory,
    file: SocketFile,
    /// Until the thread takes it.
    listener: Option<ShmListener>,
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

/// This side's limits in the answer to a peer of another version, which reads the version alone. Each expectation has
/// parameters of its own.
const LIMITS: Limits = Limits {
    ring_bytes: 1,
    receive_slots: Limits::RECEIVE_SLOTS_MIN,
    adverts: 1,
};

/// Expects the peer whose hello has the token of `parameters`, until `deadline`. Returns the name that it must connect
/// to.
///
/// Err: the listener cannot be opened.
pub(super) fn expect(parameters: &Parameters, deadline: Instant, promise: Promise) -> Result<SocketName, FabricError> {
    let shared = shared()?;
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
    Ok(shared.name.clone())
}

/// Cancels the expectation of the peer with this token: it is refused from now on.
pub(super) fn forget(token: u64) {
    let Some(shared) = SHARED.lock().clone() else { return };
    let gone = shared.expected.lock().peers.remove(&token);
    drop(gone);
}

impl Attempt {
    /// The name of this process in its network namespace, the same until it ends. The process accepts connections there
    /// from now on, and refuses them when the VM crashes.
    ///
    /// Err: the listener cannot be opened.
    pub fn own_name() -> Result<SocketName, FabricError> {
        shared().map(|shared| shared.name.clone())
    }

    /// The name of the socket file in a shared directory by which the peers of [`Self::expect_shm`] find this process,
    /// too. The file is made at the first call, and again when it has vanished; it stays until
    /// [`Self::leave_directory`].
    ///
    /// Waits for the file system. Err: the directory is refused, or the listener cannot be opened.
    pub fn expect_in(directory: &SharedDirectory) -> Result<SocketName, FabricError> {
        let shared = shared()?;
        let before = {
            let slot = shared.meeting.lock();
            let here = slot.as_ref().filter(|meeting| meeting.directory == *directory);
            here.map(|meeting| meeting.file.clone())
        };
        if let Some(file) = &before {
            if directory.holds(file)? {
                return Ok(file.name.clone());
            }
        }
        let (listener, file) = directory.listen(&options())?;
        let name = file.name.clone();
        let made = Meeting {
            directory: directory.clone(),
            file,
            listener: Some(listener),
        };
        let superfluous = {
            let mut slot = shared.meeting.lock();
            match &*slot {
                // Another settlement has made one meanwhile.
                Some(theirs) if theirs.directory == *directory && Some(&theirs.file) != before.as_ref() => {
                    let name = theirs.file.name.clone();
                    drop(slot);
                    made.close();
                    return Ok(name);
                }
                _ => slot.replace(made),
            }
        };
        shared.changed.set();
        if let Some(replaced) = superfluous {
            replaced.close();
        }
        Ok(name)
    }

    /// Removes the socket file of [`Self::expect_in`]; its listener answers no further peers. Waits for the file
    /// system.
    pub fn leave_directory() {
        let Some(shared) = SHARED.lock().clone() else { return };
        let left = shared.meeting.lock().take();
        if let Some(left) = left {
            shared.changed.set();
            left.close();
        }
    }

    /// Makes a socket file in the directory and removes it, to find out whether that works. Waits for the file system.
    pub fn check_directory(directory: &SharedDirectory) -> Result<(), FabricError> {
        directory.check(&options())
    }
}

impl Meeting {
    /// Removes the file. Peers that have its name already are refused.
    fn close(self) {
        self.directory.remove(&self.file);
    }
}

fn options() -> ListenOptions {
    ListenOptions {
        address: None,
        ports: 0..=0,
        backlog: BACKLOG,
        hello_timeout: HELLO_TIMEOUT,
        parameters: Parameters::of(LIMITS),
    }
}

fn shared() -> Result<Arc<Shared>, FabricError> {
    let mut slot = SHARED.lock();
    if let Some(shared) = &*slot {
        return Ok(Arc::clone(shared));
    }
    let (listener, name) = ShmListener::listen_named(&options())?;
    let changed = Event::new()?;
    let shared = Arc::new(Shared {
        name,
        expected: Mutex::default(),
        meeting: Mutex::default(),
        changed,
    });
    let listener = listener.admitting(Box::new(Door(Arc::clone(&shared))));
    let run = Arc::clone(&shared);
    threads::start("inet_rdma/shm", move || {
        let failed = catch_unwind(AssertUnwindSafe(|| answer(listener, &run)));
        let error = failed.unwrap_or(FabricError::Panicked("the thread of the listener of links"));
        // The next expectation opens another listener.
        *SHARED.lock() = None;
        let left = run.meeting.lock().take();
        if let Some(left) = left {
            left.close();
        }
        let lost = {
            let mut expected = run.expected.lock();
            expected.failed = Some(error.clone());
            std::mem::take(&mut expected.peers)
        };
        for peer in lost.into_values() {
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

/// Answers peers. Returns why it failed.
fn answer(mut listener: ShmListener, shared: &Arc<Shared>) -> FabricError {
    let mut in_directory = None;
    loop {
        shared.change_directory(&mut in_directory);
        answer_all(&mut listener, shared);
        let mut deadlines = listener.next_deadline();
        let mut fds = vec![listener.event_fd(), shared.changed.as_fd()];
        if let Some((_, second)) = &mut in_directory {
            answer_all(second, shared);
            deadlines = deadlines.into_iter().chain(second.next_deadline()).min();
            fds.push(second.event_fd());
        }
        let (late, next) = shared.expected.lock().late(deadlines);
        for peer in late {
            peer.promise.keep(|_| Err(FabricError::TimedOut.into()));
        }
        if let Err(error) = waiting::until_readable(&fds, next, "waiting for peers") {
            return error;
        }
        shared.changed.clear();
    }
}

/// Answers the peers that have come to a listener.
fn answer_all(listener: &mut ShmListener, shared: &Shared) {
    while let Some(met) = listener.next_peer() {
        // A peer without the token has no expectation: its outcome is dropped.
        let peer = met.token.and_then(|token| shared.expected.lock().peers.remove(&token));
        if let Some(peer) = peer {
            peer.promise.keep(|_| Ok(settled(met.outcome?)));
        }
        // Tell the peer of the refusal only now: it then asks why over its settlement, and the outcome must be
        // there.
        if let Some(refusal) = met.refusal {
            refusal.tell();
        }
    }
}

impl Shared {
    /// Takes the listener of the present meeting; `current` has the name of its file. Closes one that is not the
    /// present one.
    fn change_directory(self: &Arc<Self>, current: &mut Option<(SocketName, ShmListener)>) {
        let mut slot = self.meeting.lock();
        let present = slot.as_ref().map(|meeting| &meeting.file.name);
        if current.as_ref().map(|(name, _)| name) == present {
            return;
        }
        let next = slot.as_mut().and_then(|meeting| {
            let listener = meeting.listener.take()?;
            Some((meeting.file.name.clone(), listener))
        });
        drop(slot);
        *current = next.map(|(name, listener)| (name, listener.admitting(Box::new(Door(Arc::clone(self))))));
    }
}

impl Expected {
    /// Removes late peers. Returns them, and the time of the next look.
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
