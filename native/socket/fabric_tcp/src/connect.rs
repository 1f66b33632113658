//! The connecting side.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use inet_rdma_fabric::deadline::Deadline;
use inet_rdma_fabric::{FabricError, Parameters};
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;

use crate::greeting::{self, Greeting};
use crate::queue_pair::{OwnSide, TcpQueuePair};
use crate::socket::{self, addresses};

/// Connects to `to`; blocks until `timeout` has passed at most.
pub(crate) fn connect(
    from: Option<IpAddr>,
    to: SocketAddr,
    parameters: &Parameters,
    timeout: Duration,
) -> Result<TcpQueuePair, FabricError> {
    let deadline = Deadline::after(timeout);
    let socket = reach(from, to, deadline)?;
    let own = OwnSide::create(parameters)?;
    socket::prepare(socket.as_fd(), &parameters.network)?;
    match greeting::greet(socket.as_fd(), &own.hello) {
        // A peer that has closed may have sent a refusal first: read it.
        Ok(()) | Err(FabricError::PeerGone) => {}
        Err(error) => return Err(error),
    }
    let mut greeting = Greeting::new();
    let peer = loop {
        deadline.wait_readable(socket.as_fd())?;
        if let Some(hello) = greeting.receive_answer(socket.as_fd())? {
            break hello;
        }
    };
    parameters.check_token(&peer)?;
    own.join(socket, peer)
}

fn reach(from: Option<IpAddr>, to: SocketAddr, deadline: Deadline) -> Result<OwnedFd, FabricError> {
    let failed = |errno| refused(to, errno);
    let socket = socket::new(&to.ip()).map_err(failed)?;
    if let Some(from) = from {
        rustix::net::bind(&socket, &SocketAddr::new(from, 0)).map_err(|errno| match errno {
            Errno::ADDRNOTAVAIL | Errno::INVAL | Errno::AFNOSUPPORT => {
                FabricError::NoRoute(format!("a connection to {} cannot begin at {from}: {errno}", to.ip()))
            }
            errno => FabricError::system("binding the own address", errno),
        })?;
    }
    match rustix::net::connect(&socket, &to) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => {
            deadline.wait_writable(socket.as_fd())?;
            let outcome = socket_error(&socket).map_err(|errno| FabricError::system("connecting", errno))?;
            outcome.map_err(failed)?;
        }
        Err(errno) => return Err(failed(errno)),
    }
    let (own, peer) = addresses(socket.as_fd())?;
    if own == peer {
        // No process listens: the kernel chose the wanted port as this socket's own and connected the socket to itself.
        return Err(FabricError::Refused(to.port()));
    }
    Ok(socket)
}

/// The error for a connection that could not be made.
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
        errno => FabricError::system("connecting", errno),
    }
}
