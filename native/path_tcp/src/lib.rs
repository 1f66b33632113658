//! TCP as a path of a session: a socket that does not block, read and written in as few system calls as possible.
//!
//! One `sendmsg` takes all that the session has for the path, up to `SLICES` slices. One `recv` brings many small packets;
//! the rest of a large one goes straight into its memory. Both do a bounded amount of work for each call.
//!
//! With a [`Protection`] the socket carries records (`inet_rdma_records`) of what the session transmits: one `send` for each.
#![forbid(unsafe_code)]

mod sealed;

pub use sealed::{Protection, Sealing};

use std::cell::RefCell;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use inet_rdma_session::{Session, Sink, Violation};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrAny};
use sealed::Sealed;
use smallvec::SmallVec;

/// Slices of one `sendmsg`. Linux takes 1,024; more than a few dozen make a message no cheaper.
const SLICES: usize = 64;

/// Bytes of one `recv` of small packets. The buffer is one for each thread, not one for each link.
const RECEIVE_BYTES: usize = 128 * 1024;

/// Bytes read behind the rest of a large packet: the beginning of the next one, which is copied.
const BEHIND_BYTES: usize = 16 * 1024;

/// A call of [`TcpPath::receive`] takes no more from the socket once it has taken this much: other ports have their turn.
const TURN_BYTES: usize = 256 * 1024;
/// The same in packets.
const TURN_PACKETS: u64 = 1024;

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
    /// The session ends: a record is not the peer's.
    #[error(transparent)]
    Record(#[from] inet_rdma_records::Violation),
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
    sealed: Option<Box<Sealed>>,
}

impl TcpPath {
    /// A path over the connection of this descriptor, by a descriptor of its own: the caller may close its own. The socket must
    /// not block, as sockets of the VM do not.
    pub fn adopt(socket: BorrowedFd<'_>) -> std::io::Result<TcpPath> {
        let socket = rustix::io::fcntl_dupfd_cloexec(socket, 0)?;
        Ok(TcpPath {
            is_local: joins_one_host(&socket),
            socket: Arc::new(socket),
            sealed: None,
        })
    }

    /// From the first byte on all is sealed.
    pub fn seal(&mut self, protection: &Protection) {
        self.sealed = Some(Box::new(Sealed::new(protection)));
    }

    /// How the path is sealed. None: it is not.
    pub fn sealing(&self) -> Option<Sealing> {
        self.sealed.as_ref().map(|sealed| sealed.sealing())
    }

    /// What the session has transmitted and the socket has not taken.
    pub fn held(&self) -> &[u8] {
        self.sealed.as_ref().map_or(&[], |sealed| sealed.held())
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
    pub fn transmit<H: AsRef<[u8]>, L: AsMut<[u8]>>(
        &mut self,
        session: &mut Session<H, L>,
    ) -> Result<Transmitted, Lost> {
        if let Some(sealed) = &mut self.sealed {
            return transmit_sealed(&self.socket, sealed, session);
        }
        while session.poll_transmit() {
            let mut slices: SmallVec<[IoSlice<'_>; SLICES]> = SmallVec::new();
            session.transmission(|slice| {
                slices.push(IoSlice::new(slice));
                slices.len() < SLICES
            });
            match send(&self.socket, &slices) {
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

    /// Gives the session what has arrived, up to about `TURN_BYTES` or `TURN_PACKETS`.
    pub fn receive<H, L, S>(&mut self, session: &mut Session<H, L>, sink: &mut S) -> Result<(), ReceiveError>
    where
        H: AsRef<[u8]>,
        L: AsMut<[u8]>,
        S: Sink<Large = L>,
    {
        let socket = &self.socket;
        let sealed = &mut self.sealed;
        ARRIVED.with_borrow_mut(|arrived| {
            arrived.resize(RECEIVE_BYTES, 0);
            let packets_before = session.counts().packets_received;
            let mut taken = 0;
            while taken < TURN_BYTES && session.counts().packets_received - packets_before < TURN_PACKETS {
                let memory = match sealed {
                    Some(sealed) => sealed.rest(),
                    None => session.direct(),
                };
                let (received, direct_bytes, wanted) = match memory {
                    Some(memory) => {
                        let behind = &mut arrived[..BEHIND_BYTES];
                        let (direct_bytes, wanted) = (memory.len(), memory.len() + behind.len());
                        (recv_both(socket, memory, behind)?, direct_bytes, wanted)
                    }
                    None => (recv(socket, arrived)?, 0, RECEIVE_BYTES),
                };
                let Some(bytes) = received else { break };
                let direct = bytes.min(direct_bytes);
                let arrived = &mut arrived[..bytes - direct];
                match sealed {
                    Some(sealed) => {
                        if direct > 0 {
                            sealed.handle_rest(direct, session, sink)?;
                        }
                        sealed.handle_input(arrived, session, sink)?;
                    }
                    None => {
                        if direct > 0 {
                            session.handle_direct(direct, sink);
                        }
                        session.handle_input(arrived, sink)?;
                    }
                }
                if bytes < wanted {
                    // The socket is empty, in all likelihood: the next arrival makes it readable.
                    break;
                }
                taken += bytes;
            }
            Ok(())
        })
    }

    /// Shuts the connection down in both directions. Both sides see the end at once, even while another process has a
    /// descriptor of the socket.
    pub fn shutdown(&self) {
        let _ended_already = rustix::net::shutdown(self.socket.as_fd(), Shutdown::Both);
    }
}

fn transmit_sealed<H: AsRef<[u8]>, L: AsMut<[u8]>>(
    socket: &OwnedFd,
    sealed: &mut Sealed,
    session: &mut Session<H, L>,
) -> Result<Transmitted, Lost> {
    if !sealed.held().is_empty() {
        let sent = send_all(socket, sealed.held())?;
        sealed.handle_sent(sent);
        if !sealed.held().is_empty() {
            return Ok(Transmitted::Blocked);
        }
    }
    sealed.heed_age();
    while session.poll_transmit() {
        sealed.seal(session, |record| send_all(socket, record))?;
        if !sealed.held().is_empty() {
            return Ok(Transmitted::Blocked);
        }
    }
    Ok(Transmitted::All)
}

/// How many bytes the socket has taken; fewer than all: it is full.
fn send_all(socket: &OwnedFd, bytes: &[u8]) -> Result<usize, Lost> {
    let mut sent = 0;
    while sent < bytes.len() {
        match rustix::net::send(socket, &bytes[sent..], SendFlags::NOSIGNAL) {
            Ok(more) => sent += more,
            Err(Errno::AGAIN) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(Lost::Error(error)),
        }
    }
    Ok(sent)
}

/// One slice needs no message header.
fn send(socket: &OwnedFd, slices: &[IoSlice<'_>]) -> rustix::io::Result<usize> {
    match slices {
        [one] => rustix::net::send(socket, one, SendFlags::NOSIGNAL),
        _ => rustix::net::sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL),
    }
}

/// None: nothing is there.
fn recv(socket: &OwnedFd, memory: &mut [u8]) -> Result<Option<usize>, Lost> {
    received(|| Ok(rustix::net::recv(socket, &mut *memory, RecvFlags::empty())?.0))
}

/// Into the first slice, then into the second.
fn recv_both(socket: &OwnedFd, first: &mut [u8], second: &mut [u8]) -> Result<Option<usize>, Lost> {
    let mut slices = [IoSliceMut::new(first), IoSliceMut::new(second)];
    received(|| {
        let mut control = RecvAncillaryBuffer::default();
        Ok(rustix::net::recvmsg(socket, &mut slices, &mut control, RecvFlags::empty())?.bytes)
    })
}

fn received(mut call: impl FnMut() -> rustix::io::Result<usize>) -> Result<Option<usize>, Lost> {
    loop {
        match call() {
            Ok(0) => return Err(Lost::Eof),
            Ok(bytes) => return Ok(Some(bytes)),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(error) => return Err(Lost::Error(error)),
        }
    }
}
