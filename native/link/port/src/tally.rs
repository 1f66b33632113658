//! Numbers and sizes of a link's packets.

use std::ops::AddAssign;

use inet_rdma_envelope::Off;
use inet_rdma_session::LENGTH_BYTES;

use crate::attribution::Attribution;
use crate::port::Packet;

/// What queue pairs have done, beside what the session counts.
#[derive(Debug, Clone, Copy, Default)]
pub struct QueueCounts {
    /// Packets received, ticks included.
    pub packets_received: u64,
    pub ticks_sent: u64,
    /// Transfers that waited for a free receive slot of the peer.
    pub credit_stalls: u64,
    /// Wake-ups of the peer that cost a system call.
    pub wakeups_sent: u64,
    /// Wake-ups of this node that cost a system call.
    pub wakeups_received: u64,
}

impl AddAssign for QueueCounts {
    fn add_assign(&mut self, more: QueueCounts) {
        self.packets_received += more.packets_received;
        self.ticks_sent += more.ticks_sent;
        self.credit_stalls += more.credit_stalls;
        self.wakeups_sent += more.wakeups_sent;
        self.wakeups_received += more.wakeups_received;
    }
}

/// Sizes of packets with their lengths, whichever path carries them. Ticks are left out.
#[derive(Default)]
pub struct Tally {
    /// Senders and targets, from the first packet on; None until then.
    attribution: Option<Box<Attribution>>,
    attributes: bool,
    /// Why the packets of a direction are no longer read, for the guard.
    unread: Option<String>,
    pub largest_sent: u64,
    /// Number of packets received.
    pub received: u64,
    pub bytes_received: u64,
    pub largest_received: u64,
    /// The sum of the squares, as an f64, which takes any number of packets.
    squares_received: f64,
}

impl Tally {
    /// Counts senders and targets, too. Before the first packet.
    pub fn attribute(&mut self) {
        self.attributes = true;
    }

    /// The senders and targets. None: they are not counted.
    #[inline]
    pub fn attribution(&mut self) -> Option<&mut Attribution> {
        self.attributes
            .then(|| &mut **self.attribution.get_or_insert_with(Attribution::begin))
    }

    /// The VM has given a packet.
    #[inline]
    pub fn count_sent(&mut self, packet: &Packet<'_>) {
        self.largest_sent = self.largest_sent.max((LENGTH_BYTES + packet.bytes()) as u64);
        if let Some(off) = self
            .attribution()
            .and_then(|attribution| attribution.count_sent(packet))
        {
            self.set_unread("sent", off);
        }
    }

    /// The VM gets a packet of `bytes` bytes, which are only looked at if senders and targets are counted.
    #[inline]
    pub fn count_received<'a>(&mut self, bytes: usize, packet: impl FnOnce() -> &'a [u8]) {
        if let Some(off) = self
            .attribution()
            .and_then(|attribution| attribution.count_received(packet()))
        {
            self.set_unread("received", off);
        }
        let size = (LENGTH_BYTES + bytes) as u64;
        self.received += 1;
        self.bytes_received += size;
        self.largest_received = self.largest_received.max(size);
        self.squares_received += size as f64 * size as f64;
    }

    #[cold]
    fn set_unread(&mut self, direction: &str, off: Off) {
        self.unread = Some(format!("of the packets {direction}: {off}"));
    }

    /// Why the packets of a direction are no longer read; once.
    #[inline]
    pub fn take_unread(&mut self) -> Option<String> {
        self.unread.take()
    }

    /// The standard deviation of the sizes received, in bytes.
    pub fn deviation_received(&self) -> f64 {
        let packets = self.received.max(1) as f64;
        let average = self.bytes_received as f64 / packets;
        // Rounding may make the difference negative.
        (self.squares_received / packets - average * average).max(0.0).sqrt()
    }
}
