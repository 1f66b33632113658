//! What a read gives, and how much it may take.

use std::ops::Range;

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
