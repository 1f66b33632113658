//! Counts of a connection that are not the stream's.

use std::sync::atomic::{AtomicU64, Ordering};

use inet_rdma_assembly::Sizes;

use super::core::Core;

#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) packets_sent: Count,
    pub(crate) packets_received: Count,
    pub(crate) largest_sent: Count,
    pub(crate) sizes_received: ReadSizes,
    pub(crate) zero_copy_packets: Count,
    pub(crate) polls: Count,
    pub(crate) wakeups_received: AtomicU64,
}

/// A count that is changed with `core` locked, so without an atomic instruction, and read at any time.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    #[inline]
    pub(crate) fn add(&self, _locked: &Core, more: usize) {
        self.0.store(self.get() + more as u64, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn raise(&self, _locked: &Core, to: usize) {
        self.0.store(self.get().max(to as u64), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Sizes of the packets that were read, without ticks. Counted as a [`Count`] is.
#[derive(Debug, Default)]
pub(crate) struct ReadSizes {
    packets: Count,
    pub(crate) bytes: Count,
    pub(crate) largest: Count,
    /// The sum of the squares of the sizes, as the bits of an f64, which takes any number of packets.
    squares: AtomicU64,
}

impl ReadSizes {
    #[inline]
    pub(crate) fn add(&self, locked: &Core, sizes: Sizes) {
        self.packets.add(locked, sizes.packets);
        self.bytes.add(locked, sizes.bytes);
        self.largest.raise(locked, sizes.largest);
        let before = f64::from_bits(self.squares.load(Ordering::Relaxed));
        let squares = before + sizes.squares;
        self.squares.store(squares.to_bits(), Ordering::Relaxed);
    }

    pub(crate) fn deviation(&self, _locked: &Core) -> f64 {
        let packets = self.packets.get().max(1) as f64;
        let average = self.bytes.get() as f64 / packets;
        let squares = f64::from_bits(self.squares.load(Ordering::Relaxed)) / packets;
        // Rounding may make the difference negative.
        (squares - average * average).max(0.0).sqrt()
    }
}
