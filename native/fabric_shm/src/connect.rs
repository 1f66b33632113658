//! The connecting side.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use inet_rdma_fabric::{FabricError, Parameters};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::mapping::system;
use crate::queue_pair::{OwnSide, PeerSide, ShmQueuePair};
use crate::rendezvous;

/// Connects to `port`; blocks until `timeout` has passed at most.
pub(crate) fn connect(port: u16, parameters: &Parameters, timeout: Duration) -> Result<ShmQueuePair, FabricError> {
    let deadline = Deadline(Instant::now().checked_add(timeout));
    let socket = reach(port, deadline)?;
    rendezvous::check_user(socket.as_fd())?;
    let own = OwnSide::create(parameters)?;
    match own.greet(socket.as_fd()) {
        // A refusal may be there to be read.
        Ok(()) | Err(FabricError::PeerGone) => {}
        Err(error) => return Err(error),
    }
    let greeting = loop {
        wait_readable(socket.as_fd(), deadline)?;
        if let Some(greeting) = rendezvous::receive_greeting(socket.as_fd(), port)? {
            break greeting;
        }
    };
    parameters.check_token(&greeting.hello)?;
    Ok(own.join(socket, PeerSide::map(greeting)?))
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

/// A socket connected to the listener of `port`.
fn reach(port: u16, deadline: Deadline) -> Result<OwnedFd, FabricError> {
    let address = rendezvous::address(port)?;
    let socket = rendezvous::socket(SocketFlags::empty())?;
    loop {
        // The kernel lets a connect wait that long for a place in a full backlog.
        let left = deadline.left()?.map(|left| left.max(Duration::from_millis(1)));
        set_socket_timeout(&socket, Timeout::Send, left).map_err(|errno| system("setting a timeout", errno))?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            Err(Errno::CONNREFUSED) => return Err(FabricError::Refused(port)),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(system("connecting", errno)),
        }
    }
}

fn wait_readable(socket: BorrowedFd<'_>, deadline: Deadline) -> Result<(), FabricError> {
    loop {
        let left = deadline.left()?.and_then(|left| Timespec::try_from(left).ok());
        match rustix::event::poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)], left.as_ref()) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(system("waiting for the greeting of the peer", errno)),
        }
    }
}
