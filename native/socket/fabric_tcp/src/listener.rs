//! The listening side. Nothing here blocks: peers that have not said hello yet wait ([`Callers`]).

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use inet_rdma_fabric::callers::{self, Call, Callers};
use inet_rdma_fabric::{FabricError, FabricName, ListenOptions, Listener, QueuePair};
use inet_rdma_stream::{Hello, WireError};
use rustix::io::Errno;

use crate::greeting::{self, Greeting, REFUSED_BUSY, REFUSED_HELLO};
use crate::queue_pair::{OwnSide, RING, TcpQueuePair};
use crate::socket;

type Outcome = Result<Box<dyn QueuePair>, FabricError>;

pub(crate) struct TcpListener {
    options: ListenOptions,
    port: u16,
    callers: Callers<Greeting>,
    /// Outcomes that [`Listener::poll_accept`] has not returned yet.
    ready: VecDeque<Outcome>,
    /// True: a listener with a token has met its peer, and refuses every other peer.
    is_taken: bool,
}

impl TcpListener {
    pub(crate) fn listen(options: &ListenOptions) -> Result<TcpListener, FabricError> {
        let (socket, port) = callers::bind_first_free(&options.ports, |port| {
            match socket::listening(options.address, port, options.backlog) {
                Ok(socket) => Ok(Some(socket)),
                Err(Errno::ADDRINUSE) => Ok(None),
                Err(errno) => Err(FabricError::system("binding a port", errno)),
            }
        })?;
        Ok(TcpListener {
            options: options.clone(),
            port,
            callers: Callers::of(Arc::new(socket.into()))?,
            ready: VecDeque::new(),
            is_taken: false,
        })
    }

    fn look(&mut self) {
        for call in self.callers.look() {
            if self.is_taken {
                return;
            }
            match call {
                Call::Connected(socket) => self.take_caller(socket),
                Call::Readable(number) => self.hear(number),
                Call::Silent(number) => {
                    if let Some(caller) = self.callers.take(number) {
                        self.refuse(caller.socket, FabricError::TimedOut);
                    }
                }
                Call::Failed(error) => self.fail(error),
            }
        }
    }

    /// Waits for the hello of a new peer. Refuses the peer if too many wait.
    fn take_caller(&mut self, socket: OwnedFd) {
        if self.callers.count() + self.ready.len() >= usize::from(self.options.backlog) {
            return greeting::refuse(socket.as_fd(), &[REFUSED_BUSY]);
        }
        if let Err(error) = self.callers.add(socket, Greeting::new(), self.options.hello_timeout) {
            self.fail(error);
        }
    }

    /// Reads from a caller that has sent a hello, or hung up.
    fn hear(&mut self, number: u64) {
        let Some(mut caller) = self.callers.take(number) else {
            return;
        };
        match caller.progress.receive(caller.socket.as_fd()) {
            Ok(None) => self.callers.wait_for(caller),
            Ok(Some(hello)) => self.answer(caller.socket, hello),
            Err(error) => self.refuse(caller.socket, error),
        }
    }

    /// Answers a hello. Makes memory for the peer only after the hello is checked.
    fn answer(&mut self, socket: OwnedFd, hello: Hello) {
        let parameters = self.options.parameters;
        if let Err(error) = parameters.check_token(&hello) {
            return self.refuse(socket, error);
        }
        self.is_taken = parameters.token != 0;
        let own = socket::prepare(socket.as_fd(), &parameters.network).and_then(|()| OwnSide::create(&parameters));
        match own {
            Ok(own) => {
                // Before this side answers: the peer sends nothing more until then.
                self.callers.release(&socket);
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
                let hello = self.options.parameters.hello(RING);
                greeting::refuse(socket.as_fd(), &Hello { token: 0, ..hello }.emit());
            }
            _ => greeting::refuse(socket.as_fd(), &[REFUSED_HELLO]),
        }
        self.fail(error);
    }

    fn fail(&mut self, error: FabricError) {
        self.ready.push_back(Err(error));
    }
}

impl Listener for TcpListener {
    fn event_fd(&self) -> BorrowedFd<'_> {
        self.callers.as_fd()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.callers.next_deadline()
    }

    fn poll_accept(&mut self) -> Option<Outcome> {
        if self.ready.is_empty() && !self.is_taken {
            self.look();
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
