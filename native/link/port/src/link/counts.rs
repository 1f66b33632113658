//! The counts of a link.

use std::time::Instant;

use inet_rdma_paths::{Path, Traffic};

use super::Link;
use crate::numbers::{ANSWER_NUMBERS, Number, values};
use crate::queue::Queue;
use crate::round_trips::ROUND_TRIPS;
use crate::tally::QueueCounts;
use crate::tcp::Tcp;

/// What a link counts over all its paths, by the keys of the carrier's `inet_rdma_counts`; `has_tcp` and
/// `carried_by_queue` (1 or 0) are the carrier's own: a path over which nothing may be written counts as none.
/// `path_state`: the place of the [`State`] in `inet_rdma_port`'s list. Bytes and sizes are with the packets' lengths;
/// of the packets received, sizes leave ticks out. `packet_deviation_received`: the bits of an f64.
pub(crate) const COUNTS: &[Number<Link>] = &[
    ("packets_received", |link| link.packets().0),
    ("packets_sent", |link| link.packets().1),
    ("bytes_received", |link| link.session.received().0),
    ("bytes_sent", |link| link.session.counts().bytes_sent),
    ("bytes_pending", Link::unsent_bytes),
    ("bytes_unacknowledged", |link| link.session.logged_bytes() as u64),
    ("packet_bytes_received", |link| link.tally.bytes_received),
    ("largest_packet_received", |link| link.tally.largest_received),
    ("packet_deviation_received", |link| {
        link.tally.deviation_received().to_bits()
    }),
    ("largest_packet_sent", |link| link.tally.largest_sent),
    ("losses", |link| link.changes.losses),
    ("resumes", |link| link.changes.resumes),
    ("moves", |link| link.changes.moves),
    ("suspended_ms", |link| {
        u64::try_from(link.outage.total(Instant::now()).as_millis()).unwrap_or(u64::MAX)
    }),
    ("suspicions", |link| link.paths.counts().suspicions),
    ("false_suspicions", |link| link.paths.counts().false_suspicions),
    ("credit_stalls", |link| link.queue_counts().credit_stalls),
    ("wakeups_sent", |link| link.queue_counts().wakeups_sent),
    ("wakeups_received", |link| link.queue_counts().wakeups_received),
    ("path_state", |link| link.state().state as u64),
    ("has_tcp", |link| {
        (link.tcp.is_some() && !link.paths.is_held(Path::Tcp)).into()
    }),
    ("carried_by_queue", |link| {
        (link.is_carried_by_queue() && !link.paths.is_held(Path::QueuePair)).into()
    }),
];

impl Link {
    /// Packets received and sent, ticks included.
    pub fn packets(&self) -> (u64, u64) {
        let counts = self.session.counts();
        let (received, ticks_sent) = self.queue.as_ref().map_or((0, 0), Queue::packets);
        (
            counts.packets_received + self.past.packets_received + received,
            counts.packets_sent + self.past.ticks_sent + ticks_sent,
        )
    }

    /// The counts of all queue pairs.
    fn queue_counts(&self) -> QueueCounts {
        let mut counts = self.past;
        counts += self.queue.as_ref().map(Queue::counts).unwrap_or_default();
        counts
    }

    /// Bytes that wait for room.
    pub fn unsent_bytes(&self) -> u64 {
        (self.session.unsent_bytes() + self.tcp.as_ref().map_or(0, Tcp::held_bytes)) as u64
    }

    /// What `inet:getstat/1` says of a link, over all its paths, by the numbers `INET_STAT_*` of kernel's inet_int.hrl.
    pub fn socket_count(&self, number: u8) -> Option<u64> {
        let (packets_received, packets_sent) = self.packets();
        let (bytes_received, bytes_sent) = (self.tally.bytes_received, self.session.counts().bytes_sent);
        Some(match number {
            1 => packets_received,
            2 => self.tally.largest_received,
            3 => bytes_received / packets_received.max(1),
            4 => self.tally.deviation_received() as u64,
            5 => packets_sent,
            6 => self.tally.largest_sent,
            7 => bytes_sent / packets_sent.max(1),
            8 => self.unsent_bytes(),
            9 => bytes_received,
            10 => bytes_sent,
            _ => return None,
        })
    }

    /// The numbers of [`COUNTS`] from `first` on, as many as an answer takes.
    pub fn counts(&self, first: usize) -> Vec<u64> {
        let behind = first.saturating_add(ANSWER_NUMBERS).min(COUNTS.len());
        values(COUNTS.get(first..behind).unwrap_or_default(), self)
    }

    /// The numbers of [`ROUND_TRIPS`]; none if no round trip was measured.
    pub fn round_trips(&self) -> Vec<u64> {
        let summary = self.round_trips.summary(Instant::now());
        summary.map_or_else(Vec::new, |summary| values(ROUND_TRIPS, &summary))
    }

    /// The traffic of a link that TCP carries: its growth counts only then. Ticks are left out: they pass over an idle
    /// link, too.
    pub(super) fn passed(&self) -> Traffic {
        let counts = self.session.counts();
        Traffic {
            packets: counts.packets_received + counts.packets_sent - counts.ticks,
            bytes: counts.bytes_received + counts.bytes_sent,
        }
    }

    pub(super) fn is_carried_by_queue(&self) -> bool {
        self.queue.is_some() && self.session.is_sent_by_queue()
    }
}
