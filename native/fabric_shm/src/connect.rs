//! The connecting side.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use inet_rdma_fabric::deadline::Deadline;
use inet_rdma_fabric::{FabricError, Parameters};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::queue_pair::{OwnSide, PeerSide, ShmQueuePair};
use crate::rendezvous;

/// Connects to `port`; blocks until `timeout` has passed at most.
pub(crate) fn connect(port: u16, parameters: &Parameters, timeout: Duration) -> Result<ShmQueuePair, FabricError> {
    let deadline = Deadline::after(timeout);
    let socket = reach(port, deadline)?;
    rendezvous::check_user(socket.as_fd())?;
    let own = OwnSide::create(parameters)?;
    match own.greet(socket.as_fd()) {
        // A refusal may be there to be read.
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
    Ok(own.join(socket, PeerSide::map(greeting)?))
}

/// A socket connected to the listener of `port`.
fn reach(port: u16, deadline: Deadline) -> Result<OwnedFd, FabricError> {
    let address = rendezvous::address(port)?;
    let socket = rendezvous::socket(SocketFlags::empty())?;
    loop {
        // The kernel lets a connect wait that long for a place in a full backlog.
        let left = deadline.left()?.map(|left| left.max(Duration::from_millis(1)));
        set_socket_timeout(&socket, Timeout::Send, left)
            .map_err(|errno| FabricError::system("setting a timeout", errno))?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            Err(Errno::CONNREFUSED) => return Err(FabricError::Refused(port)),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(FabricError::system("connecting", errno)),
        }
    }
}
