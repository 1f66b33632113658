//! TCP as a path of a session: a socket that does not block, read and written in as few system calls as possible.
//!
//! One `sendmsg` takes all bytes that the session has for the path, up to `SLICES` slices. One `recv` brings many small
//! packets; the rest of a large packet goes straight into its memory. Each call does a bounded amount of work.
//!
//! With a [`Protection`] the socket carries the session's bytes in records (`inet_rdma_records`): one `send` for each.
#![forbid(unsafe_code)]

mod coded;
mod compress;
mod outcome;
mod seal;
mod socket;

pub use compress::{BlockViolation, Compression};
pub use outcome::{Lost, ReceiveError, Transmitted};
pub use seal::{Protection, SealState};

use std::cell::RefCell;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use inet_rdma_session::{Session, Sink};
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketAddrAny};
use smallvec::SmallVec;

use crate::coded::Coded;
use crate::compress::{Compressor, Decompressor};
use crate::seal::Seal;
use crate::socket::{SLICES, recv, recv_both, send};

/// Bytes of one `recv` of small packets. Each thread has one buffer for all links.
const RECEIVE_BYTES: usize = 128 * 1024;

/// Bytes read behind the rest of a large packet: the beginning of the next one, which is copied.
const BEHIND_BYTES: usize = 16 * 1024;

/// The number of bytes after which a call of [`TcpPath::receive`] ends, so that other ports have their turn.
const TURN_BYTES: usize = 256 * 1024;
/// The number of packets after which it ends.
const TURN_PACKETS: u64 = 1024;

thread_local! {
    /// The thread's buffer, allocated with its first read.
    static ARRIVED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
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
    coded: Option<Box<Coded>>,
}

impl TcpPath {
    /// A path over the connection of this descriptor, by a descriptor of its own: the caller may close its own. The
    /// socket must not block, as sockets of the VM do not.
    pub fn adopt(socket: BorrowedFd<'_>) -> std::io::Result<TcpPath> {
        let socket = rustix::io::fcntl_dupfd_cloexec(socket, 0)?;
        Ok(TcpPath {
            is_local: joins_one_host(&socket),
            socket: Arc::new(socket),
            coded: None,
        })
    }

    /// Seals the path from its first byte on.
    pub fn seal(&mut self, protection: &Protection) {
        self.coded.get_or_insert_default().seal = Some(Seal::new(protection));
    }

    /// Compresses, from the first byte on, the bytes that this side sends, those that the peer sends, or both. False:
    /// there is no memory for it.
    pub fn compress(&mut self, sends: bool, receives: bool) -> bool {
        if !sends && !receives {
            return true;
        }
        let coded = self.coded.get_or_insert_default();
        coded.compressor = sends.then(Compressor::new).flatten();
        coded.decompressor = receives.then(Decompressor::new).flatten();
        coded.compressor.is_some() == sends && coded.decompressor.is_some() == receives
    }

    /// The state of the seals; None: the path is not sealed.
    pub fn sealing(&self) -> Option<SealState> {
        self.coded.as_ref()?.seal.as_ref().map(Seal::sealing)
    }

    /// The counts of compression of sent and of received bytes. None: neither side compresses.
    pub fn compression(&self) -> Option<[Compression; 2]> {
        self.coded.as_ref()?.compression()
    }

    /// Bytes that the session has transmitted and the socket has not taken.
    pub fn held(&self) -> &[u8] {
        self.coded.as_ref().map_or(&[], |coded| coded.held())
    }

    /// Whether both ends have the same address, as the peer is on this host.
    pub fn is_local(&self) -> bool {
        self.is_local
    }

    /// The socket, for a party that waits for events of it, and may keep it a little longer than the path.
    pub fn socket(&self) -> &Arc<OwnedFd> {
        &self.socket
    }

    /// Writes the bytes that the session has for TCP.
    pub fn transmit<H: AsRef<[u8]>, L: AsMut<[u8]>>(
        &mut self,
        session: &mut Session<H, L>,
    ) -> Result<Transmitted, Lost> {
        if let Some(coded) = &mut self.coded {
            return coded.transmit(&self.socket, session);
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

    /// Gives the session the bytes that have arrived, up to about `TURN_BYTES` or `TURN_PACKETS`.
    pub fn receive<H, L, S>(&mut self, session: &mut Session<H, L>, sink: &mut S) -> Result<(), ReceiveError>
    where
        H: AsRef<[u8]>,
        L: AsMut<[u8]>,
        S: Sink<Large = L>,
    {
        let socket = &self.socket;
        let coded = &mut self.coded;
        ARRIVED.with_borrow_mut(|arrived| {
            arrived.resize(RECEIVE_BYTES, 0);
            let packets_before = session.counts().packets_received;
            let mut taken = 0;
            while taken < TURN_BYTES && session.counts().packets_received - packets_before < TURN_PACKETS {
                let memory = match coded {
                    Some(coded) => coded.direct(session),
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
                match coded {
                    Some(coded) => coded.handle_input(direct, arrived, session, sink)?,
                    None => {
                        if direct > 0 {
                            session.handle_direct(direct, sink);
                        }
                        session.handle_input(arrived, sink)?;
                    }
                }
                if bytes < wanted {
                    // The socket is probably empty: the next arrival makes it readable.
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
