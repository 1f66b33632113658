//! From stream bytes to packets: cuts what arrived at its boundaries and copies it out of memory that the peer can
//! write. A length is read once, checked, and never looked at again in the peer's reach.

use std::ops::Range;

pub use crate::arrived::Arrived;
use crate::landing::LandingBuffer;

/// Memory that packets are copied into.
pub trait Buffer: Sized {
    /// A buffer of exactly `bytes`; None: no memory.
    fn allocate(bytes: usize) -> Option<Self>;
    /// All of it.
    fn as_mut_slice(&mut self) -> &mut [u8];
}

impl Buffer for Vec<u8> {
    fn allocate(bytes: usize) -> Option<Self> {
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(bytes).ok()?;
        buffer.resize(bytes, 0);
        Some(buffer)
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        self
    }
}

/// Packets as they came out of a read, in stream order.
pub enum Received<B> {
    /// Several packets that share one buffer.
    Batch {
        /// Holds them all.
        bytes: B,
        /// Where each is.
        packets: Vec<Range<usize>>,
    },
    /// One packet with a buffer of its own.
    Whole(B),
    /// One packet as it lies in a landing buffer: no copy.
    Landed(LandingBuffer, Range<usize>),
}

impl<B> Received<B> {
    /// How many packets.
    pub fn packets(&self) -> usize {
        match self {
            Received::Batch { packets, .. } => packets.len(),
            Received::Whole(_) | Received::Landed(..) => 1,
        }
    }
}

/// How the stream is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// Not at all: what arrives together is handed over together.
    Raw,
    /// Each packet has a length of one byte before it.
    Length1,
    /// Each packet has a length of two bytes, big-endian, before it.
    Length2,
    /// Each packet has a length of four bytes, big-endian, before it.
    Length4,
}

impl Framing {
    /// Size of the length before each packet.
    pub fn header_bytes(self) -> usize {
        match self {
            Framing::Raw => 0,
            Framing::Length1 => 1,
            Framing::Length2 => 2,
            Framing::Length4 => 4,
        }
    }

    /// What goes before a packet of so many bytes; None: a length of this size cannot say so many.
    pub fn header(self, packet_bytes: usize) -> Option<Header> {
        if self == Framing::Raw {
            return Some(Header::default());
        }
        let length = u32::try_from(packet_bytes).ok()?.to_be_bytes();
        let start = length.len() - self.header_bytes();
        let fits = length[..start].iter().all(|&byte| byte == 0);
        fits.then_some(Header { length, start })
    }
}

/// The length before a packet, as it goes on the wire; empty with [`Framing::Raw`].
#[derive(Debug, Clone, Copy)]
pub struct Header {
    length: [u8; HEADER_MAX_BYTES],
    start: usize,
}

impl Default for Header {
    /// None: empty.
    fn default() -> Self {
        Header {
            length: [0; HEADER_MAX_BYTES],
            start: HEADER_MAX_BYTES,
        }
    }
}

impl Header {
    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.length[self.start..]
    }
}

/// How much one read may take.
#[derive(Debug, Clone, Copy)]
pub struct ReadLimit {
    /// About so many bytes; with [`Framing::Raw`] not one more.
    pub bytes: usize,
    /// At most so many packets.
    pub packets: usize,
    /// With [`Framing::Raw`]: hand over exactly so many bytes as one packet, however they arrive; 0: whatever is there.
    pub exact: usize,
}

impl ReadLimit {
    /// Whatever is there, up to about so many bytes.
    pub fn bytes(bytes: usize) -> Self {
        Self {
            bytes,
            packets: usize::MAX,
            exact: 0,
        }
    }
}

/// Why assembly had to stop.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AssemblyError {
    /// The peer announced a packet larger than allowed.
    #[error("the peer announced a packet of {bytes} bytes; packet_max_bytes is {max}")]
    TooLarge {
        /// What it announced.
        bytes: usize,
        /// The option `packet_max_bytes`.
        max: usize,
    },
    /// No memory for a packet.
    #[error("no memory for a packet of {0} bytes")]
    NoMemory(usize),
}

const HEADER_MAX_BYTES: usize = 4;

/// Packets of a batch that room is made for beforehand, at most: the peer decides how small they are.
const PACKETS_EXPECTED_MAX: usize = 64;

/// A packet of which a part has arrived.
struct Partial<B> {
    buffer: B,
    /// Bytes at the start that raw reads of fewer bytes have taken away; what has some gets no more.
    taken: usize,
    filled: usize,
    bytes: usize,
}

impl<B: Buffer> Partial<B> {
    fn new(bytes: usize) -> Result<Self, AssemblyError> {
        let buffer = B::allocate(bytes).ok_or(AssemblyError::NoMemory(bytes))?;
        Ok(Self {
            buffer,
            taken: 0,
            filled: 0,
            bytes,
        })
    }

    /// Bytes that are here and not handed over.
    fn kept(&self) -> usize {
        self.filled - self.taken
    }
}

/// Cuts one connection's incoming bytes.
pub struct Assembly<B> {
    framing: Framing,
    packet_max_bytes: usize,
    header: [u8; HEADER_MAX_BYTES],
    header_filled: usize,
    partial: Option<Partial<B>>,
    /// Size of the largest packet that has been begun since the last look.
    largest: usize,
}

impl<B: Buffer> Assembly<B> {
    /// Nothing has arrived yet.
    pub fn new(framing: Framing, packet_max_bytes: usize) -> Self {
        Self {
            framing,
            packet_max_bytes,
            header: [0; HEADER_MAX_BYTES],
            header_filled: 0,
            partial: None,
            largest: 0,
        }
    }

    /// Takes the size of the largest packet begun since the last call.
    pub fn take_largest(&mut self) -> usize {
        std::mem::take(&mut self.largest)
    }

    /// How the stream is cut from the next packet on.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Changes how the stream is cut from here on. False, and nothing changed, if that would be another framing in the
    /// middle of a packet.
    #[must_use]
    pub fn reframe(&mut self, framing: Framing, packet_max_bytes: usize) -> bool {
        if self.framing != framing && !self.at_boundary() {
            return false;
        }
        self.framing = framing;
        self.packet_max_bytes = packet_max_bytes;
        true
    }

    /// Bytes of raw reads that were taken in and not handed over yet.
    pub fn kept(&self) -> usize {
        self.partial.as_ref().map_or(0, Partial::kept)
    }

    fn at_boundary(&self) -> bool {
        self.header_filled == 0 && self.partial.is_none()
    }

    /// Takes in `arrived` from its start, as far as `limit` allows, and adds the packets that are complete to `out`; how
    /// many bytes it took (at least one).
    pub fn push(
        &mut self,
        arrived: &Arrived,
        limit: ReadLimit,
        out: &mut Vec<Received<B>>,
    ) -> Result<usize, AssemblyError> {
        if self.framing == Framing::Raw {
            return self.push_raw(arrived, limit, out);
        }
        let full = out.len().saturating_add(limit.packets);
        let at = self.finish_partial(arrived, out)?;
        let wanted = full - out.len();
        let (end, packets) = self.complete_packets(arrived, at, wanted, out)?;
        if packets == wanted {
            return Ok(end);
        }
        self.begin_partial(arrived, end)?;
        Ok(arrived.len())
    }

    /// Takes in the bytes `range` of a landing buffer, as [`Self::push`] does; the buffer back, if not all was taken.
    pub fn push_landed(
        &mut self,
        buffer: LandingBuffer,
        range: Range<usize>,
        bulk: usize,
        limit: ReadLimit,
        out: &mut Vec<Received<B>>,
    ) -> Result<Option<(LandingBuffer, Range<usize>)>, AssemblyError> {
        let bytes = range.len();
        // SAFETY: the stream checked the bytes against the buffer's size, and `buffer` outlives `arrived`.
        let arrived = unsafe { Arrived::new([(buffer.as_ptr().add(range.start), bytes), (std::ptr::null(), 0)]) };
        if bytes >= bulk && self.at_boundary() {
            let header = match self.framing {
                Framing::Raw => (limit.exact == bytes || limit.exact == 0 && bytes <= limit.bytes).then_some(0),
                framing if bytes < framing.header_bytes() => None,
                framing => {
                    let announced = self.check(length_at(&arrived, 0, framing))?;
                    let header = framing.header_bytes();
                    (announced + header == bytes).then_some(header)
                }
            };
            if let Some(header) = header {
                self.largest = self.largest.max(bytes);
                out.push(Received::Landed(buffer, range.start + header..range.end));
                return Ok(None);
            }
        }
        let taken = self.push(&arrived, limit, out)?;
        Ok((taken < bytes).then(|| (buffer, range.start + taken..range.end)))
    }

    fn push_raw(
        &mut self,
        arrived: &Arrived,
        limit: ReadLimit,
        out: &mut Vec<Received<B>>,
    ) -> Result<usize, AssemblyError> {
        self.largest = self.largest.max(arrived.len());
        if limit.exact == 0 {
            let bytes = arrived.len().min(limit.bytes);
            out.push(Received::Whole(copy(arrived, 0..bytes)?));
            return Ok(bytes);
        }
        if self.partial.is_none() {
            self.partial = Some(Partial::new(limit.exact)?);
        }
        self.finish_partial(arrived, out)
    }

    /// A raw read left bytes behind that did not make up what it wanted; this one wants something else. True: they
    /// were enough for it. What is more than it wants stays where it is, so that many small reads copy each byte once.
    pub fn retarget(&mut self, limit: ReadLimit, out: &mut Vec<Received<B>>) -> Result<bool, AssemblyError> {
        if self.framing != Framing::Raw {
            return Ok(false);
        }
        let Some(kept) = &mut self.partial else {
            return Ok(false);
        };
        if kept.bytes == limit.exact && kept.taken == 0 {
            return Ok(false);
        }
        let wanted = if limit.exact == 0 {
            kept.kept().min(limit.bytes)
        } else {
            limit.exact
        };
        if wanted == 0 {
            return Ok(false);
        }
        let now = kept.kept().min(wanted);
        let mut next = Partial::<B>::new(wanted)?;
        next.buffer.as_mut_slice()[..now].copy_from_slice(&kept.buffer.as_mut_slice()[kept.taken..][..now]);
        next.filled = now;
        kept.taken += now;
        if kept.kept() == 0 {
            self.partial = None;
        }
        if next.filled == wanted {
            out.push(Received::Whole(next.buffer));
            return Ok(true);
        }
        self.partial = Some(next);
        Ok(false)
    }

    /// The length that a header announces, if packets may be that large.
    fn check(&self, bytes: usize) -> Result<usize, AssemblyError> {
        if bytes > self.packet_max_bytes {
            return Err(AssemblyError::TooLarge {
                bytes,
                max: self.packet_max_bytes,
            });
        }
        Ok(bytes)
    }

    /// Completes the packet that an earlier push left unfinished; where the next one starts.
    fn finish_partial(&mut self, arrived: &Arrived, out: &mut Vec<Received<B>>) -> Result<usize, AssemblyError> {
        let mut at = 0;
        if self.partial.is_none() && self.header_filled > 0 {
            let header_bytes = self.framing.header_bytes();
            let part = (header_bytes - self.header_filled).min(arrived.len());
            arrived.copy_out(0, &mut self.header[self.header_filled..][..part]);
            self.header_filled += part;
            at = part;
            if self.header_filled < header_bytes {
                return Ok(at);
            }
            self.start_packet()?;
        }
        if let Some(partial) = &mut self.partial {
            let part = (partial.bytes - partial.filled).min(arrived.len() - at);
            arrived.copy_out(at, &mut partial.buffer.as_mut_slice()[partial.filled..][..part]);
            partial.filled += part;
            at += part;
        }
        if let Some(partial) = self.partial.take_if(|partial| partial.filled == partial.bytes) {
            out.push(Received::Whole(partial.buffer));
        }
        Ok(at)
    }

    /// Allocates for the packet whose header is complete.
    fn start_packet(&mut self) -> Result<(), AssemblyError> {
        let bytes = self.check(length(&self.header[..self.framing.header_bytes()]))?;
        self.header_filled = 0;
        self.largest = self.largest.max(bytes);
        self.partial = Some(Partial::new(bytes)?);
        Ok(())
    }

    /// Adds up to `wanted` packets that are complete from `from` on to `out`; where the last one ends, and how many.
    fn complete_packets(
        &mut self,
        arrived: &Arrived,
        from: usize,
        wanted: usize,
        out: &mut Vec<Received<B>>,
    ) -> Result<(usize, usize), AssemblyError> {
        if !self.at_boundary() || wanted == 0 {
            return Ok((from, 0));
        }
        let Some(first) = self.complete_packet(arrived, from)? else {
            return Ok((from, 0));
        };
        let mut at = first.end;
        let mut next = if wanted > 1 {
            self.complete_packet(arrived, at)?
        } else {
            None
        };
        if next.is_none() {
            out.push(Received::Whole(copy(arrived, first)?));
            return Ok((at, 1));
        }
        // Packets that come together are often alike.
        let alike = (arrived.len() - from) / (first.end - from);
        let mut packets = Vec::with_capacity(alike.min(wanted).min(PACKETS_EXPECTED_MAX));
        packets.push(first.start - from..first.end - from);
        while let Some(packet) = next {
            packets.push(packet.start - from..packet.end - from);
            at = packet.end;
            next = if packets.len() < wanted {
                self.complete_packet(arrived, at)?
            } else {
                None
            };
        }
        let count = packets.len();
        out.push(Received::Batch {
            bytes: copy(arrived, from..at)?,
            packets,
        });
        Ok((at, count))
    }

    /// Where the packet is whose header is at `at`, if all of it is here.
    #[inline]
    fn complete_packet(&mut self, arrived: &Arrived, at: usize) -> Result<Option<Range<usize>>, AssemblyError> {
        let header_bytes = self.framing.header_bytes();
        if arrived.len() - at < header_bytes {
            return Ok(None);
        }
        let bytes = self.check(length_at(arrived, at, self.framing))?;
        let start = at + header_bytes;
        if bytes > arrived.len() - start {
            return Ok(None);
        }
        self.largest = self.largest.max(bytes);
        Ok(Some(start..start + bytes))
    }

    /// Keeps what is left behind the last complete packet.
    fn begin_partial(&mut self, arrived: &Arrived, from: usize) -> Result<(), AssemblyError> {
        let left = arrived.len() - from;
        if left == 0 {
            return Ok(());
        }
        let header = left.min(self.framing.header_bytes());
        arrived.copy_out(from, &mut self.header[..header]);
        self.header_filled = header;
        if header < self.framing.header_bytes() {
            return Ok(());
        }
        self.start_packet()?;
        if let Some(partial) = &mut self.partial {
            // The peer may have rewritten the header since `complete_packet` read it: never take more than was announced.
            let part = (left - header).min(partial.bytes);
            arrived.copy_out(from + header, &mut partial.buffer.as_mut_slice()[..part]);
            partial.filled = part;
        }
        Ok(())
    }
}

/// The length in the header at `at`. Each size is a copy of a constant length.
#[inline]
fn length_at(arrived: &Arrived, at: usize, framing: Framing) -> usize {
    match framing {
        Framing::Raw => 0,
        Framing::Length1 => length(&bytes_at::<1>(arrived, at)),
        Framing::Length2 => length(&bytes_at::<2>(arrived, at)),
        Framing::Length4 => u32::from_be_bytes(bytes_at(arrived, at)) as usize,
    }
}

#[inline]
fn bytes_at<const N: usize>(arrived: &Arrived, at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    arrived.copy_out(at, &mut bytes);
    bytes
}

fn length(header: &[u8]) -> usize {
    header.iter().fold(0, |length, &byte| length << 8 | usize::from(byte))
}

fn copy<B: Buffer>(arrived: &Arrived, range: Range<usize>) -> Result<B, AssemblyError> {
    let mut buffer = B::allocate(range.len()).ok_or(AssemblyError::NoMemory(range.len()))?;
    arrived.copy_out(range.start, buffer.as_mut_slice());
    Ok(buffer)
}
