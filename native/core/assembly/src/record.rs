//! Records: encrypted bytes are decrypted into the memory of packets.

use bytes::buf::UninitSlice;

use crate::packet_start::{PacketStart, Partial};
use crate::{Arrived, Assembly, AssemblyError, Buffer, Framing, ReadLimit, Received};

/// A record of which the limit of a read has left bytes: the buffer, and the offset of the first byte left.
pub type Rest<B> = Option<(B, usize)>;

impl<B: Buffer> Assembly<B> {
    /// Takes in a record of `bytes` user bytes. `open` decrypts them into the buffer of the packet that has begun,
    /// if that takes all of them; else into a buffer that the packets of the record share.
    pub fn push_record<E: From<AssemblyError>>(
        &mut self,
        bytes: usize,
        limit: ReadLimit,
        out: &mut Vec<Received<B>>,
        open: impl FnOnce(&mut UninitSlice) -> Result<(), E>,
    ) -> Result<Rest<B>, E> {
        if let Some(missing) = self.missing_of(bytes, limit)? {
            open(&mut missing[..bytes])?;
            self.note_filled(bytes, out);
            return Ok(None);
        }
        let mut buffer = B::allocate(bytes).ok_or(AssemblyError::NoMemory(bytes))?;
        open(buffer.memory())?;
        Ok(match self.framing {
            Framing::Raw if limit.exact == 0 && bytes <= limit.bytes => {
                self.largest = self.largest.max(bytes);
                out.push(Received::Whole(buffer));
                None
            }
            Framing::Raw | Framing::Line { .. } => Some((buffer, 0)),
            Framing::Length1 => self.cut::<1>(buffer, limit, out)?,
            Framing::Length2 => self.cut::<2>(buffer, limit, out)?,
            Framing::Length4 => self.cut::<4>(buffer, limit, out)?,
        })
    }

    /// Takes in the bytes of a record that an earlier read has left, as [`Self::push`] does.
    pub fn push_rest(
        &mut self,
        (mut buffer, at): (B, usize),
        limit: ReadLimit,
        out: &mut Vec<Received<B>>,
    ) -> Result<Rest<B>, AssemblyError> {
        let bytes = buffer.bytes();
        let taken = self.push(&arrived(&mut buffer, at), limit, out)?;
        Ok((at + taken < bytes).then_some((buffer, at + taken)))
    }

    /// Memory for the next bytes of the packet that has begun, if it takes this many bytes.
    fn missing_of(&mut self, bytes: usize, limit: ReadLimit) -> Result<Option<&mut UninitSlice>, AssemblyError> {
        if self.framing == Framing::Raw && self.is_at_boundary() && limit.exact >= bytes {
            self.packet_start = PacketStart::Packet(Partial::new(limit.exact)?);
        }
        Ok(match &mut self.packet_start {
            PacketStart::Packet(partial) if partial.bytes - partial.filled >= bytes => Some(partial.missing()),
            PacketStart::Nothing | PacketStart::Header(_) | PacketStart::Line(_) | PacketStart::Packet(_) => None,
        })
    }

    /// Cuts a record at the boundaries of its packets. Complete packets share its buffer; the parts at both ends
    /// are copied.
    fn cut<const HEADER: usize>(
        &mut self,
        mut buffer: B,
        limit: ReadLimit,
        out: &mut Vec<Received<B>>,
    ) -> Result<Rest<B>, AssemblyError> {
        let bytes = buffer.bytes();
        let arrived = arrived(&mut buffer, 0);
        let had = out.len();
        let from = self.finish_packet::<HEADER>(&arrived, out)?;
        if from == bytes {
            return Ok(None);
        }
        let wanted = limit.packets - (out.len() - had);
        let mut packets = Vec::new();
        let mut at = from;
        while let Some(packet) = self.complete_packet::<HEADER>(&arrived, at)? {
            if packets.len() == wanted {
                // The limit might not allow all bytes: `push_rest` copies as many as it allows.
                return Ok(Some((buffer, from)));
            }
            at = packet.end;
            packets.push(packet);
        }
        self.begin_packet::<HEADER>(&arrived, at)?;
        if !packets.is_empty() {
            out.push(Received::Batch { bytes: buffer, packets });
        }
        Ok(None)
    }
}

/// The bytes of a buffer from `at` on, which have been written.
pub(crate) fn arrived<B: Buffer>(buffer: &mut B, at: usize) -> Arrived {
    let bytes = &mut buffer.memory()[at..];
    // SAFETY: the bytes are the buffer's, which its owner, one of this crate's functions, neither drops nor writes
    // while it uses the value.
    unsafe { Arrived::new([(bytes.as_mut_ptr(), bytes.len()), (std::ptr::null(), 0)]) }
}
