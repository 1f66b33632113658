//! Numbers and sizes of a link's packets.

use std::ops::AddAssign;

use inet_rdma_engine::connection::Statistics;
use inet_rdma_session::LENGTH_BYTES;

/// Packets of queue pairs that the session does not count.
#[derive(Debug, Clone, Copy, Default)]
pub struct QueuePackets {
    /// Received, ticks included.
    pub received: u64,
    /// Ticks sent.
    pub ticks_sent: u64,
}

impl AddAssign for QueuePackets {
    fn add_assign(&mut self, more: QueuePackets) {
        self.received += more.received;
        self.ticks_sent += more.ticks_sent;
    }
}

/// The work of queue pairs.
#[derive(Debug, Clone, Copy, Default)]
pub struct QueueWork {
    /// Transfers that waited for a free receive slot of the peer.
    pub credit_stalls: u64,
    /// Wake-ups of the peer that cost a system call.
    pub wakeups_sent: u64,
    /// Wake-ups of this node that cost a system call.
    pub wakeups_received: u64,
}

impl From<Statistics> for QueueWork {
    fn from(all: Statistics) -> QueueWork {
        QueueWork {
            credit_stalls: all.stream.credit_stalls,
            wakeups_sent: all.wakeups_sent,
            wakeups_received: all.wakeups_received,
        }
    }
}

impl AddAssign for QueueWork {
    fn add_assign(&mut self, more: QueueWork) {
        self.credit_stalls += more.credit_stalls;
        self.wakeups_sent += more.wakeups_sent;
        self.wakeups_received += more.wakeups_received;
    }
}

/// Sizes of packets with their lengths, whichever path carries them. Ticks are left out.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    largest_sent: u64,
    received: u64,
    bytes_received: u64,
    largest_received: u64,
    /// The sum of the squares, as an f64, which takes any number of packets.
    squares_received: f64,
}

impl Tally {
    /// The VM has given a packet of `bytes` bytes.
    pub fn count_sent(&mut self, bytes: usize) {
        self.largest_sent = self.largest_sent.max((LENGTH_BYTES + bytes) as u64);
    }

    /// The VM gets a packet of `bytes` bytes.
    pub fn count_received(&mut self, bytes: usize) {
        let size = (LENGTH_BYTES + bytes) as u64;
        self.received += 1;
        self.bytes_received += size;
        self.largest_received = self.largest_received.max(size);
        self.squares_received += size as f64 * size as f64;
    }

    /// Size of the largest packet sent.
    pub fn largest_sent(&self) -> u64 {
        self.largest_sent
    }

    /// Size of the largest packet received.
    pub fn largest_received(&self) -> u64 {
        self.largest_received
    }

    /// Bytes of all packets received.
    pub fn bytes_received(&self) -> u64 {
        self.bytes_received
    }

    /// The standard deviation of the sizes received, in bytes.
    pub fn deviation_received(&self) -> f64 {
        let packets = self.received.max(1) as f64;
        let average = self.bytes_received as f64 / packets;
        // Rounding may make the difference negative.
        (self.squares_received / packets - average * average).max(0.0).sqrt()
    }
}
