//! The connecting side.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use inet_rdma_fabric::closing::Stray;
use inet_rdma_fabric::deadline::Deadline;
use inet_rdma_fabric::{FabricError, Parameters};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{SocketAddrUnix, SocketFlags};

use crate::peer::process_of;
use crate::queue_pair::{OwnSide, PeerSide, ShmQueuePair};
use crate::rendezvous;
use crate::users::Users;

/// Connects to an address in the abstract namespace; blocks until `timeout` has passed at most. `port`: named in the
/// error if no process listens.
pub(crate) fn connect(
    address: &SocketAddrUnix,
    port: u16,
    parameters: &Parameters,
    timeout: Duration,
) -> Result<ShmQueuePair, FabricError> {
    let deadline = Deadline::after(timeout);
    let socket = reach(address, deadline, |errno| {
        (errno == Errno::CONNREFUSED).then_some(FabricError::Refused(port))
    })?;
    Users::Own.check_peer(socket.as_fd())?;
    greet(socket, port, parameters, deadline, None)
}

/// Exchanges greetings with a listener whose user was checked. `port`: named in the error if the listener refuses.
/// `through`: the directory of the listener's socket file.
pub(crate) fn greet(
    socket: Stray,
    port: u16,
    parameters: &Parameters,
    deadline: Deadline,
    through: Option<Arc<Path>>,
) -> Result<ShmQueuePair, FabricError> {
    let mut own = OwnSide::create(parameters)?;
    match own.greet(socket.as_fd()) {
        // A peer that has closed may have sent a refusal first: read it.
        Ok(()) | Err(FabricError::PeerGone) => {}
        Err(error) => return Err(error),
    }
    let greeting = loop {
        deadline.wait_readable(socket.as_fd())?;
        if let Some(greeting) = rendezvous::receive_greeting(socket.as_fd(), port)? {
            break greeting;
        }
    };
    parameters.check_token(&greeting.hello)?;
    let is_near = process_of(socket.as_fd())?.is_near();
    Ok(own.join(PeerSide::map(greeting)?, through, is_near))
}

/// Connects a socket to a listener. `refusal` gives the error for an errno; None: a plain system error.
pub(crate) fn reach(
    address: &SocketAddrUnix,
    deadline: Deadline,
    refusal: impl Fn(Errno) -> Option<FabricError>,
) -> Result<Stray, FabricError> {
    let socket = Stray::from(rendezvous::socket(SocketFlags::empty())?);
    loop {
        // By this the kernel bounds how long a connect waits for a place in a full backlog.
        let left = deadline.left()?.max(Duration::from_millis(1));
        set_socket_timeout(&socket, Timeout::Send, Some(left))
            .map_err(|errno| FabricError::system("setting a timeout", errno))?;
        match rustix::net::connect(&socket, address) {
            Ok(()) => return Ok(socket),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(refusal(errno).unwrap_or_else(|| FabricError::system("connecting", errno))),
        }
    }
}
