//! The listening side.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use inet_rdma_fabric::{FabricError, FabricName, ListenOptions, Listener, QueuePair};
use inet_rdma_stream::{Hello, WireError};
use inet_rdma_verbs::cm::{CmId, Event, EventChannel, Kind};
use rustix::event::epoll;

use crate::connection::Connection;
use crate::events::Events;
use crate::queue_pair::VerbsQueuePair;
use crate::refusal::{self, REFUSED_BUSY, REFUSED_HELLO, failed_call};
use crate::trial::{Role, Trial};
use crate::{network, ports, teardown};

/// Listens on all addresses of both families, or on one address.
pub(crate) struct VerbsListener {
    /// The ids that listen, as long as this value lives.
    ids: Vec<CmId>,
    events: Arc<EventChannel>,
    /// An epoll set: `events`, and the completion channels of connections whose self-test goes on.
    watch: OwnedFd,
    options: ListenOptions,
    port: u16,
    /// Peers that were answered and are not connected yet, by the token of their id.
    answered: HashMap<usize, Answered>,
    ready: VecDeque<Result<VerbsQueuePair, FabricError>>,
    /// True: the connection manager has failed, and the user was told.
    is_broken: bool,
    /// True: a listener with a token has met its peer, and refuses every other peer.
    is_taken: bool,
}

struct Answered {
    connection: Connection,
    peer: Hello,
    until: Instant,
    stage: Stage,
}

/// What a peer that was answered has to do next.
enum Stage {
    Confirmation,
    /// The connection is up.
    Trial(Trial),
}

impl VerbsListener {
    pub(crate) fn listen(options: &ListenOptions) -> Result<VerbsListener, FabricError> {
        let events = Arc::new(EventChannel::create().map_err(refusal::no_connection_manager)?);
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(watching)?;
        observe(&watch, events.as_fd())?;
        let (ids, port) = ports::open_range(&events, options)?;
        if options.address.is_some() {
            let running = Events::running()?;
            ids.iter().for_each(|id| running.watch_for_removal(id));
        }
        Ok(VerbsListener {
            ids,
            events,
            watch,
            options: options.clone(),
            port,
            answered: HashMap::new(),
            ready: VecDeque::new(),
            is_broken: false,
            is_taken: false,
        })
    }

    fn handle(&mut self, event: Event) {
        let id = event.id;
        match event.kind {
            Kind::ConnectRequest => self.handle_request(event),
            Kind::Established => {
                if let Some(answered) = self.answered.remove(&id) {
                    self.handle_confirmation(id, answered);
                }
            }
            Kind::ConnectError | Kind::Unreachable | Kind::Rejected | Kind::Disconnected => {
                if let Some(answered) = self.answered.remove(&id) {
                    self.handle_end(answered);
                }
            }
            Kind::DeviceRemoval => {
                if let Some(answered) = self.answered.remove(&id) {
                    teardown::abandon(answered.connection);
                }
                // A listener on an address of the device gets no further requests, even when the device is back.
                self.is_broken |= self.ids.iter().any(|own| own.token() == id);
                self.ready.push_back(Err(FabricError::DeviceRemoved));
            }
            // Events of ids that connect, or without a meaning for a listener.
            Kind::AddressChange
            | Kind::TimewaitExit
            | Kind::AddressResolved
            | Kind::AddressError
            | Kind::RouteResolved
            | Kind::RouteError
            | Kind::Other(_) => {}
        }
    }

    fn handle_request(&mut self, event: Event) {
        let Some(id) = event.request else { return };
        // A connection that cannot be made says why.
        if let Ok(events) = Events::running() {
            events.watch_for_removal(&id);
        }
        let token = id.token();
        if self.is_taken {
            let _ = id.reject(&[REFUSED_BUSY]);
            return;
        }
        if self.answered.len() >= usize::from(self.options.backlog) {
            let _ = id.reject(&[REFUSED_BUSY]);
            self.ready.push_back(Err(FabricError::BacklogFull));
            return;
        }
        let peer = match self.greeted(&event.private_data) {
            Ok(peer) => peer,
            Err(error) => {
                let _ = match &error {
                    // The answer tells a peer of another version this side's version.
                    FabricError::Hello(WireError::Version { .. }) => id.reject(&Hello::default().emit()),
                    _ => id.reject(&[REFUSED_HELLO]),
                };
                self.ready.push_back(Err(error));
                return;
            }
        };
        self.is_taken = self.options.parameters.token != 0;
        match self.answer(id) {
            Ok(connection) => {
                let answered = Answered {
                    connection,
                    peer,
                    until: Instant::now() + self.options.hello_timeout,
                    stage: Stage::Confirmation,
                };
                self.answered.insert(token, answered);
            }
            Err(error) => self.ready.push_back(Err(error)),
        }
    }

    fn handle_confirmation(&mut self, id: usize, mut answered: Answered) {
        let connection = &answered.connection;
        let observed = connection
            .established(answered.peer.receive_slots)
            .and_then(|()| observe(&self.watch, connection.channel.as_fd()));
        match observed {
            Ok(()) => {
                answered.stage = Stage::Trial(Trial::begin(connection, answered.peer, Role::Accepting));
                self.answered.insert(id, answered);
            }
            Err(error) => {
                teardown::abandon(answered.connection);
                self.ready.push_back(Err(error));
            }
        }
    }

    /// The peer has gone before the connection was up.
    fn handle_end(&mut self, answered: Answered) {
        teardown::abandon(answered.connection);
        self.ready.push_back(Err(FabricError::PeerGone));
    }

    /// Goes on with the self-tests.
    fn step_trials(&mut self) {
        let stepped = self.answered.iter_mut().filter_map(|(id, one)| match &mut one.stage {
            Stage::Confirmation => None,
            Stage::Trial(trial) => Some((*id, trial.step(&one.connection))),
        });
        let over: Vec<_> = stepped.filter(|(_, tried)| *tried != Ok(false)).collect();
        for (id, tried) in over {
            if let Some(answered) = self.answered.remove(&id) {
                self.unobserve(&answered);
                // If the test has failed, the queue pair that is dropped sends what is posted, and disconnects.
                let queue_pair = VerbsQueuePair::new(answered.connection, answered.peer);
                self.ready.push_back(tried.map(|_| queue_pair));
            }
        }
    }

    fn unobserve(&self, answered: &Answered) {
        if let Stage::Trial(_) = answered.stage {
            // It was added, and its descriptor is open.
            let _ = epoll::delete(&self.watch, answered.connection.channel.as_fd());
        }
    }

    /// The hello of a peer that is not refused.
    fn greeted(&self, private_data: &[u8]) -> Result<Hello, FabricError> {
        let hello = refusal::parse_hello(private_data)?;
        self.options.parameters.check_token(&hello)?;
        Ok(hello)
    }

    fn answer(&self, id: CmId) -> Result<Connection, FabricError> {
        if let Err(error) = network::set(&id, &self.options.parameters.network) {
            let _ = id.reject(&[REFUSED_HELLO]);
            return Err(error);
        }
        // The kernel rejects the request of an id that is dropped without an answer.
        teardown::start()?;
        let connection = Connection::make(id, &self.options.parameters)?;
        let hello = connection.hello.emit();
        match connection.id().accept(&hello) {
            Ok(()) => Ok(connection),
            Err(failed) => {
                let _ = connection.id().reject(&[REFUSED_HELLO]);
                teardown::abandon(connection);
                Err(failed_call(failed))
            }
        }
    }

    fn give_up_on_the_silent(&mut self) {
        let now = Instant::now();
        let silent = self.answered.iter().filter(|(_, answered)| answered.until <= now);
        let silent: Vec<usize> = silent.map(|(token, _)| *token).collect();
        for token in silent {
            if let Some(mut answered) = self.answered.remove(&token) {
                self.unobserve(&answered);
                let error = match &mut answered.stage {
                    Stage::Confirmation => FabricError::TimedOut,
                    Stage::Trial(trial) => trial.explain_timeout(&answered.connection),
                };
                teardown::abandon(answered.connection);
                self.ready.push_back(Err(error));
            }
        }
    }
}

/// A scheduler may close the port, so the teardown thread destroys the connections that no peer has confirmed.
impl Drop for VerbsListener {
    fn drop(&mut self) {
        let answered = self.answered.drain();
        answered.for_each(|(_, answered)| teardown::abandon(answered.connection));
    }
}

fn watching(errno: rustix::io::Errno) -> FabricError {
    FabricError::system("watching peers that connect", errno)
}

fn observe(watch: &OwnedFd, fd: BorrowedFd<'_>) -> Result<(), FabricError> {
    epoll::add(watch, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN).map_err(watching)
}

impl Listener for VerbsListener {
    fn event_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.answered.values().map(|answered| answered.until).min()
    }

    fn poll_accept(&mut self) -> Option<Result<Box<dyn QueuePair>, FabricError>> {
        self.give_up_on_the_silent();
        while self.ready.is_empty() && !self.is_broken {
            match self.events.next_event() {
                Ok(Some(event)) => self.handle(event),
                Ok(None) => {
                    self.step_trials();
                    if self.ready.is_empty() {
                        return None;
                    }
                }
                Err(failed) => {
                    self.is_broken = true;
                    return Some(Err(failed_call(failed)));
                }
            }
        }
        let next = self.ready.pop_front()?;
        Some(next.map(|queue_pair| Box::new(queue_pair) as Box<dyn QueuePair>))
    }

    fn is_over(&self) -> bool {
        self.is_broken || (self.is_taken && self.answered.is_empty() && self.ready.is_empty())
    }

    fn port(&self) -> u16 {
        self.port
    }

    fn over(&self) -> String {
        FabricName::Verbs.to_string()
    }
}
