//! TCP as a path of a session: a socket, on which no call waits, read and written in as few system calls as possible.
//!
//! One `sendmsg` takes all bytes that the session has for the path, up to `SLICES` slices. One `recv` brings many small
//! packets; the rest of a large packet goes straight into its memory. Each call does a bounded amount of work.
//!
//! With a [`Protection`] the socket carries the session's bytes in records (`inet_rdma_records`): one `send` for each.
#![deny(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("inet_rdma's native library is for Linux: nodes of other systems run without it, over TCP");

mod codec;
mod compress;
mod decompress;
pub mod descriptors;
mod encoding;
mod outcome;
mod seal;
#[allow(unsafe_code, reason = "the kernel writes to memory that may be uninitialized")]
mod socket;

pub use codec::{Codec, can_decompress};
pub use compress::{BlockViolation, Compression};
pub use inet_rdma_records::Protection;
pub use outcome::{Lost, ReceiveError, Received, Transmitted};
pub use seal::SealState;

use std::cell::RefCell;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use inet_rdma_session::{Memory, Session, Sink, Turn};
use rustix::net::{Shutdown, SocketAddrAny};
use smallvec::SmallVec;

use crate::encoding::Encoding;
use crate::seal::Seal;
use crate::socket::{SLICES, recv, recv_both, send};

/// Bytes of one `recv` of small packets. Each thread has one buffer for all links.
const RECEIVE_BYTES: usize = 128 * 1024;

/// Bytes read after the rest of a large packet: the beginning of the next one, which is copied.
const BEHIND_BYTES: usize = 16 * 1024;

/// The bytes of the session that a call of [`TcpPath::receive`] takes at most, so that other ports have their turn. It
/// reads no more bytes than these and those of one `recv`.
pub const TURN_BYTES: usize = 256 * 1024;
/// The same where the peer compresses, and few bytes of the connection decode to many: a millisecond of decompression.
/// With 256 KiB, four senders of 64 KiB that compress well are a quarter slower: `bench/run.py throughput --size 64K
/// --senders 4 --carriers tcp_path --rdma-flags '-inet_rdma compress true'`.
pub const TURN_DECOMPRESSED_BYTES: usize = 1024 * 1024;
/// The packets that it is to give at most. The requests of many processes come in one turn, so that the answers leave
/// by one write: with 64 packets 100,000 `rpc:call` of 100 processes take 8 % more CPU.
pub const TURN_PACKETS: usize = 128;

thread_local! {
    /// The thread's buffer, allocated with its first read.
    static ARRIVED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Bytes that were read and that a turn has left: `range` of the thread's buffer, which the path keeps meanwhile.
#[derive(Default)]
struct Unread {
    memory: Vec<u8>,
    range: Range<usize>,
}

impl Unread {
    /// Gives the memory to the thread's next read.
    fn free(&mut self) {
        ARRIVED.set(std::mem::take(self).memory);
    }
}

/// A TCP connection that carries a session, or stands by.
pub struct TcpPath {
    socket: Arc<OwnedFd>,
    encoding: Option<Box<Encoding>>,
    unread: Unread,
}

impl TcpPath {
    /// A path over the connection of this descriptor. It may be a duplicate of one that is set to block.
    pub fn adopt(socket: OwnedFd) -> TcpPath {
        TcpPath {
            socket: Arc::new(socket),
            encoding: None,
            unread: Unread::default(),
        }
    }

    /// Seals the path from its first byte on.
    pub fn seal(&mut self, protection: &Protection) {
        self.encoding.get_or_insert_default().seal = Some(Seal::new(protection));
    }

    /// Compresses from the first byte on. The contexts may come from an earlier connection.
    pub fn compress(&mut self, mut codec: Codec) {
        if !codec.is_idle() {
            codec.reset();
            self.encoding.get_or_insert_default().codec = codec;
        }
    }

    /// Takes the contexts of compression for the next connection. This one is at its end.
    pub fn take_codec(&mut self) -> Codec {
        let encoding = self.encoding.as_mut();
        encoding.map_or_else(Codec::default, |encoding| std::mem::take(&mut encoding.codec))
    }

    /// The state of the seals; None: the path is not sealed.
    pub fn sealing(&self) -> Option<SealState> {
        self.encoding.as_ref()?.seal.as_ref().map(Seal::sealing)
    }

    /// The counts of compression of sent and of received bytes. None: neither side compresses.
    pub fn compression(&self) -> Option<[Compression; 2]> {
        self.encoding.as_ref()?.compression()
    }

    /// Bytes that the session has transmitted and the socket has not taken.
    pub fn held(&self) -> &[u8] {
        self.encoding.as_ref().map_or(&[], |encoding| encoding.held())
    }

    /// The addresses of this end and of the peer's. None: the kernel does not say, or they are none of IP.
    pub fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        let address = |any: SocketAddrAny| SocketAddr::try_from(any).ok();
        let own = address(rustix::net::getsockname(&self.socket).ok()?)?;
        let peer = address(rustix::net::getpeername(&self.socket).ok()??)?;
        Some((own, peer))
    }

    /// The socket, for a party that waits for events of it, and may keep it a little longer than the path.
    pub fn socket(&self) -> &Arc<OwnedFd> {
        &self.socket
    }

    /// Writes the bytes that the session has for TCP.
    pub fn transmit<H: AsRef<[u8]>, L: Memory>(&mut self, session: &mut Session<H, L>) -> Result<Transmitted, Lost> {
        if let Some(encoding) = &mut self.encoding {
            return encoding.transmit(&self.socket, session);
        }
        while session.poll_transmit() {
            let mut slices: SmallVec<[IoSlice<'_>; SLICES]> = SmallVec::new();
            session.transmission(|slice| {
                slices.push(IoSlice::new(slice));
                slices.len() < SLICES
            });
            let (sent, stopped) = send(&self.socket, &slices)?;
            drop(slices);
            session.handle_transmitted(sent);
            if stopped != Transmitted::All {
                return Ok(stopped);
            }
        }
        Ok(Transmitted::All)
    }

    /// True if bytes that were read wait for the next turn. The socket need not be readable.
    pub fn holds_input(&self) -> bool {
        !self.unread.range.is_empty() || self.encoding.as_ref().is_some_and(|encoding| encoding.holds_input())
    }

    /// The bytes of the session that a turn takes at most: of what has arrived, decoded.
    pub fn turn_bytes(&self) -> usize {
        match &self.encoding {
            Some(encoding) if encoding.codec.decompressor.is_some() => TURN_DECOMPRESSED_BYTES,
            _ => TURN_BYTES,
        }
    }

    /// Gives the session the bytes that have arrived, up to [`TcpPath::turn_bytes`] and `packets_max` packets.
    pub fn receive<H: AsRef<[u8]>, S: Sink>(
        &mut self,
        packets_max: usize,
        session: &mut Session<H, S::Large>,
        sink: &mut S,
    ) -> Result<Received, ReceiveError> {
        let mut turn = Turn {
            bytes: self.turn_bytes(),
            packets: packets_max,
        };
        if self.holds_input() {
            self.take_unread(session, &mut turn, sink)?;
        }
        let mut read = 0;
        while read < TURN_BYTES && !turn.is_over() && !self.holds_input() {
            let Some((bytes, wanted)) = self.read(session, &mut turn, sink)? else {
                return Ok(Received::All);
            };
            if bytes < wanted && !self.holds_input() {
                // The socket is probably empty: the next arrival makes it readable.
                return Ok(Received::All);
            }
            read += bytes;
        }
        Ok(Received::More)
    }

    /// Takes the bytes of an earlier turn.
    fn take_unread<H: AsRef<[u8]>, S: Sink>(
        &mut self,
        session: &mut Session<H, S::Large>,
        turn: &mut Turn,
        sink: &mut S,
    ) -> Result<(), ReceiveError> {
        let Unread { memory, range } = &mut self.unread;
        let unread = &mut memory[range.clone()];
        range.start += take_in(&mut self.encoding, 0, unread, session, turn, sink)?;
        if self.unread.range.is_empty() && !self.unread.memory.is_empty() {
            self.unread.free();
        }
        Ok(())
    }

    /// Reads once, and takes what the turn allows. Returns the bytes read, and those wanted. None: none were there.
    fn read<H: AsRef<[u8]>, S: Sink>(
        &mut self,
        session: &mut Session<H, S::Large>,
        turn: &mut Turn,
        sink: &mut S,
    ) -> Result<Option<(usize, usize)>, ReceiveError> {
        let mut unread = Unread {
            memory: ARRIVED.take(),
            range: 0..0,
        };
        unread.memory.resize(RECEIVE_BYTES, 0);
        // Only a whole record can be opened: it is read to its end, and what it gives beyond the turn waits.
        let is_sealed = self.encoding.as_ref().is_some_and(|encoding| encoding.seal.is_some());
        let memory = match &mut self.encoding {
            Some(encoding) => encoding.direct(session),
            None => session.direct(),
        };
        let received = match memory {
            Some(memory) => {
                // Else what lies after the turn stays in the socket.
                let (direct_bytes, behind_bytes) = if is_sealed || memory.len() < turn.bytes {
                    (memory.len(), BEHIND_BYTES)
                } else {
                    (turn.bytes, 0)
                };
                let behind = &mut unread.memory[..behind_bytes];
                let received = recv_both(&self.socket, &mut memory[..direct_bytes], behind);
                received.map(|bytes| bytes.map(|bytes| (bytes, direct_bytes, direct_bytes + behind_bytes)))
            }
            None => recv(&self.socket, &mut unread.memory).map(|bytes| bytes.map(|bytes| (bytes, 0, RECEIVE_BYTES))),
        };
        let (bytes, direct_bytes, wanted) = match received {
            Ok(Some(received)) => received,
            Ok(None) => {
                unread.free();
                return Ok(None);
            }
            Err(lost) => {
                unread.free();
                return Err(lost.into());
            }
        };
        let direct = bytes.min(direct_bytes);
        unread.range = 0..bytes - direct;
        let arrived = &mut unread.memory[unread.range.clone()];
        unread.range.start = take_in(&mut self.encoding, direct, arrived, session, turn, sink)?;
        if unread.range.is_empty() {
            unread.free()
        } else {
            self.unread = unread
        }
        Ok(Some((bytes, wanted)))
    }

    /// Resets the connection: the peer sees a failure, and not an end in order.
    pub fn reset(&self) {
        let _ended_already = rustix::net::connect_unspec(&self.socket);
    }

    /// Shuts both directions down. Both sides see the end at once, even while another process has the socket, too.
    pub fn shutdown(&self) {
        let _ended_already = rustix::net::shutdown(self.socket.as_fd(), Shutdown::Both);
    }
}

/// The first `direct` bytes of the memory of [`TcpPath::read`] have come, and these after them. Returns how many of
/// those the turn has taken.
fn take_in<H: AsRef<[u8]>, S: Sink>(
    encoding: &mut Option<Box<Encoding>>,
    direct: usize,
    bytes: &mut [u8],
    session: &mut Session<H, S::Large>,
    turn: &mut Turn,
    sink: &mut S,
) -> Result<usize, ReceiveError> {
    match encoding {
        Some(encoding) => encoding.handle_input(direct, bytes, session, turn, sink),
        None => {
            if direct > 0 {
                session.handle_direct(direct, turn, sink)?;
            }
            Ok(session.handle_input(bytes, turn, sink)?)
        }
    }
}
