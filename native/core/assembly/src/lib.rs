//! Reads packets from memory that the peer can write: cuts the arrived bytes, copies packets out, or hands over a
//! landing buffer without a copy. A length is copied once and checked; it is never read again where the peer can change
//! it.
//!
//! The unsafe code for this is here: bytes of the ring and of landing buffers are copied through raw pointers, and only
//! the copies are interpreted. The caller of [`Arrived::new`] promises that the bytes are mapped.

mod arrived;

mod error;
mod framing;
mod gather;
mod landing;
mod lengths;
mod lines;
mod packet_start;
mod raw;
mod received;
mod record;

use std::ops::Range;

use packet_start::{PacketStart, Partial};

pub use arrived::Arrived;
pub use error::AssemblyError;
pub use framing::{Framing, Header};
pub use gather::Gather;
pub use landing::{LandingBuffer, LandingPool};
pub use received::{Buffer, ReadLimit, Received, Sizes};
pub use record::Rest;

/// Cuts one connection's incoming bytes.
pub struct Assembly<B> {
    framing: Framing,
    packet_max_bytes: usize,
    packet_start: PacketStart<B>,
    /// Size of the largest packet begun since the last [`Self::take_largest`].
    largest: usize,
}

impl<B: Buffer> Assembly<B> {
    /// An assembly into which nothing has arrived yet.
    pub fn new(framing: Framing, packet_max_bytes: usize) -> Self {
        Self {
            framing,
            packet_max_bytes,
            packet_start: PacketStart::Nothing,
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

    /// Changes the framing of the bytes to come. Returns false and changes nothing in the middle of a packet. A part of
    /// a line does not prevent a change to raw reads: they hand that part over first.
    #[must_use]
    pub fn reframe(&mut self, framing: Framing, packet_max_bytes: usize) -> bool {
        if self.framing != framing {
            match &self.packet_start {
                PacketStart::Nothing => {}
                PacketStart::Line(line) if framing == Framing::Raw => match Partial::of(line) {
                    Ok(kept) => self.packet_start = PacketStart::Packet(kept),
                    Err(_) => return false,
                },
                PacketStart::Header(_) | PacketStart::Line(_) | PacketStart::Packet(_) => return false,
            }
        }
        self.framing = framing;
        self.packet_max_bytes = packet_max_bytes;
        true
    }

    /// Bytes of raw reads that were taken in and not handed over yet.
    pub fn kept(&self) -> usize {
        match &self.packet_start {
            PacketStart::Packet(partial) => partial.kept(),
            PacketStart::Nothing | PacketStart::Header(_) | PacketStart::Line(_) => 0,
        }
    }

    fn is_at_boundary(&self) -> bool {
        matches!(self.packet_start, PacketStart::Nothing)
    }

    /// Takes in bytes of `arrived` from its start, as far as `limit` allows, and adds complete packets to `out`.
    /// Returns the number of bytes taken in, at least one.
    #[inline(always)]
    pub fn push(
        &mut self,
        arrived: &Arrived,
        limit: ReadLimit,
        out: &mut Vec<Received<B>>,
    ) -> Result<usize, AssemblyError> {
        match self.framing {
            // Inlined for links; streams, which come here less often, pay a call.
            Framing::Length4 => self.push_packets::<4>(arrived, limit, out),
            _ => self.push_of_stream(arrived, limit, out),
        }
    }

    #[inline(never)]
    fn push_of_stream(
        &mut self,
        arrived: &Arrived,
        limit: ReadLimit,
        out: &mut Vec<Received<B>>,
    ) -> Result<usize, AssemblyError> {
        match self.framing {
            Framing::Raw => self.push_raw(arrived, limit, out),
            Framing::Length1 => self.push_packets::<1>(arrived, limit, out),
            Framing::Length2 => self.push_packets::<2>(arrived, limit, out),
            Framing::Length4 => self.push_packets::<4>(arrived, limit, out),
            Framing::Line { bytes_max } => self.push_lines(bytes_max, arrived, limit, out),
        }
    }

    /// Takes in the bytes `range` of a landing buffer, as [`Self::push`] does. Returns the buffer if bytes are left in
    /// it.
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
        if bytes >= bulk && self.is_at_boundary() {
            if let Some(header) = self.only_packet(&arrived, limit)? {
                self.largest = self.largest.max(bytes);
                out.push(Received::Landed(buffer, range.start + header..range.end));
                return Ok(None);
            }
        }
        let taken = self.push(&arrived, limit, out)?;
        Ok((taken < bytes).then(|| (buffer, range.start + taken..range.end)))
    }

    /// The header's size if the arrived bytes are exactly one packet.
    fn only_packet(&self, arrived: &Arrived, limit: ReadLimit) -> Result<Option<usize>, AssemblyError> {
        let bytes = arrived.len();
        let header = self.framing.header_bytes();
        if bytes < header {
            return Ok(None);
        }
        let packet = match self.framing {
            Framing::Raw if limit.exact == 0 => bytes.min(limit.bytes),
            Framing::Raw => limit.exact,
            Framing::Length1 => self.announced_at::<1>(arrived, 0)?,
            Framing::Length2 => self.announced_at::<2>(arrived, 0)?,
            Framing::Length4 => self.announced_at::<4>(arrived, 0)?,
            Framing::Line { bytes_max } => match self.line_end(bytes_max, arrived, 0, 0)? {
                Some(end) => end,
                None => return Ok(None),
            },
        };
        Ok((header + packet == bytes).then_some(header))
    }

    /// Copies bytes from `at` on into the packet that has begun, if one has. Returns the position after them.
    fn fill_packet(&mut self, arrived: &Arrived, at: usize, out: &mut Vec<Received<B>>) -> usize {
        let PacketStart::Packet(partial) = &mut self.packet_start else {
            return at;
        };
        let part = (partial.bytes - partial.filled).min(arrived.len() - at);
        arrived.copy_out(at, &mut partial.missing()[..part]);
        self.note_filled(part, out);
        at + part
    }

    /// Notes that the packet that has begun has got `bytes` more bytes, and hands it over if it is complete.
    #[inline]
    fn note_filled(&mut self, bytes: usize, out: &mut Vec<Received<B>>) {
        let PacketStart::Packet(partial) = &mut self.packet_start else {
            return;
        };
        partial.filled += bytes;
        if partial.filled == partial.bytes {
            if let PacketStart::Packet(whole) = std::mem::replace(&mut self.packet_start, PacketStart::Nothing) {
                out.push(Received::Whole(whole.buffer));
            }
        }
    }

    /// Returns the size of a packet. Err: packets may not be that large.
    fn check(&self, bytes: usize) -> Result<usize, AssemblyError> {
        let max = self.packet_max_bytes;
        if bytes > max {
            return Err(AssemblyError::TooLarge { bytes, max });
        }
        Ok(bytes)
    }
}

#[inline(always)]
fn copy<B: Buffer>(arrived: &Arrived, range: Range<usize>) -> Result<B, AssemblyError> {
    let mut buffer = B::allocate(range.len()).ok_or(AssemblyError::NoMemory(range.len()))?;
    arrived.copy_out(range.start, buffer.memory());
    Ok(buffer)
}
