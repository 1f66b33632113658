//! The listening side. Nothing here blocks: peers that have not greeted yet wait ([`Callers`]).

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use inet_rdma_fabric::callers::{self, Call, Callers, Listening};
use inet_rdma_fabric::closing::Stray;
use inet_rdma_fabric::{FabricError, FabricName, ListenOptions, Listener, Parameters, QueuePair};
use inet_rdma_stream::{Hello, WireError};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::layout::RING;
use crate::own_name::{find_at, own_name};
use crate::peer::{Process, process_of};
use crate::queue_pair::{OwnSide, PeerSide};
use crate::rendezvous::{self, Greeting, REFUSED_BUSY, REFUSED_GREETING, REFUSED_USER};
use crate::socket_name::SocketName;
use crate::users::Users;

/// Decides which peers get in.
pub trait Admission: Send {
    /// The parameters of this side for the peer of this hello. Err: the peer is refused before its memory is mapped.
    fn admit(&mut self, hello: &Hello) -> Result<Parameters, FabricError>;
}

struct WithToken(Parameters);

impl Admission for WithToken {
    fn admit(&mut self, hello: &Hello) -> Result<Parameters, FabricError> {
        self.0.check_token(hello)?;
        Ok(self.0)
    }
}

/// A peer that has greeted, or has failed to greet.
pub struct Met {
    /// The token of the peer's hello. None: there was no hello.
    pub token: Option<u64>,
    /// The peer's queue pair, or the reason why there is none.
    pub outcome: Result<Box<dyn QueuePair>, FabricError>,
    /// The answer that a refused peer waits for.
    pub refusal: Option<Refusal>,
}

/// A refusal that the peer has not been told yet.
pub struct Refusal {
    socket: Stray,
    /// This side's hello, for a peer of another version.
    hello: Option<Hello>,
}

impl Refusal {
    /// Tells the peer, and closes its connection. Never blocks.
    pub fn tell(self) {
        match self.hello {
            Some(hello) => rendezvous::refuse(self.socket.as_fd(), &hello.emit()),
            None => rendezvous::refuse(self.socket.as_fd(), &[REFUSED_GREETING]),
        }
    }
}

/// Accepts connections of one port, or of one name.
pub struct ShmListener {
    options: ListenOptions,
    admission: Box<dyn Admission>,
    /// True: the listener takes one peer, the first that is admitted.
    is_one_off: bool,
    port: u16,
    callers: Callers<(), Stray>,
    /// The peers that [`Listener::poll_accept`] gives next.
    ready: VecDeque<Met>,
    /// True: the listener has taken its one peer, and refuses every other one.
    is_taken: bool,
    users: Users,
    /// The directory of the listener's socket file. None: the listener has a port of the network namespace.
    through: Option<Arc<Path>>,
}

impl ShmListener {
    /// Listens on the first free port of the options. A single port that another user has: [`FabricError::PortHeld`].
    pub fn listen(options: &ListenOptions) -> Result<ShmListener, FabricError> {
        let socket = rendezvous::socket(SocketFlags::NONBLOCK)?;
        let bound = callers::bind_first_free(&options.ports, |port| {
            match rustix::net::bind(&socket, &rendezvous::address(port)?) {
                Ok(()) => Ok(Some(())),
                Err(Errno::ADDRINUSE) => Ok(None),
                Err(errno) => Err(FabricError::system("binding a port", errno)),
            }
        });
        let ((), port) = match bound {
            Err(FabricError::PortsTaken { first, last }) if first == last => return Err(ShmListener::taken(first)),
            bound => bound?,
        };
        ShmListener::start(Arc::new(socket.into()), port, options, Users::Own, None)
    }

    /// Why nothing can be bound to `port`: who has it.
    fn taken(port: u16) -> FabricError {
        let holder = rendezvous::address(port).and_then(|address| find_at(&address));
        let holder = holder.ok().flatten().unwrap_or(Process::UNKNOWN);
        let user = holder.known_user();
        if user == Some(crate::user()) {
            FabricError::PortsTaken {
                first: port,
                last: port,
            }
        } else {
            FabricError::PortHeld {
                port,
                user,
                pid: holder.known_pid(),
            }
        }
    }

    /// Listens under the name of this process. The name outlives the listener: the next one goes on with it.
    pub fn listen_named(options: &ListenOptions) -> Result<(ShmListener, SocketName), FabricError> {
        let own = own_name()?;
        let listener = ShmListener::start(Arc::clone(&own.listening), 0, options, Users::Own, None)?;
        Ok((listener, own.name.clone()))
    }

    /// Listens on a socket that is bound to `port`, or has a name: of this process, or of a file of the directory
    /// `through`.
    pub(crate) fn start(
        listening: Arc<Listening>,
        port: u16,
        options: &ListenOptions,
        users: Users,
        through: Option<Arc<Path>>,
    ) -> Result<ShmListener, FabricError> {
        rustix::net::listen(&listening, i32::from(options.backlog))
            .map_err(|errno| FabricError::system("listening", errno))?;
        Ok(ShmListener {
            options: options.clone(),
            admission: Box::new(WithToken(options.parameters)),
            is_one_off: options.parameters.token != 0,
            port,
            callers: Callers::of(listening)?,
            ready: VecDeque::new(),
            is_taken: false,
            users,
            through,
        })
    }

    /// Admits peers by another rule, and any number of them: [`Self::next_peer`] returns them.
    pub fn admitting(self, admission: Box<dyn Admission>) -> ShmListener {
        ShmListener {
            admission,
            is_one_off: false,
            ..self
        }
    }

    fn look(&mut self) {
        for call in self.callers.look() {
            if self.is_taken {
                return;
            }
            match call {
                Call::Connected(socket) => {
                    if let Err(error) = self.take_caller(socket) {
                        self.fail(error);
                    }
                }
                Call::Readable(number) => self.hear(number),
                Call::Silent(number) => {
                    if let Some(caller) = self.callers.take(number) {
                        self.finish(caller.socket, None, Err(FabricError::TimedOut));
                    }
                }
                Call::Failed(error) => self.fail(error),
            }
        }
    }

    /// Waits for the greeting of a new peer. Refuses the peer if too many wait, or if its user may not connect.
    fn take_caller(&mut self, socket: Stray) -> Result<(), FabricError> {
        if self.callers.count() + self.ready.len() >= usize::from(self.options.backlog) {
            rendezvous::refuse(socket.as_fd(), &[REFUSED_BUSY]);
            return Ok(());
        }
        if let Err(error) = self.users.check_peer(socket.as_fd()) {
            if self.through.is_some() {
                rendezvous::refuse(socket.as_fd(), &[REFUSED_USER]);
            }
            return Err(error);
        }
        self.callers.add(socket, (), self.options.hello_timeout)
    }

    /// Reads from a caller that has greeted, or hung up.
    fn hear(&mut self, number: u64) {
        let Some(caller) = self.callers.take(number) else {
            return;
        };
        match rendezvous::receive_greeting(caller.socket.as_fd(), self.port) {
            Ok(None) => self.callers.wait_for(caller),
            Ok(Some(greeting)) => {
                let token = greeting.hello.token;
                let answered = self.answer(&caller.socket, greeting);
                self.finish(caller.socket, Some(token), answered);
            }
            Err(error) => self.finish(caller.socket, None, Err(error)),
        }
    }

    fn answer(&mut self, socket: &Stray, greeting: Greeting) -> Result<(OwnSide, PeerSide), FabricError> {
        let parameters = self.admission.admit(&greeting.hello)?;
        self.is_taken = self.is_one_off;
        let peer = PeerSide::map(greeting)?;
        let mut own = OwnSide::create(&parameters)?;
        own.greet(socket.as_fd())?;
        Ok((own, peer))
    }

    fn finish(&mut self, socket: Stray, token: Option<u64>, answered: Result<(OwnSide, PeerSide), FabricError>) {
        self.callers.release(&socket);
        let is_near = answered.is_ok() && process_of(socket.as_fd()).is_ok_and(Process::is_near);
        let refusal = match &answered {
            Ok(_) | Err(FabricError::PeerGone) => None,
            Err(error) => {
                let other_version = matches!(error, FabricError::Hello(WireError::Version { .. }));
                let hello = other_version.then(|| self.options.parameters.hello(RING));
                Some(Refusal { socket, hello })
            }
        };
        let joined = answered.map(|(own, peer)| own.join(peer, self.through.clone(), is_near));
        let outcome = joined.map(|queue_pair| Box::new(queue_pair) as Box<dyn QueuePair>);
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

    /// The next peer. None: no other peer has greeted yet.
    pub fn next_peer(&mut self) -> Option<Met> {
        if self.ready.is_empty() && !self.is_taken {
            self.look();
        }
        self.ready.pop_front()
    }
}

impl Listener for ShmListener {
    fn event_fd(&self) -> BorrowedFd<'_> {
        self.callers.as_fd()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.callers.next_deadline()
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
