//! TCP as a path of a session: a socket that does not block, read and written in as few system calls as possible.
//!
//! One `sendmsg` takes all that the session has for the path, up to `SLICES` slices. One `recv` brings many small packets;
//! the rest of a large one goes straight into its memory. Both do a bounded amount of work for each call.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use inet_rdma_session::{Session, Sink, Violation};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrAny};
use smallvec::SmallVec;

/// Slices of one `sendmsg`. Linux takes 1,024; more than a few dozen make a message no cheaper.
const SLICES: usize = 64;

/// Bytes of one `recv` of small packets. The buffer is one for each thread, not one for each link.
const RECEIVE_BYTES: usize = 128 * 1024;

/// A call of [`TcpPath::receive`] takes no more from the socket once it has taken this much: other ports have their turn.
const TURN_BYTES: usize = 256 * 1024;

thread_local! {
    /// Allocated with the first read on a thread.
    static ARRIVED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The socket can be used no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The peer has closed it, or its host has on behalf of the process.
    #[error("the peer closed the TCP connection")]
    Eof,
    /// The kernel gives this error.
    #[error("the TCP connection failed: {0}")]
    Error(Errno),
}

/// Why no more can be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReceiveError {
    /// The path ends; the session may go on over another one.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The session ends.
    #[error(transparent)]
    Violation(#[from] Violation),
}

/// How far a transmission came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Transmitted {
    /// All that the session has.
    All,
    /// The socket takes no more: wait until it is writable.
    Blocked,
}

/// False for a socket that is not connected any more.
fn joins_one_host(socket: &OwnedFd) -> bool {
    let own = rustix::net::getsockname(socket).ok();
    let peer = rustix::net::getpeername(socket).ok().flatten();
    let address = |any: SocketAddrAny| SocketAddr::try_from(any).ok();
    let (own, peer) = (own.and_then(address), peer.and_then(address));
    own.zip(peer).is_some_and(|(own, peer)| own.ip() == peer.ip())
}

/// A TCP connection that carries a session, or stands by.
#[derive(Debug)]
pub struct TcpPath {
    socket: Arc<OwnedFd>,
    is_local: bool,
}

impl TcpPath {
    /// A path over the connection of this descriptor, by a descriptor of its own: the caller may close its own. The socket must
    /// not block, as sockets of the VM do not.
    pub fn adopt(socket: BorrowedFd<'_>) -> std::io::Result<TcpPath> {
        let socket = rustix::io::fcntl_dupfd_cloexec(socket, 0)?;
        Ok(TcpPath {
            is_local: joins_one_host(&socket),
            socket: Arc::new(socket),
        })
    }

    /// Whether both ends have one address: the peer is on this host.
    pub fn is_local(&self) -> bool {
        self.is_local
    }

    /// The socket, for a party that waits for it to be readable or writable and may hold on to it a little longer.
    pub fn socket(&self) -> &Arc<OwnedFd> {
        &self.socket
    }

    /// Writes what the session has for TCP.
    pub fn transmit<H: AsRef<[u8]>, L: AsMut<[u8]>>(&self, session: &mut Session<H, L>) -> Result<Transmitted, Lost> {
        while session.poll_transmit() {
            let mut slices: SmallVec<[IoSlice<'_>; SLICES]> = SmallVec::new();
            session.transmission(|slice| {
                slices.push(IoSlice::new(slice));
                slices.len() < SLICES
            });
            match self.send(&slices) {
                Ok(sent) => {
                    drop(slices);
                    session.handle_transmitted(sent);
                }
                Err(Errno::AGAIN) => return Ok(Transmitted::Blocked),
                Err(Errno::INTR) => {}
                Err(error) => return Err(Lost::Error(error)),
            }
        }
        Ok(Transmitted::All)
    }

    /// One slice needs no message header.
    fn send(&self, slices: &[IoSlice<'_>]) -> rustix::io::Result<usize> {
        match slices {
            [one] => rustix::net::send(&self.socket, one, SendFlags::NOSIGNAL),
            _ => rustix::net::sendmsg(
                &self.socket,
                slices,
                &mut SendAncillaryBuffer::default(),
                SendFlags::NOSIGNAL,
            ),
        }
    }

    /// Gives the session what has arrived, up to about `TURN_BYTES`.
    pub fn receive<H, L, S>(&self, session: &mut Session<H, L>, sink: &mut S) -> Result<(), ReceiveError>
    where
        H: AsRef<[u8]>,
        L: AsMut<[u8]>,
        S: Sink<Large = L>,
    {
        let mut taken = 0;
        while taken < TURN_BYTES {
            let (bytes, wanted) = match session.direct() {
                Some(memory) => {
                    let wanted = memory.len();
                    let bytes = self.recv(memory)?;
                    if let Some(bytes) = bytes {
                        session.handle_direct(bytes, sink);
                    }
                    (bytes, wanted)
                }
                None => ARRIVED.with_borrow_mut(|arrived| {
                    arrived.resize(RECEIVE_BYTES, 0);
                    let bytes = self.recv(arrived)?;
                    if let Some(bytes) = bytes {
                        session.handle_input(&arrived[..bytes], sink)?;
                    }
                    Ok::<_, ReceiveError>((bytes, RECEIVE_BYTES))
                })?,
            };
            match bytes {
                Some(bytes) if bytes == wanted => taken += bytes,
                // The socket is empty, in all likelihood: the next arrival makes it readable.
                _ => break,
            }
        }
        Ok(())
    }

    /// None: nothing is there.
    fn recv(&self, memory: &mut [u8]) -> Result<Option<usize>, Lost> {
        loop {
            match rustix::net::recv(&self.socket, &mut *memory, RecvFlags::empty()) {
                Ok((0, _)) => return Err(Lost::Eof),
                Ok((bytes, _)) => return Ok(Some(bytes)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => return Err(Lost::Error(error)),
            }
        }
    }

    /// Shuts the connection down in both directions. Both sides see the end at once, even while another process has a
    /// descriptor of the socket.
    pub fn shutdown(&self) {
        let _ended_already = rustix::net::shutdown(self.socket.as_fd(), Shutdown::Both);
    }

    /// Ends the outgoing direction behind what was written. What has arrived is thrown away: a socket that is closed with bytes
    /// to read resets the connection, and the peer would not read what was written.
    pub fn finish(&self) {
        let _ended_already = rustix::net::shutdown(self.socket.as_fd(), Shutdown::Write);
        let mut taken = 0;
        while taken < TURN_BYTES {
            let received = ARRIVED.with_borrow_mut(|arrived| {
                arrived.resize(RECEIVE_BYTES, 0);
                self.recv(arrived)
            });
            match received {
                Ok(Some(bytes)) => taken += bytes,
                Ok(None) | Err(_) => return,
            }
        }
    }
}
