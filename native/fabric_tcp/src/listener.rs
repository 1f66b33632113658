//! The listening side. Nothing here blocks: peers that have not said hello yet wait in an epoll set of the listener's own.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use inet_rdma_fabric::{FabricError, FabricName, ListenOptions, Listener, QueuePair};
use inet_rdma_stream::{Hello, WireError};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::greeting::{self, Greeting, Refusal};
use crate::queue_pair::{OwnSide, TcpQueuePair, hello_of};
use crate::socket::{self, system};

/// Where free ports are looked for when the caller does not care: the range for that of the IANA.
const EPHEMERAL: RangeInclusive<u16> = 49152..=65535;

/// How long to leave callers in the kernel's backlog when the process has no file descriptor to take them with.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// Events looked at in one go.
const EVENTS: usize = 32;

/// The listening socket in the epoll set; peers are numbered from 1.
const LISTENING: u64 = 0;

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

type Outcome = Result<Box<dyn QueuePair>, FabricError>;

/// Accepts connections of one port.
pub(crate) struct TcpListener {
    options: ListenOptions,
    port: u16,
    socket: OwnedFd,
    epoll: OwnedFd,
    /// Peers that have connected and not said hello yet, by their number in the epoll set.
    pending: HashMap<u64, Pending>,
    next_number: u64,
    /// What [`Listener::poll_accept`] gives next.
    ready: VecDeque<Outcome>,
    /// Set while the listening socket is out of the epoll set.
    paused_until: Option<Instant>,
    /// A one-off listener has met the peer with its token: every other peer is refused.
    is_taken: bool,
}

struct Pending {
    socket: OwnedFd,
    greeting: Greeting,
    deadline: Instant,
}

impl TcpListener {
    /// Listens on the first free port of the options.
    pub(crate) fn listen(options: &ListenOptions) -> Result<TcpListener, FabricError> {
        let (socket, port) = bind(options)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(|errno| system("creating an epoll set", errno))?;
        let listener = TcpListener {
            options: options.clone(),
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

    fn watch(&self, socket: BorrowedFd<'_>, number: u64) -> Result<(), FabricError> {
        epoll::add(&self.epoll, socket, EventData::new_u64(number), EventFlags::IN)
            .map_err(|errno| system("watching a socket", errno))
    }

    /// Handles the events of the epoll set.
    fn look(&mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        if let Err(errno) = epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&NOW)) {
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
                Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => return self.pause(errno),
                // The others are of the caller's connection, which has ended (accept(2)).
                Err(_) => {}
            }
        }
    }

    fn take_caller(&mut self, socket: OwnedFd) -> Result<(), FabricError> {
        if self.pending.len() + self.ready.len() >= usize::from(self.options.backlog) {
            greeting::refuse(socket.as_fd(), Refusal::Busy);
            return Ok(());
        }
        let number = self.next_number;
        self.watch(socket.as_fd(), number)?;
        self.next_number += 1;
        let pending = Pending {
            socket,
            greeting: Greeting::new(),
            deadline: Instant::now() + self.options.hello_timeout,
        };
        self.pending.insert(number, pending);
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

    /// A pending peer says hello, or hangs up.
    fn hear(&mut self, number: u64) {
        let Some(mut pending) = self.pending.remove(&number) else {
            return;
        };
        match pending.greeting.receive(pending.socket.as_fd()) {
            Ok(None) => {
                self.pending.insert(number, pending);
            }
            Ok(Some(hello)) => self.answer(pending.socket, hello),
            Err(error) => self.refuse(pending.socket, error),
        }
    }

    /// Nothing is made for a peer before its hello has been checked.
    fn answer(&mut self, socket: OwnedFd, hello: Hello) {
        let parameters = self.options.parameters;
        if let Err(error) = parameters.check_token(&hello) {
            return self.refuse(socket, error);
        }
        self.is_taken = parameters.token != 0;
        let own = socket::prepare(socket.as_fd(), &parameters.network).and_then(|()| OwnSide::create(&parameters));
        match own {
            Ok(own) => {
                // Before the peer can send more than its hello.
                let _ = epoll::delete(&self.epoll, &socket);
                let joined = self.join(own, socket, hello);
                self.ready
                    .push_back(joined.map(|joined| Box::new(joined) as Box<dyn QueuePair>));
            }
            Err(error) => self.refuse(socket, error),
        }
    }

    fn join(&self, own: OwnSide, socket: OwnedFd, peer: Hello) -> Result<TcpQueuePair, FabricError> {
        greeting::greet(socket.as_fd(), &own.hello)?;
        own.join(socket, peer)
    }

    fn refuse(&mut self, socket: OwnedFd, error: FabricError) {
        match &error {
            FabricError::PeerGone => {}
            FabricError::Hello(WireError::Version { .. }) => {
                let hello = hello_of(&self.options.parameters);
                greeting::refuse(socket.as_fd(), Refusal::Version(Hello { token: 0, ..hello }));
            }
            _ => greeting::refuse(socket.as_fd(), Refusal::Hello),
        }
        self.fail(error);
    }

    fn fail(&mut self, error: FabricError) {
        self.ready.push_back(Err(error));
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
                self.refuse(pending.socket, FabricError::TimedOut);
            }
        }
    }
}

impl Listener for TcpListener {
    fn event_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn next_deadline(&self) -> Option<Instant> {
        let pending = self.pending.values().map(|pending| pending.deadline);
        pending.chain(self.paused_until).min()
    }

    fn poll_accept(&mut self) -> Option<Outcome> {
        if self.ready.is_empty() && !self.is_taken {
            self.end_pause();
            self.look();
            self.expire();
        }
        self.ready.pop_front()
    }

    fn is_over(&self) -> bool {
        self.is_taken && self.ready.is_empty()
    }

    fn port(&self) -> u16 {
        self.port
    }

    fn over(&self) -> String {
        FabricName::Tcp.to_string()
    }
}

/// A socket that listens on the first free port of the range.
fn bind(options: &ListenOptions) -> Result<(OwnedFd, u16), FabricError> {
    let any = *options.ports.start() == 0 && *options.ports.end() == 0;
    let (first, last) = match any {
        true => EPHEMERAL.into_inner(),
        false => options.ports.clone().into_inner(),
    };
    let count = u32::from(last.saturating_sub(first)) + 1;
    // Starting anywhere makes it unlikely that a port is used again soon, and that many nodes search long.
    let start = match any {
        true => (RandomState::new().hash_one(first) % u64::from(count)) as u32,
        false => 0,
    };
    for step in 0..count {
        let port = first + ((start + step) % count) as u16;
        match socket::listening(options.address, port, options.backlog) {
            Ok(socket) => return Ok((socket, port)),
            Err(Errno::ADDRINUSE) => {}
            Err(errno) => return Err(system("binding a port", errno)),
        }
    }
    Err(FabricError::PortsTaken { first, last })
}
