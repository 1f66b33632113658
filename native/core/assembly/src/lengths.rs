//! Packets with their length before them. Each function is compiled once per size of the length: a read of a constant
//! number of bytes is one instruction.

use std::ops::Range;

use bytes::buf::UninitSlice;

use crate::framing::announced;
use crate::packet_start::{PacketStart, Partial, PartialHeader};
use crate::{Arrived, Assembly, AssemblyError, Buffer, ReadLimit, Received, copy};

/// Maximum number of packets of a batch for which room is reserved: the peer decides how many there are.
const PACKETS_EXPECTED_MAX: usize = 64;

impl<B: Buffer> Assembly<B> {
    #[inline(always)]
    pub(crate) fn push_packets<const HEADER: usize>(
        &mut self,
        arrived: &Arrived,
        limit: ReadLimit,
        out: &mut Vec<Received<B>>,
    ) -> Result<usize, AssemblyError> {
        if self.is_at_boundary() && limit.packets > 0 {
            // The usual arrival on a quiet connection: one packet.
            if let Some(only) = self
                .complete_packet::<HEADER>(arrived, 0)?
                .filter(|packet| packet.end == arrived.len())
            {
                let end = only.end;
                out.push(Received::Whole(copy(arrived, only)?));
                return Ok(end);
            }
        }
        self.push_many::<HEADER>(arrived, limit, out)
    }

    /// As [`Self::push_packets`], for any bytes.
    #[inline(never)]
    fn push_many<const HEADER: usize>(
        &mut self,
        arrived: &Arrived,
        limit: ReadLimit,
        out: &mut Vec<Received<B>>,
    ) -> Result<usize, AssemblyError> {
        let had = out.len();
        let at = self.finish_packet::<HEADER>(arrived, out)?;
        let wanted = limit.packets - (out.len() - had);
        let (end, packets) = self.complete_packets::<HEADER>(arrived, at, wanted, out)?;
        if packets == wanted {
            return Ok(end);
        }
        self.begin_packet::<HEADER>(arrived, end)?;
        Ok(arrived.len())
    }

    /// The size of the packet whose header is at `at`. Err: packets may not be that large.
    #[inline]
    pub(crate) fn announced_at<const HEADER: usize>(
        &self,
        arrived: &Arrived,
        at: usize,
    ) -> Result<usize, AssemblyError> {
        self.check(announced(arrived.read::<HEADER>(at)))
    }

    /// Takes in more of the packet that an earlier push left unfinished. Returns the position after the bytes taken.
    #[inline(always)]
    pub(crate) fn finish_packet<const HEADER: usize>(
        &mut self,
        arrived: &Arrived,
        out: &mut Vec<Received<B>>,
    ) -> Result<usize, AssemblyError> {
        let PacketStart::Header(header) = &mut self.packet_start else {
            return Ok(self.fill_packet(arrived, 0, out));
        };
        let part = (HEADER - header.filled).min(arrived.len());
        arrived.copy_out(0, UninitSlice::new(&mut header.bytes[header.filled..][..part]));
        header.filled += part;
        if header.filled < HEADER {
            return Ok(part);
        }
        let header = std::array::from_fn(|at| header.bytes[at]);
        self.start_packet::<HEADER>(header)?;
        Ok(self.fill_packet(arrived, part, out))
    }

    fn start_packet<const HEADER: usize>(&mut self, header: [u8; HEADER]) -> Result<(), AssemblyError> {
        let bytes = self.check(announced(header))?;
        self.largest = self.largest.max(bytes);
        self.packet_start = PacketStart::Packet(Partial::new(bytes)?);
        Ok(())
    }

    /// Adds up to `wanted` complete packets from position `from` on to `out`. Returns the end of the last one, and
    /// their number.
    fn complete_packets<const HEADER: usize>(
        &mut self,
        arrived: &Arrived,
        from: usize,
        wanted: usize,
        out: &mut Vec<Received<B>>,
    ) -> Result<(usize, usize), AssemblyError> {
        if !self.is_at_boundary() || wanted == 0 {
            return Ok((from, 0));
        }
        let Some(first) = self.complete_packet::<HEADER>(arrived, from)? else {
            return Ok((from, 0));
        };
        let mut at = first.end;
        let mut next = if wanted > 1 {
            self.complete_packet::<HEADER>(arrived, at)?
        } else {
            None
        };
        if next.is_none() {
            out.push(Received::Whole(copy(arrived, first)?));
            return Ok((at, 1));
        }
        // Packets that arrive together often have one size.
        let alike = (arrived.len() - from) / (first.end - from);
        let mut packets = Vec::with_capacity(alike.min(wanted).min(PACKETS_EXPECTED_MAX));
        packets.push(first.start - from..first.end - from);
        while let Some(packet) = next {
            packets.push(packet.start - from..packet.end - from);
            at = packet.end;
            next = if packets.len() < wanted {
                self.complete_packet::<HEADER>(arrived, at)?
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

    /// The range of the packet whose header is at `at`. None: it has not arrived as a whole.
    #[inline(always)]
    pub(crate) fn complete_packet<const HEADER: usize>(
        &mut self,
        arrived: &Arrived,
        at: usize,
    ) -> Result<Option<Range<usize>>, AssemblyError> {
        if arrived.len() - at < HEADER {
            return Ok(None);
        }
        let bytes = self.announced_at::<HEADER>(arrived, at)?;
        let start = at + HEADER;
        if bytes > arrived.len() - start {
            return Ok(None);
        }
        self.largest = self.largest.max(bytes);
        Ok(Some(start..start + bytes))
    }

    /// Takes in the bytes after the last complete packet.
    #[inline(always)]
    pub(crate) fn begin_packet<const HEADER: usize>(
        &mut self,
        arrived: &Arrived,
        from: usize,
    ) -> Result<(), AssemblyError> {
        let left = arrived.len() - from;
        if left == 0 {
            return Ok(());
        }
        if left < HEADER {
            let mut header = PartialHeader::default();
            arrived.copy_out(from, UninitSlice::new(&mut header.bytes[..left]));
            header.filled = left;
            self.packet_start = PacketStart::Header(header);
            return Ok(());
        }
        self.start_packet::<HEADER>(arrived.read(from))?;
        if let PacketStart::Packet(partial) = &mut self.packet_start {
            // The peer may have rewritten the header since `complete_packet` read it: take no more than was announced.
            let part = (left - HEADER).min(partial.bytes);
            arrived.copy_out(from + HEADER, &mut partial.missing()[..part]);
            partial.filled = part;
        }
        Ok(())
    }
}
