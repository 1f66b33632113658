//! Bytes to send, as slices with packet boundaries.

use std::ops::Range;

use smallvec::SmallVec;

use crate::LandingBuffer;

/// Packets to send: slices in stream order, and the end of each packet. One small packet takes no heap memory.
pub struct Gather<'a> {
    slices: SmallVec<[&'a [u8]; 4]>,
    ends: Ends,
    total: usize,
    /// Bytes of the first packet that are sent already and not in this gather.
    before: usize,
}

/// Stream offset of each packet's end, ascending. Most gathers have one packet. `repr(u8)` gives the enum a tag of one
/// byte: without it the tag would be among the values of the vector's capacity, which takes more instructions to test.
#[repr(u8)]
enum Ends {
    None,
    One(usize),
    Many(Vec<usize>),
}

impl<'a> Gather<'a> {
    /// An empty gather for a packet of a few slices.
    #[inline]
    pub fn small() -> Self {
        Self::with_capacity(0, 0)
    }

    /// An empty gather with room for this many slices and packets.
    #[inline]
    pub fn with_capacity(slices: usize, packets: usize) -> Self {
        Self {
            slices: SmallVec::with_capacity(slices),
            ends: match packets {
                0 | 1 => Ends::None,
                _ => Ends::Many(Vec::with_capacity(packets)),
            },
            total: 0,
            before: 0,
        }
    }

    /// Says that the gather lacks the first `bytes` bytes of its first packet, as they are sent already.
    #[inline]
    pub fn goes_on_behind(&mut self, bytes: usize) {
        self.before = bytes;
    }

    /// Adds bytes to the packet that is being added.
    #[inline]
    pub fn push(&mut self, slice: &'a [u8]) {
        self.total += slice.len();
        self.slices.push(slice);
    }

    /// Adds the bytes `range` of a landing buffer to the packet that is being added: bytes of one connection go out
    /// over another without a copy.
    ///
    /// # Panics
    ///
    /// Where the range does not end inside the buffer.
    #[inline]
    pub fn push_landed(&mut self, buffer: &'a LandingBuffer, range: Range<usize>) {
        let bytes = range.len();
        let start = buffer.range(range);
        // SAFETY: `range` gives a part of the buffer, which is borrowed, and so mapped, for 'a. The peer that filled it
        // writes it again only if it breaks the protocol; fabrics copy what a gather refers to and never look at it.
        self.push(unsafe { std::slice::from_raw_parts(start, bytes) });
    }

    /// Ends the packet that is being added.
    #[inline]
    pub fn end_packet(&mut self) {
        self.end_packet_at(self.total);
    }

    /// Ends the packet that is being added at `end` bytes from the start of the gather, though its last bytes are not
    /// here yet.
    #[inline]
    pub fn end_packet_at(&mut self, end: usize) {
        match &mut self.ends {
            Ends::None => self.ends = Ends::One(end),
            Ends::One(first) => self.ends = Ends::Many(vec![*first, end]),
            Ends::Many(ends) => ends.push(end),
        }
    }

    /// All bytes.
    #[inline]
    pub fn total(&self) -> usize {
        self.total
    }

    /// The end of each packet, as an offset in the gather.
    #[inline]
    pub fn ends(&self) -> &[usize] {
        match &self.ends {
            Ends::None => &[],
            Ends::One(end) => std::slice::from_ref(end),
            Ends::Many(ends) => ends,
        }
    }

    /// How many packets end at or before `at`.
    #[inline(always)]
    pub fn packets_before(&self, at: usize) -> usize {
        match self.ends {
            Ends::One(end) => usize::from(end <= at),
            _ => self.packets_of_many_before(at),
        }
    }

    #[inline(never)]
    fn packets_of_many_before(&self, at: usize) -> usize {
        // Most transfers send all packets.
        match self.ends() {
            [first, ..] if *first > at => 0,
            [.., last] if *last <= at => self.ends().len(),
            ends => ends.partition_point(|&end| end <= at),
        }
    }

    /// How many packets end at or before `at`, and the size of the next one, with its bytes that were sent
    /// before; 0: there is none.
    #[inline(always)]
    pub fn packet_at(&self, at: usize) -> (usize, usize) {
        match self.ends {
            Ends::One(end) if at < end => (0, end.wrapping_sub(self.start_of(0))),
            _ => self.packet_of_many_at(at),
        }
    }

    #[inline(never)]
    fn packet_of_many_at(&self, at: usize) -> (usize, usize) {
        let index = self.packets_before(at);
        let end = self.ends().get(index);
        (index, end.map_or(0, |end| end.wrapping_sub(self.start_of(index))))
    }

    /// Size of the largest of these packets; 0: there are none.
    #[inline(never)]
    pub fn largest_of(&self, packets: Range<usize>) -> usize {
        let mut start = self.start_of(packets.start);
        let mut largest = 0;
        for &end in &self.ends()[packets] {
            largest = largest.max(end.wrapping_sub(start));
            start = end;
        }
        largest
    }

    /// The offset at which a packet starts. Wraps below 0 if the first bytes of the packet were sent before.
    #[inline]
    fn start_of(&self, index: usize) -> usize {
        match index {
            0 => 0usize.wrapping_sub(self.before),
            _ => self.ends()[index - 1],
        }
    }

    /// The bytes from `at` on that should go into one landing buffer of `room` bytes: one packet of at least `bulk`
    /// bytes alone, so that the receiver can hand it over without a copy, or smaller packets together up to the
    /// next such packet. Cuts only a packet that is larger than the buffer.
    #[inline]
    pub fn direct_prefix(&self, at: usize, room: usize, bulk: usize) -> usize {
        let room = room.min(self.total - at);
        let mut taken = 0;
        let mut start = at;
        for &end in &self.ends()[self.packets_before(at)..] {
            let packet = end - start;
            if packet >= bulk || taken + packet > room {
                return if taken == 0 { packet.min(room) } else { taken };
            }
            taken += packet;
            start = end;
        }
        taken
    }

    /// The slices of `len` bytes from `at` on.
    #[inline(never)]
    pub fn range(&self, at: usize, len: usize) -> Vec<&'a [u8]> {
        let (mut skip, mut left) = (at, len);
        let mut out = Vec::with_capacity(self.slices.len());
        for slice in &self.slices {
            if left == 0 {
                break;
            }
            if skip >= slice.len() {
                skip -= slice.len();
                continue;
            }
            let part = &slice[skip..slice.len().min(skip + left)];
            skip = 0;
            left -= part.len();
            out.push(part);
        }
        out
    }

    /// All slices.
    #[inline]
    pub fn slices(&self) -> &[&'a [u8]] {
        &self.slices
    }
}

#[cfg(test)]
mod tests {
    use super::Gather;

    fn packets<'a>(packets: &[&'a [u8]]) -> Gather<'a> {
        let mut gather = Gather::with_capacity(packets.len(), packets.len());
        for packet in packets {
            let (left, right) = packet.split_at(packet.len() / 2);
            gather.push(left);
            gather.push(right);
            gather.end_packet();
        }
        gather
    }

    #[test]
    fn small_packets_share_a_buffer_up_to_the_next_bulk_packet() {
        let gather = packets(&[b"aa", b"bbb", b"cccccccccc", b"d"]);
        assert_eq!(gather.direct_prefix(0, 64, 8), 5);
        assert_eq!(gather.direct_prefix(5, 64, 8), 10);
        assert_eq!(gather.direct_prefix(15, 64, 8), 1);
    }

    #[test]
    fn only_a_packet_larger_than_the_buffer_is_cut() {
        let gather = packets(&[b"aa", b"bbb", b"cccccccccc"]);
        assert_eq!(gather.direct_prefix(0, 4, 8), 2);
        assert_eq!(gather.direct_prefix(5, 4, 8), 4);
        assert_eq!(gather.direct_prefix(9, 4, 8), 4);
    }

    #[test]
    fn the_rest_of_a_packet_is_of_its_size() {
        let mut gather = packets(&[b"aa", b"cccccccccc"]);
        let packet_at = |gather: &Gather<'_>, at| gather.packet_at(at).1;
        assert_eq!([0, 1, 2, 11, 12].map(|at| packet_at(&gather, at)), [2, 2, 10, 10, 0]);
        gather.goes_on_behind(9);
        assert_eq!([0, 1, 2, 11, 12].map(|at| packet_at(&gather, at)), [11, 11, 10, 10, 0]);
        assert_eq!(
            [0..0, 0..1, 0..2, 1..2].map(|packets| gather.largest_of(packets)),
            [0, 11, 11, 10]
        );
    }

    #[test]
    fn a_gather_grows_from_no_packet_to_many() {
        let ask = |gather: &Gather<'_>| [0, 2, 3, 5].map(|at| (gather.packets_before(at), gather.packet_at(at)));
        let mut gather = Gather::small();
        gather.push(b"aaa");
        assert_eq!((gather.ends(), ask(&gather)), (&[][..], [(0, (0, 0)); 4]));
        gather.end_packet();
        let answers = [(0, (0, 3)), (0, (0, 3)), (1, (1, 0)), (1, (1, 0))];
        assert_eq!((gather.ends(), ask(&gather)), (&[3][..], answers));
        gather.push(b"bb");
        gather.end_packet();
        let answers = [(0, (0, 3)), (0, (0, 3)), (1, (1, 2)), (2, (2, 0))];
        assert_eq!((gather.ends(), ask(&gather)), (&[3, 5][..], answers));
    }

    #[test]
    fn any_range_gives_the_bytes_of_that_range() {
        let gather = packets(&[b"abc", b"", b"defgh"]);
        for at in 0..=8 {
            for len in 0..=8 - at {
                assert_eq!(gather.range(at, len).concat(), &b"abcdefgh"[at..at + len]);
            }
        }
    }
}
