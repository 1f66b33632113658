//! The connecting side.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use inet_rdma_fabric::{FabricError, Parameters};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;

use crate::greeting::{self, Greeting};
use crate::queue_pair::{OwnSide, TcpQueuePair};
use crate::socket::{self, addresses, system};

/// Connects to `to`; blocks until `timeout` has passed at most.
pub(crate) fn connect(
    from: Option<IpAddr>,
    to: SocketAddr,
    parameters: &Parameters,
    timeout: Duration,
) -> Result<TcpQueuePair, FabricError> {
    let deadline = Deadline(Instant::now().checked_add(timeout));
    let socket = reach(from, to, deadline)?;
    let own = OwnSide::create(parameters)?;
    socket::prepare(socket.as_fd(), &parameters.network)?;
    match greeting::greet(socket.as_fd(), &own.hello) {
        // A refusal may be there to be read.
        Ok(()) | Err(FabricError::PeerGone) => {}
        Err(error) => return Err(error),
    }
    let mut greeting = Greeting::new();
    let peer = loop {
        wait(socket.as_fd(), PollFlags::IN, deadline)?;
        if let Some(hello) = greeting.receive_answer(socket.as_fd())? {
            break hello;
        }
    };
    parameters.check_token(&peer)?;
    own.join(socket, peer)
}

/// When to give up; None: never.
#[derive(Clone, Copy)]
struct Deadline(Option<Instant>);

impl Deadline {
    /// What is left; Err when that is nothing.
    fn left(self) -> Result<Option<Duration>, FabricError> {
        match self.0.map(|at| at.saturating_duration_since(Instant::now())) {
            Some(Duration::ZERO) => Err(FabricError::TimedOut),
            left => Ok(left),
        }
    }
}

fn reach(from: Option<IpAddr>, to: SocketAddr, deadline: Deadline) -> Result<OwnedFd, FabricError> {
    let failed = |errno| refused(to, errno);
    let socket = socket::new(&to.ip()).map_err(failed)?;
    if let Some(from) = from {
        rustix::net::bind(&socket, &SocketAddr::new(from, 0)).map_err(|errno| match errno {
            Errno::ADDRNOTAVAIL | Errno::INVAL | Errno::AFNOSUPPORT => {
                FabricError::NoRoute(format!("a connection to {} cannot begin at {from}: {errno}", to.ip()))
            }
            errno => system("binding the own address", errno),
        })?;
    }
    match rustix::net::connect(&socket, &to) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => {
            wait(socket.as_fd(), PollFlags::OUT, deadline)?;
            let outcome = socket_error(&socket).map_err(|errno| system("connecting", errno))?;
            outcome.map_err(failed)?;
        }
        Err(errno) => return Err(failed(errno)),
    }
    let (own, peer) = addresses(socket.as_fd())?;
    match own == peer {
        // The kernel chose the port that no process listens on as the own one, and so connected the socket to itself.
        true => Err(FabricError::Refused(to.port())),
        false => Ok(socket),
    }
}

/// Why no connection came about.
fn refused(to: SocketAddr, errno: Errno) -> FabricError {
    match errno {
        Errno::CONNREFUSED => FabricError::Refused(to.port()),
        Errno::TIMEDOUT => FabricError::TimedOut,
        Errno::NETUNREACH
        | Errno::HOSTUNREACH
        | Errno::NETDOWN
        | Errno::HOSTDOWN
        | Errno::ADDRNOTAVAIL
        | Errno::AFNOSUPPORT
        | Errno::ACCESS
        | Errno::PERM
        | Errno::INVAL => FabricError::NoRoute(format!("no TCP connection leads to {}: {errno}", to.ip())),
        errno => system("connecting", errno),
    }
}

fn wait(socket: BorrowedFd<'_>, what: PollFlags, deadline: Deadline) -> Result<(), FabricError> {
    loop {
        let left = deadline.left()?.and_then(|left| Timespec::try_from(left).ok());
        match rustix::event::poll(&mut [PollFd::from_borrowed_fd(socket, what)], left.as_ref()) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(system("waiting for the peer", errno)),
        }
    }
}
