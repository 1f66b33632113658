//! Counts of transfers and messages, for people and measurements; the protocol never reads them.

/// Totals since the start of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Counters {
    /// Transfers written into advertised buffers.
    pub direct_transfers_sent: u64,
    /// Transfers written into the peer's ring.
    pub indirect_transfers_sent: u64,
    /// Bytes written into advertised buffers.
    pub direct_bytes_sent: u64,
    /// Bytes written into the peer's ring.
    pub indirect_bytes_sent: u64,
    /// Transfers that arrived in advertised buffers.
    pub direct_transfers_received: u64,
    /// Transfers that arrived in the ring.
    pub indirect_transfers_received: u64,
    /// Bytes that arrived in advertised buffers.
    pub direct_bytes_received: u64,
    /// Bytes that arrived in the ring.
    pub indirect_bytes_received: u64,
    /// Changes between direct and indirect as a sender.
    pub phase_switches_sent: u64,
    /// Changes between direct and indirect as a receiver.
    pub phase_switches_received: u64,
    /// Times that a transfer had to wait for a free receive slot of the peer.
    pub credit_stalls: u64,
    /// Keepalives sent.
    pub ticks_sent: u64,
    /// Keepalives that arrived.
    pub ticks_received: u64,
    /// Advertisements sent.
    pub adverts_sent: u64,
    /// Advertisements that arrived.
    pub adverts_received: u64,
    /// Advertisements that arrived and could never be used.
    pub adverts_stale: u64,
    /// Control messages sent, of every kind.
    pub controls_sent: u64,
    /// Control messages that arrived, of every kind.
    pub controls_received: u64,
}
