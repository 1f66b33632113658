//! The bytes of a transfer on their way into a work request: inline, or through the staging memory.

use std::ops::Range;

use inet_rdma_verbs::memory::{MemoryRegion, Sge};
use inet_rdma_verbs::qp::SGES_MAX;

/// Gathers `source` for a write that goes along inline; None: too many bytes or elements for that.
pub(crate) fn inline<'a>(
    source: &[&'a [u8]],
    total: usize,
    (bytes_max, pieces_max): (usize, usize),
) -> Option<([&'a [u8]; SGES_MAX], usize)> {
    if total > bytes_max {
        return None;
    }
    let mut pieces: [&[u8]; SGES_MAX] = [&[]; SGES_MAX];
    let mut count = 0;
    for piece in source.iter().filter(|piece| !piece.is_empty()) {
        *pieces[..pieces_max].get_mut(count)? = piece;
        count += 1;
    }
    Some((pieces, count))
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
