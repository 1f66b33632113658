//! Lines: packets that end with a newline, which is a part of the packet.

use bytes::buf::UninitSlice;

use crate::packet_start::PacketStart;
use crate::{Arrived, Assembly, AssemblyError, Buffer, ReadLimit, Received, copy};

const NEWLINE: u8 = b'\n';

impl<B: Buffer> Assembly<B> {
    /// `bytes_max`: a longer line is handed over in pieces of this size. Never inlined, so that it costs the other
    /// framings nothing.
    #[inline(never)]
    pub(crate) fn push_lines(
        &mut self,
        bytes_max: usize,
        arrived: &Arrived,
        limit: ReadLimit,
        out: &mut Vec<Received<B>>,
    ) -> Result<usize, AssemblyError> {
        let had = out.len();
        let from = match &self.packet_start {
            PacketStart::Line(kept) => match self.line_end(bytes_max, arrived, 0, kept.len())? {
                Some(end) => {
                    self.finish_line(arrived, end, out)?;
                    end
                }
                None => return self.keep_line(arrived, 0),
            },
            _ => 0,
        };
        let wanted = limit.packets - (out.len() - had);
        let mut lines = Vec::new();
        let mut at = from;
        while lines.len() < wanted && at < arrived.len() {
            let Some(end) = self.line_end(bytes_max, arrived, at, 0)? else {
                break;
            };
            self.largest = self.largest.max(end - at);
            lines.push(at - from..end - from);
            at = end;
        }
        let is_full = lines.len() == wanted;
        if !lines.is_empty() {
            let bytes = copy(arrived, from..at)?;
            out.push(match lines.len() {
                1 => Received::Whole(bytes),
                _ => Received::Batch { bytes, packets: lines },
            });
        }
        if is_full { Ok(at) } else { self.keep_line(arrived, at) }
    }

    /// Completes the line that an earlier push left unfinished with the bytes up to `end`.
    fn finish_line(&mut self, arrived: &Arrived, end: usize, out: &mut Vec<Received<B>>) -> Result<(), AssemblyError> {
        if let PacketStart::Line(start) = std::mem::replace(&mut self.packet_start, PacketStart::Nothing) {
            let bytes = start.len() + end;
            let mut line = B::allocate(bytes).ok_or(AssemblyError::NoMemory(bytes))?;
            let memory = line.memory();
            memory[..start.len()].copy_from_slice(&start);
            arrived.copy_out(0, &mut memory[start.len()..]);
            self.largest = self.largest.max(bytes);
            out.push(Received::Whole(line));
        }
        Ok(())
    }

    /// The end of a line or a piece of a line, which begins at `from`, or `kept` bytes earlier in kept bytes. None:
    /// the end has not arrived. Searches each byte once, however few arrive at a time.
    pub(crate) fn line_end(
        &self,
        bytes_max: usize,
        arrived: &Arrived,
        from: usize,
        kept: usize,
    ) -> Result<Option<usize>, AssemblyError> {
        // At least a byte: `push` takes in at least one.
        let room = bytes_max.saturating_sub(kept).max(1);
        let part = room.min(arrived.len() - from);
        let end = match arrived.find(NEWLINE, from..from + part) {
            Some(newline) => Some(newline + 1),
            None => (part == room).then_some(from + part),
        };
        self.check(kept + end.map_or(part, |end| end - from))?;
        Ok(end)
    }

    /// Keeps the bytes from `from` on, after the bytes kept before. Returns the end of the arrived bytes.
    fn keep_line(&mut self, arrived: &Arrived, from: usize) -> Result<usize, AssemblyError> {
        let left = arrived.len() - from;
        if left == 0 {
            return Ok(arrived.len());
        }
        let mut line = match std::mem::replace(&mut self.packet_start, PacketStart::Nothing) {
            PacketStart::Line(line) => line,
            _ => Vec::new(),
        };
        let bytes = line.len() + left;
        line.try_reserve(left).map_err(|_| AssemblyError::NoMemory(bytes))?;
        line.resize(bytes, 0);
        arrived.copy_out(from, UninitSlice::new(&mut line[bytes - left..]));
        self.packet_start = PacketStart::Line(line);
        Ok(arrived.len())
    }
}
