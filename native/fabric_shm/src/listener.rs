//! The listening side. Nothing here blocks: peers that have not greeted yet wait in an epoll set of the listener's own.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use inet_rdma_fabric::{FabricError, FabricName, ListenOptions, Listener, Parameters, QueuePair};
use inet_rdma_stream::{Hello, WireError};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::mapping::system;
use crate::queue_pair::{OwnSide, PeerSide, hello_of};
use crate::rendezvous::{self, Greeting, REFUSED_BUSY, REFUSED_GREETING};

/// Where free ports are looked for when the caller does not care: the range for that of the IANA.
const EPHEMERAL: std::ops::RangeInclusive<u16> = 49152..=65535;

/// How long to leave callers in the kernel's backlog when the process has no file descriptor to take them with.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// Events looked at in one go.
const EVENTS: usize = 32;

/// The listening socket in the epoll set; peers are numbered from 1.
const LISTENING: u64 = 0;

/// Decides which peers get in.
pub trait Admission: Send {
    /// What this side brings into the connection with the peer of this hello. Err: the peer is refused, and nothing of it is
    /// mapped.
    fn admit(&mut self, hello: &Hello) -> Result<Parameters, FabricError>;
}

/// All peers with the token of these parameters.
struct WithToken(Parameters);

impl Admission for WithToken {
    fn admit(&mut self, hello: &Hello) -> Result<Parameters, FabricError> {
        self.0.check_token(hello)?;
        Ok(self.0)
    }
}

/// A peer that has greeted, or that has failed to.
pub struct Met {
    /// Of its hello; None: there was no hello.
    pub token: Option<u64>,
    /// Its queue pair, or why there is none.
    pub outcome: Result<Box<dyn QueuePair>, FabricError>,
    /// The peer waits for an answer.
    pub refusal: Option<Refusal>,
}

/// A peer that is to be told that it is refused.
pub struct Refusal {
    socket: OwnedFd,
    /// It speaks another version: this side's hello names the version here.
    hello: Option<Hello>,
}

impl Refusal {
    /// Tells it, and closes its connection. Never blocks.
    pub fn tell(self) {
        match self.hello {
            Some(hello) => rendezvous::refuse_version(self.socket.as_fd(), &hello),
            None => rendezvous::refuse(self.socket.as_fd(), REFUSED_GREETING),
        }
    }
}

/// Accepts connections of one port.
pub struct ShmListener {
    options: ListenOptions,
    admission: Box<dyn Admission>,
    /// The first peer that is admitted is the only one.
    is_one_off: bool,
    port: u16,
    socket: OwnedFd,
    epoll: OwnedFd,
    /// Peers that have connected and not greeted yet, by their number in the epoll set.
    pending: HashMap<u64, Pending>,
    next_number: u64,
    /// The peers that [`Listener::poll_accept`] gives next.
    ready: VecDeque<Met>,
    /// Set while the listening socket is out of the epoll set.
    paused_until: Option<Instant>,
    /// A one-off listener has met the peer with its token: every other peer is refused.
    is_taken: bool,
}

struct Pending {
    socket: OwnedFd,
    deadline: Instant,
}

impl ShmListener {
    /// Listens on the first free port of the options.
    pub fn listen(options: &ListenOptions) -> Result<ShmListener, FabricError> {
        let (socket, port) = bind(&options.ports)?;
        rustix::net::listen(&socket, i32::from(options.backlog)).map_err(|errno| system("listening", errno))?;
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(|errno| system("creating an epoll set", errno))?;
        let listener = ShmListener {
            options: options.clone(),
            admission: Box::new(WithToken(options.parameters)),
            is_one_off: options.parameters.token != 0,
            port,
            socket,
            epoll,
            pending: HashMap::new(),
            next_number: LISTENING + 1,
            ready: VecDeque::new(),
            paused_until: None,
            is_taken: false,
        };
        listener.watch(listener.socket.as_fd(), LISTENING)?;
        Ok(listener)
    }

    /// With another rule, and for any number of peers: [`Self::next_peer`] gives them.
    pub fn admitting(self, admission: Box<dyn Admission>) -> ShmListener {
        ShmListener {
            admission,
            is_one_off: false,
            ..self
        }
    }

    fn watch(&self, socket: BorrowedFd<'_>, number: u64) -> Result<(), FabricError> {
        epoll::add(&self.epoll, socket, EventData::new_u64(number), EventFlags::IN)
            .map_err(|errno| system("watching a socket", errno))
    }

    /// Handles the events of the epoll set.
    fn look(&mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        if let Err(errno) = epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&ZERO)) {
            if errno != Errno::INTR {
                self.fail(system("waiting for peers", errno));
            }
            return;
        }
        for event in events {
            if self.is_taken {
                return;
            }
            match event.data.u64() {
                LISTENING => self.take_callers(),
                number => self.hear(number),
            }
        }
    }

    /// Moves callers from the kernel's backlog into the epoll set, or refuses them when too many wait.
    fn take_callers(&mut self) {
        for _ in 0..EVENTS {
            match rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => {
                    if let Err(error) = self.take_caller(socket) {
                        self.fail(error);
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => return self.pause(errno),
            }
        }
    }

    fn take_caller(&mut self, socket: OwnedFd) -> Result<(), FabricError> {
        if self.pending.len() + self.ready.len() >= usize::from(self.options.backlog) {
            rendezvous::refuse(socket.as_fd(), REFUSED_BUSY);
            return Ok(());
        }
        rendezvous::check_user(socket.as_fd())?;
        let number = self.next_number;
        self.watch(socket.as_fd(), number)?;
        self.next_number += 1;
        let deadline = Instant::now() + self.options.hello_timeout;
        self.pending.insert(number, Pending { socket, deadline });
        Ok(())
    }

    /// The process has no descriptor left, or the system no memory. The listening socket stays readable, so without a
    /// pause the thread that waits on the epoll set would spin.
    fn pause(&mut self, errno: Errno) {
        self.fail(system("accepting a connection", errno));
        if epoll::delete(&self.epoll, &self.socket).is_ok() {
            self.paused_until = Some(Instant::now() + EXHAUSTED_PAUSE);
        }
    }

    fn end_pause(&mut self) {
        if self.paused_until.is_some_and(|until| until <= Instant::now()) {
            self.paused_until = match self.watch(self.socket.as_fd(), LISTENING) {
                Ok(()) => None,
                Err(_) => Some(Instant::now() + EXHAUSTED_PAUSE),
            };
        }
    }

    /// A pending peer greets, or hangs up.
    fn hear(&mut self, number: u64) {
        let Some(pending) = self.pending.remove(&number) else {
            return;
        };
        match rendezvous::receive_greeting(pending.socket.as_fd(), self.port) {
            Ok(None) => {
                self.pending.insert(number, pending);
            }
            Ok(Some(greeting)) => {
                let token = greeting.hello.token;
                let answered = self.answer(&pending.socket, greeting);
                self.finish(pending.socket, Some(token), answered);
            }
            Err(error) => self.finish(pending.socket, None, Err(error)),
        }
    }

    fn answer(&mut self, socket: &OwnedFd, greeting: Greeting) -> Result<(OwnSide, PeerSide), FabricError> {
        let parameters = self.admission.admit(&greeting.hello)?;
        self.is_taken = self.is_one_off;
        let peer = PeerSide::map(greeting)?;
        let own = OwnSide::create(&parameters)?;
        own.greet(socket.as_fd())?;
        Ok((own, peer))
    }

    fn finish(&mut self, socket: OwnedFd, token: Option<u64>, answered: Result<(OwnSide, PeerSide), FabricError>) {
        let _ = epoll::delete(&self.epoll, &socket);
        let (outcome, refusal) = match answered {
            Ok((own, peer)) => (Ok(Box::new(own.join(socket, peer)) as Box<dyn QueuePair>), None),
            Err(FabricError::PeerGone) => (Err(FabricError::PeerGone), None),
            Err(error) => {
                let other_version = matches!(error, FabricError::Hello(WireError::Version { .. }));
                let hello = other_version.then(|| hello_of(&self.options.parameters));
                (Err(error), Some(Refusal { socket, hello }))
            }
        };
        self.ready.push_back(Met {
            token,
            outcome,
            refusal,
        });
    }

    fn fail(&mut self, error: FabricError) {
        self.ready.push_back(Met {
            token: None,
            outcome: Err(error),
            refusal: None,
        });
    }

    /// The next peer; None: nothing more for now.
    pub fn next_peer(&mut self) -> Option<Met> {
        if self.ready.is_empty() && !self.is_taken {
            self.end_pause();
            self.look();
            self.expire();
        }
        self.ready.pop_front()
    }

    /// Gives up on peers that have been silent for too long.
    fn expire(&mut self) {
        if self.is_taken {
            return;
        }
        let now = Instant::now();
        let silent: Vec<u64> = self
            .pending
            .iter()
            .filter(|(_, pending)| pending.deadline <= now)
            .map(|(number, _)| *number)
            .collect();
        for number in silent {
            if let Some(pending) = self.pending.remove(&number) {
                self.finish(pending.socket, None, Err(FabricError::TimedOut));
            }
        }
    }
}

const ZERO: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };

impl Listener for ShmListener {
    fn event_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.pending
            .values()
            .map(|pending| pending.deadline)
            .chain(self.paused_until)
            .min()
    }

    fn poll_accept(&mut self) -> Option<Result<Box<dyn QueuePair>, FabricError>> {
        let met = self.next_peer()?;
        if let Some(refusal) = met.refusal {
            refusal.tell();
        }
        Some(met.outcome)
    }

    fn is_over(&self) -> bool {
        self.is_taken && self.ready.is_empty()
    }

    fn port(&self) -> u16 {
        self.port
    }

    fn over(&self) -> String {
        FabricName::Shm.to_string()
    }
}

/// A socket bound to the first free port of the range.
fn bind(ports: &std::ops::RangeInclusive<u16>) -> Result<(OwnedFd, u16), FabricError> {
    let any = *ports.start() == 0 && *ports.end() == 0;
    let (first, last) = if any {
        EPHEMERAL.into_inner()
    } else {
        ports.clone().into_inner()
    };
    let count = u32::from(last.saturating_sub(first)) + 1;
    // Starting anywhere makes it unlikely that a port is used again soon, and that many nodes search long.
    let start = if any {
        (RandomState::new().hash_one(first) % u64::from(count)) as u32
    } else {
        0
    };
    let socket = rendezvous::socket(SocketFlags::NONBLOCK)?;
    for step in 0..count {
        let port = first + ((start + step) % count) as u16;
        match rustix::net::bind(&socket, &rendezvous::address(port)?) {
            Ok(()) => return Ok((socket, port)),
            Err(Errno::ADDRINUSE) => {}
            Err(errno) => return Err(system("binding a port", errno)),
        }
    }
    Err(FabricError::PortsTaken { first, last })
}
