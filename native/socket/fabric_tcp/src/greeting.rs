//! How two processes meet: over a TCP connection each side sends one hello, the connecting side first.
//!
//! A listener refuses a peer by an answer of one byte, which gives the reason. A peer of another version gets the
//! listener's hello instead, so that both sides can name both versions. Both answers end the connection.

use std::os::fd::BorrowedFd;

use inet_rdma_fabric::{FabricError, Rejection};
use inet_rdma_stream::{HELLO_BYTES, Hello, WireError};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};

use crate::socket::lost;

/// The refusing answer of a listener: all places are taken.
pub(crate) const REFUSED_BUSY: u8 = 1;
/// The refusing answer of a listener: it refused the hello, or could not answer; its log says why.
pub(crate) const REFUSED_HELLO: u8 = 2;

pub(crate) struct Greeting {
    bytes: [u8; HELLO_BYTES],
    got: usize,
}

impl Greeting {
    pub(crate) fn new() -> Greeting {
        Greeting {
            bytes: [0; HELLO_BYTES],
            got: 0,
        }
    }

    /// Receives the bytes of the hello that have come, and no byte after the hello. None: the hello is not complete.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>) -> Result<Option<Hello>, FabricError> {
        loop {
            match rustix::net::recv(socket, &mut self.bytes[self.got..], RecvFlags::DONTWAIT) {
                Ok((0, _)) if self.got == 0 => return Err(FabricError::PeerGone),
                Ok((0, _)) => {
                    return Err(Hello::parse(&self.bytes[..self.got])
                        .err()
                        .map_or(FabricError::PeerGone, Into::into));
                }
                Ok((bytes, _)) => self.got += bytes,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(lost("receiving the hello of the peer", errno)),
            }
            match Hello::parse(&self.bytes[..self.got]) {
                Ok(hello) => return Ok(Some(hello)),
                // Magic and version are checked before the rest has come.
                Err(WireError::Length { got, want }) if got < want => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// As [`Self::receive`], on the connecting side. Err: also a refusal of the listener.
    pub(crate) fn receive_answer(&mut self, socket: BorrowedFd<'_>) -> Result<Option<Hello>, FabricError> {
        let received = self.receive(socket);
        let refused = match (self.got, self.bytes[0]) {
            (1, REFUSED_BUSY) => Rejection::Busy,
            (1, REFUSED_HELLO) => Rejection::Hello,
            _ => return received,
        };
        Err(FabricError::Rejected(refused))
    }
}

/// Sends a hello or a refusal. Never blocks: these are the first bytes into an empty socket.
fn say(socket: BorrowedFd<'_>, bytes: &[u8]) -> Result<(), FabricError> {
    match rustix::net::send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
        Ok(sent) if sent == bytes.len() => Ok(()),
        Ok(_) => Err(lost("greeting the peer", Errno::NOBUFS)),
        Err(errno) => Err(lost("greeting the peer", errno)),
    }
}

pub(crate) fn greet(socket: BorrowedFd<'_>, hello: &Hello) -> Result<(), FabricError> {
    say(socket, &hello.emit())
}

/// Refuses a peer: with a reason, or this side's hello. Ignores failures: a peer that is gone needs no answer.
pub(crate) fn refuse(socket: BorrowedFd<'_>, answer: &[u8]) {
    let _gone = say(socket, answer);
    let _gone = rustix::net::shutdown(socket, Shutdown::Write);
    // To close a socket with unread bytes resets the connection, and the peer may lose the answer: read them first.
    let _nothing = rustix::net::recv(socket, &mut [0; 1024], RecvFlags::DONTWAIT);
}
