//! What one side saw between two moments.

use std::time::Instant;

use inet_rdma_engine::connection::Statistics;
use inet_rdma_stream::Counters;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::link::Link;

/// Clocks and counters at one moment.
pub struct Gauge {
    at: Instant,
    cpu_s: f64,
    statistics: Statistics,
    messages: u64,
}

/// What one side saw while it measured. Counts of transfers are of the direction from client to server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Seen {
    /// Measured seconds, of this side's clock.
    pub seconds: f64,
    /// CPU seconds of this process, all threads.
    pub cpu_s: f64,
    /// Messages sent or received, checked.
    pub messages: u64,
    /// Transfers into landing buffers.
    pub direct_transfers: u64,
    /// Transfers into the ring.
    pub indirect_transfers: u64,
    /// Bytes of direct transfers.
    pub direct_bytes: u64,
    /// Bytes of indirect transfers.
    pub indirect_bytes: u64,
    /// Changes between direct and indirect transfers.
    pub phase_switches: u64,
    /// Advertisements sent, by the server.
    pub adverts: u64,
    /// Advertisements that came too late, seen by the client.
    pub adverts_stale: u64,
    /// Times that a transfer waited for a receive slot of the peer.
    pub credit_stalls: u64,
    /// Control messages sent.
    pub controls: u64,
    /// Looks at the receive queue.
    pub polls: u64,
    /// Events that this side sent: system calls.
    pub wakeups_sent: u64,
    pub fabric: String,
}

impl Gauge {
    /// Reads all clocks and counters now, after `messages` messages.
    pub fn read(link: &Link, messages: u64) -> Self {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        Self {
            at: Instant::now(),
            cpu_s: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
            statistics: link.connection().statistics(),
            messages,
        }
    }

    /// The difference between `self` and `later`, at the side that sends.
    pub fn sent(&self, later: &Self, link: &Link) -> Seen {
        let [then, now] = [&self.statistics.stream, &later.statistics.stream];
        Seen {
            direct_transfers: now.direct_transfers_sent - then.direct_transfers_sent,
            indirect_transfers: now.indirect_transfers_sent - then.indirect_transfers_sent,
            direct_bytes: now.direct_bytes_sent - then.direct_bytes_sent,
            indirect_bytes: now.indirect_bytes_sent - then.indirect_bytes_sent,
            phase_switches: now.phase_switches_sent - then.phase_switches_sent,
            ..self.common(later, then, now, link)
        }
    }

    /// The difference between `self` and `later`, at the side that receives.
    pub fn received(&self, later: &Self, link: &Link) -> Seen {
        let [then, now] = [&self.statistics.stream, &later.statistics.stream];
        Seen {
            direct_transfers: now.direct_transfers_received - then.direct_transfers_received,
            indirect_transfers: now.indirect_transfers_received - then.indirect_transfers_received,
            direct_bytes: now.direct_bytes_received - then.direct_bytes_received,
            indirect_bytes: now.indirect_bytes_received - then.indirect_bytes_received,
            phase_switches: now.phase_switches_received - then.phase_switches_received,
            ..self.common(later, then, now, link)
        }
    }

    fn common(&self, later: &Self, then: &Counters, now: &Counters, link: &Link) -> Seen {
        Seen {
            seconds: (later.at - self.at).as_secs_f64(),
            cpu_s: later.cpu_s - self.cpu_s,
            messages: later.messages - self.messages,
            direct_transfers: 0,
            indirect_transfers: 0,
            direct_bytes: 0,
            indirect_bytes: 0,
            phase_switches: 0,
            adverts: now.adverts_sent - then.adverts_sent,
            adverts_stale: now.adverts_stale - then.adverts_stale,
            credit_stalls: now.credit_stalls - then.credit_stalls,
            controls: now.controls_sent - then.controls_sent,
            polls: later.statistics.polls - self.statistics.polls,
            wakeups_sent: later.statistics.wakeups_sent - self.statistics.wakeups_sent,
            fabric: link.connection().queue_pair().fabric().to_string(),
        }
    }
}
