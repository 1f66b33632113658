//! The bytes of received packets, for comparisons.

use std::ops::Range;

use inet_rdma_assembly::{LandingBuffer, Received};

/// The packets of what was received, in order.
pub fn packets(received: &[Received<Vec<u8>>]) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for part in received {
        match part {
            Received::Batch { bytes, packets } => {
                out.extend(packets.iter().map(|range| bytes[range.clone()].to_vec()));
            }
            Received::Whole(bytes) => out.push(bytes.clone()),
            Received::Landed(buffer, range) => out.push(landed(buffer, range)),
        }
    }
    out
}

/// The bytes `range` of a landing buffer.
pub fn landed(buffer: &LandingBuffer, range: &Range<usize>) -> Vec<u8> {
    let mut bytes = vec![0; range.len()];
    // SAFETY: what an assembly hands over lies inside its buffer, which is mapped as long as it lives; the destination
    // is fresh and as long as the range.
    unsafe { std::ptr::copy_nonoverlapping(buffer.as_ptr().add(range.start), bytes.as_mut_ptr(), range.len()) };
    bytes
}
