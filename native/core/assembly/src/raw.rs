//! Raw reads: all bytes that have arrived, or exactly the number that a read asks for.

use crate::packet_start::{PacketStart, Partial};
use crate::record::arrived;
use crate::{Arrived, Assembly, AssemblyError, Buffer, Framing, ReadLimit, Received, copy};

impl<B: Buffer> Assembly<B> {
    pub(crate) fn push_raw(
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
        if self.is_at_boundary() {
            self.packet_start = PacketStart::Packet(Partial::new(limit.exact)?);
        }
        Ok(self.fill_packet(arrived, 0, out))
    }

    /// Serves a raw read of a new length from the bytes that an unfinished raw read has kept. Returns the number of
    /// bytes handed over; None: the kept bytes do not suffice. Bytes beyond the new length stay in their buffer, so
    /// that many small reads copy each byte once.
    #[inline]
    pub fn retarget(&mut self, limit: ReadLimit, out: &mut Vec<Received<B>>) -> Result<Option<usize>, AssemblyError> {
        match self.framing {
            Framing::Raw => self.retarget_raw(limit, out),
            _ => Ok(None),
        }
    }

    fn retarget_raw(&mut self, limit: ReadLimit, out: &mut Vec<Received<B>>) -> Result<Option<usize>, AssemblyError> {
        let PacketStart::Packet(kept) = &mut self.packet_start else {
            return Ok(None);
        };
        if kept.bytes == limit.exact && kept.kept() < kept.bytes && kept.taken == 0 {
            return Ok(None);
        }
        let wanted = if limit.exact == 0 {
            kept.kept().min(limit.bytes)
        } else {
            limit.exact
        };
        if wanted == 0 {
            return Ok(None);
        }
        let now = kept.kept().min(wanted);
        let mut next = Partial::<B>::new(wanted)?;
        arrived(&mut kept.buffer, kept.taken).copy_out(0, &mut next.missing()[..now]);
        next.filled = now;
        kept.taken += now;
        if kept.kept() == 0 {
            self.packet_start = PacketStart::Nothing;
        }
        if next.filled == wanted {
            out.push(Received::Whole(next.buffer));
            return Ok(Some(wanted));
        }
        self.packet_start = PacketStart::Packet(next);
        Ok(None)
    }
}
