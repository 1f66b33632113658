//! The bytes of a transfer on their way into a work request: inline, or through the staging memory.

use std::ops::Range;

use inet_rdma_verbs::memory::{MemoryRegion, Sge};

/// Number of inline bytes of a work request that is asked for; a device may allow fewer.
pub(crate) const INLINE_BYTES: usize = 220;

pub(crate) struct Inline {
    bytes: [u8; INLINE_BYTES],
    count: usize,
}

impl Inline {
    /// The `total` bytes of `source`, in one piece: some providers send no more than the first element of an inline
    /// request. None: more than `bytes_max`.
    pub(crate) fn gather(source: &[&[u8]], total: usize, bytes_max: usize) -> Option<Inline> {
        if total > bytes_max.min(INLINE_BYTES) {
            return None;
        }
        let mut bytes = [0; INLINE_BYTES];
        let mut count = 0;
        for piece in source {
            bytes[count..count + piece.len()].copy_from_slice(piece);
            count += piece.len();
        }
        Some(Inline { bytes, count })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.count]
    }
}

/// Copies `source` to the staging ranges, and names them.
pub(crate) fn copy(staging: &MemoryRegion, ranges: [Range<usize>; 2], source: &[&[u8]]) -> ([Sge; 2], usize) {
    let sges = ranges.clone().map(|range| staging.sge(range.start, range.len()));
    let count = if ranges[1].is_empty() { 1 } else { 2 };
    let [mut place, mut behind] = ranges;
    for piece in source {
        let mut rest = *piece;
        while !rest.is_empty() {
            if place.is_empty() {
                place = std::mem::take(&mut behind);
            }
            let (now, later) = rest.split_at(rest.len().min(place.len()));
            staging.write(place.start, now);
            place.start += now.len();
            rest = later;
        }
    }
    (sges, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_one_inline_element() {
        let inline = |source: &[&[u8]], bytes_max| {
            let total = source.iter().map(|piece| piece.len()).sum();
            Inline::gather(source, total, bytes_max).map(|inline| inline.bytes().to_vec())
        };
        assert_eq!(inline(&[b"length", b"", b"packet"], 12), Some(b"lengthpacket".to_vec()));
        assert_eq!(inline(&[b"length", b"packet"], 11), None, "the device takes 11 bytes");
        let large = [7; INLINE_BYTES + 1];
        assert_eq!(inline(&[&large], usize::MAX), None);
        assert_eq!(inline(&[&large[1..]], usize::MAX), Some(large[1..].to_vec()));
    }
}
