//! Counts of a connection.

use std::sync::atomic::{AtomicU64, Ordering};

use inet_rdma_assembly::Sizes;
use inet_rdma_fabric::Safeguard;
use inet_rdma_stream::Counters;

use super::Connection;
use super::core::Core;
use super::landing_memory::LandingState;
use super::notifier::Notifier;

/// Counts that are not the stream's.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) packets_sent: Count,
    pub(super) packets_received: Count,
    pub(super) largest_sent: Count,
    pub(super) sizes_received: ReadSizes,
    pub(super) zero_copy_packets: Count,
    pub(super) polls: Count,
    pub(super) wakeups_received: AtomicU64,
}

/// Counted with `core` locked, so without a locked instruction of its own; read at any time.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    #[inline]
    pub(super) fn add<T>(&self, _locked: &Core<T>, more: usize) {
        self.0.store(self.get() + more as u64, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn raise<T>(&self, _locked: &Core<T>, to: usize) {
        self.0.store(self.get().max(to as u64), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Sizes of the packets that were read, without ticks. Counted as a [`Count`] is.
#[derive(Debug, Default)]
pub(super) struct ReadSizes {
    packets: Count,
    bytes: Count,
    largest: Count,
    /// The sum of their squares, as the bits of an f64, which takes any number of packets.
    squares: AtomicU64,
}

impl ReadSizes {
    #[inline]
    pub(super) fn add<T>(&self, locked: &Core<T>, sizes: Sizes) {
        self.packets.add(locked, sizes.packets);
        self.bytes.add(locked, sizes.bytes);
        self.largest.raise(locked, sizes.largest);
        let before = f64::from_bits(self.squares.load(Ordering::Relaxed));
        let squares = before + sizes.squares as f64;
        self.squares.store(squares.to_bits(), Ordering::Relaxed);
    }

    /// Their standard deviation.
    fn deviation<T>(&self, _locked: &Core<T>) -> f64 {
        let packets = self.packets.get().max(1) as f64;
        let average = self.bytes.get() as f64 / packets;
        let squares = f64::from_bits(self.squares.load(Ordering::Relaxed)) / packets;
        // Rounding may make it a little less than nothing.
        (squares - average * average).max(0.0).sqrt()
    }
}

/// Counts of one connection since its start.
#[derive(Debug, Clone, Copy)]
pub struct Statistics {
    /// The stream's counts.
    pub stream: Counters,
    /// Packets sent, ticks included.
    pub packets_sent: u64,
    /// Packets received, ticks included.
    pub packets_received: u64,
    /// Size of the largest packet sent, with its header.
    pub largest_packet_sent: u64,
    /// Size of the largest packet read, with its header.
    pub largest_packet_received: u64,
    /// Bytes of the packets that were read, with their headers.
    pub packet_bytes_received: u64,
    /// Standard deviation of their sizes, in bytes.
    pub packet_deviation_received: f64,
    /// Packets that were handed over as they had landed, without a copy.
    pub zero_copy_packets: u64,
    /// Why that is safe.
    pub safeguard: Safeguard,
    /// Looks at the receive queue.
    pub polls: u64,
    /// Events that cost the peer a system call.
    pub wakeups_sent: u64,
    /// Events taken from the event fd.
    pub wakeups_received: u64,
    /// Size of the ring that the peer writes into.
    pub ring_bytes: u32,
    /// Bytes in it that are not read yet.
    pub ring_used: u32,
    /// Landing buffers of this side that there are now.
    pub landing_buffers: u16,
    /// Landing buffers advertised or held by the user.
    pub landing_used: u16,
    /// Whether there is memory for them.
    pub landing_state: LandingState,
    /// How often the system has refused memory for them.
    pub landing_refusals: u64,
    /// Bytes of that memory.
    pub landing_bytes: u64,
    /// Bytes of memory for rings.
    pub ring_memory_bytes: u64,
}

impl<N: Notifier> Connection<N> {
    /// Packets received and sent, ticks included: by these counts `dist_util` tells whether the peer lives.
    pub fn packets(&self) -> (u64, u64) {
        (self.tally.packets_received.get(), self.tally.packets_sent.get())
    }

    /// Counts a packet whose bytes are written without its borders ([`inet_rdma_assembly::Gather::end_packet`]).
    pub fn count_packet_sent(&self) {
        self.tally.packets_sent.add(&self.core.lock(), 1);
    }

    /// All counts.
    pub fn statistics(&self) -> Statistics {
        let core = self.core.lock();
        let (packets_received, packets_sent) = self.packets();
        Statistics {
            stream: *core.stream.counters(),
            packets_sent,
            packets_received,
            largest_packet_sent: self.tally.largest_sent.get(),
            largest_packet_received: self.tally.sizes_received.largest.get(),
            packet_bytes_received: self.tally.sizes_received.bytes.get(),
            packet_deviation_received: self.tally.sizes_received.deviation(&core),
            zero_copy_packets: self.tally.zero_copy_packets.get(),
            safeguard: self.safeguard,
            polls: self.tally.polls.get(),
            wakeups_sent: self.qp.wakeups_sent(),
            wakeups_received: self.tally.wakeups_received.load(Ordering::Relaxed),
            ring_bytes: core.stream.ring_bytes(),
            ring_used: core.stream.ring_bytes_readable(),
            landing_buffers: core.landing.count(),
            landing_used: core.landing.used(),
            landing_state: core.landing.state(),
            landing_refusals: core.landing.refusals(),
            landing_bytes: core.landing.bytes() as u64,
            ring_memory_bytes: (self.qp.memory().bytes() + core.ring.bytes()) as u64,
        }
    }
}
