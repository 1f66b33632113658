//! The result of a read, and its limits.

use std::ops::Range;

use bytes::buf::UninitSlice;

use crate::LandingBuffer;

/// Memory that packets are copied into.
pub trait Buffer: Sized {
    /// A buffer of exactly `bytes`; None: no memory.
    fn allocate(bytes: usize) -> Option<Self>;
    /// Its size in bytes.
    fn bytes(&self) -> usize;
    /// All bytes of the buffer. They may be uninitialized: the slice is for writing alone.
    fn memory(&mut self) -> &mut UninitSlice;
}

impl Buffer for Vec<u8> {
    fn allocate(bytes: usize) -> Option<Self> {
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(bytes).ok()?;
        buffer.resize(bytes, 0);
        Some(buffer)
    }

    fn bytes(&self) -> usize {
        self.len()
    }

    fn memory(&mut self) -> &mut UninitSlice {
        UninitSlice::new(self)
    }
}

/// Packets that a read has returned, in stream order.
pub enum Received<B> {
    /// Several packets that share one buffer, each after its header.
    Batch {
        /// The buffer.
        bytes: B,
        /// The range of each packet in the buffer.
        packets: Vec<Range<usize>>,
    },
    /// One packet with a buffer of its own.
    Whole(B),
    /// One packet in the landing buffer into which the peer wrote it: no copy.
    Landed(LandingBuffer, Range<usize>),
}

/// Sizes of packets, with their headers.
#[derive(Debug, Default, Clone, Copy)]
pub struct Sizes {
    /// Number of packets.
    pub packets: usize,
    /// Bytes of all packets.
    pub bytes: usize,
    /// Bytes of the largest packet.
    pub largest: usize,
    /// The sum of the squares of the sizes.
    pub squares: f64,
}

impl Sizes {
    #[inline]
    fn one(bytes: usize) -> Self {
        Sizes {
            packets: 1,
            bytes,
            largest: bytes,
            squares: square(bytes),
        }
    }
}

/// Packets are below 4 GiB; the processor converts a `u32` in one instruction.
#[inline]
fn square(bytes: usize) -> f64 {
    let bytes = f64::from(bytes as u32);
    bytes * bytes
}

impl<B: Buffer> Received<B> {
    /// Sizes of the packets, where the header before each has `header_bytes` bytes.
    pub fn sizes(&self, header_bytes: usize) -> Sizes {
        match self {
            Received::Batch { packets, .. } => {
                let mut sizes = Sizes {
                    packets: packets.len(),
                    ..Sizes::default()
                };
                for packet in packets {
                    let size = header_bytes + packet.len();
                    sizes.bytes += size;
                    sizes.largest = sizes.largest.max(size);
                    sizes.squares += square(size);
                }
                sizes
            }
            Received::Whole(buffer) => Sizes::one(header_bytes + buffer.bytes()),
            Received::Landed(_, range) => Sizes::one(header_bytes + range.len()),
        }
    }
}

impl<B> Received<B> {
    /// Number of packets.
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
    /// Approximate bound in bytes; with [`Framing::Raw`](crate::Framing::Raw) an exact one.
    pub bytes: usize,
    /// Maximum number of packets.
    pub packets: usize,
    /// With [`Framing::Raw`](crate::Framing::Raw): the exact number of bytes to hand over, however they arrive; 0: all
    /// bytes that have arrived.
    pub exact: usize,
}

impl ReadLimit {
    /// Limits a read by bytes alone: everything that has arrived, up to about `bytes` bytes.
    #[inline]
    pub fn bytes(bytes: usize) -> Self {
        Self {
            bytes,
            packets: usize::MAX,
            exact: 0,
        }
    }
}
