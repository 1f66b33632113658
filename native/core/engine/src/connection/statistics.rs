//! The counts of a connection, for its user.

use std::sync::atomic::Ordering;

use inet_rdma_fabric::Safeguard;
use inet_rdma_stream::Counters;

use super::landing::LandingState;
use super::state::{Connection, Sealed};

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
    /// Standard deviation of these packets' sizes, in bytes.
    pub packet_deviation_received: f64,
    /// Packets that were handed over in their landing buffers, without a copy.
    pub zero_copy_packets: u64,
    /// What keeps the peer from changing zero-copy buffers.
    pub safeguard: Safeguard,
    /// Looks at the receive queue.
    pub polls: u64,
    /// Events that cost the peer a system call.
    pub wakeups_sent: u64,
    /// Events taken from the event fd.
    pub wakeups_received: u64,
    /// Size of the ring that the peer writes into.
    pub ring_size_bytes: u32,
    /// Bytes in the ring that are not read yet.
    pub ring_used: u32,
    /// Present number of landing buffers.
    pub landing_count: u16,
    /// Landing buffers that the peer or the user has.
    pub landing_used: u16,
    /// State of the memory for landing buffers.
    pub landing_state: LandingState,
    /// Number of refusals of memory for landing buffers.
    pub landing_refusals: u64,
    /// Bytes of memory for landing buffers.
    pub landing_memory_bytes: u64,
    /// Bytes of memory for rings.
    pub ring_memory_bytes: u64,
}

impl Connection {
    /// Packets received and sent, ticks included: by these counts `dist_util` tells whether the peer lives.
    pub fn packets(&self) -> (u64, u64) {
        (self.tally.packets_received.get(), self.tally.packets_sent.get())
    }

    /// Bytes of a stream without landing buffers that the peer has acknowledged to have read, at least. Exact once the
    /// peer has acknowledged all; before that, the overhead of a sealed connection is taken for acknowledged first.
    pub fn read_by_peer(&self) -> u64 {
        let core = self.core.lock();
        let overhead = core.records.as_ref().map_or(0, |records| records.overhead_sent);
        core.stream.ring_acknowledged().0.saturating_sub(overhead)
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
            ring_size_bytes: core.stream.ring_bytes(),
            ring_used: core.stream.ring_bytes_readable(),
            landing_count: core.landing.memory.count(),
            landing_used: core.landing.memory.used(),
            landing_state: core.landing.memory.state,
            landing_refusals: core.landing.memory.refusals,
            landing_memory_bytes: core.landing.memory.bytes() as u64,
            ring_memory_bytes: (self.qp.memory().bytes() + core.ring.bytes()) as u64,
        }
    }
}

impl Connection {
    /// The state of the seals. None: the stream is plain.
    pub fn sealed_by(&self) -> Option<Sealed> {
        let records = self.records.as_ref()?;
        let (cipher, usage) = {
            let sealer = records.sealer.lock();
            (sealer.sealer.cipher(), sealer.sealer.usage())
        };
        Some(Sealed {
            cipher,
            usage,
            receive_generation: records.opener.lock().generation(),
        })
    }
}
