//! The counts of a link.

use std::time::Instant;

use super::Link;
use super::earning::Traffic;
use crate::numbers::{ANSWER_NUMBERS, Number, values};
use crate::queue::Queue;
use crate::round_trips::ROUND_TRIPS;
use crate::tcp::Tcp;

/// What a link counts over all its paths, by the keys of the carrier's `inet_rdma_counts`; `has_tcp` and
/// `carried_by_queue` (1 or 0) are the carrier's own. Bytes and sizes are with the packets' lengths; of the packets
/// received, sizes leave ticks out. `packet_deviation_received`: the bits of an f64.
pub(crate) const COUNTS: &[Number<Link>] = &[
    ("packets_received", |link| link.packets().0),
    ("packets_sent", |link| link.packets().1),
    ("bytes_received", |link| link.session.received().0),
    ("bytes_sent", |link| link.session.counts().bytes_sent),
    ("bytes_pending", Link::unsent_bytes),
    ("bytes_unacknowledged", |link| link.session.logged_bytes() as u64),
    ("packet_bytes_received", |link| link.tally.bytes_received()),
    ("largest_packet_received", |link| link.tally.largest_received()),
    ("packet_deviation_received", |link| {
        link.tally.deviation_received().to_bits()
    }),
    ("largest_packet_sent", |link| link.tally.largest_sent()),
    ("losses", |link| link.changes.losses),
    ("resumes", |link| link.changes.resumes),
    ("moves", |link| link.changes.moves),
    ("suspended_ms", |link| {
        u64::try_from(link.outage.total().as_millis()).unwrap_or(u64::MAX)
    }),
    ("has_tcp", |link| link.tcp.is_some().into()),
    ("carried_by_queue", |link| link.is_carried_by_queue().into()),
];

impl Link {
    /// Packets received and sent, ticks included.
    pub fn packets(&self) -> (u64, u64) {
        let counts = self.session.counts();
        let mut queues = self.past;
        queues += self.queue.as_ref().map(Queue::packets).unwrap_or_default();
        (
            counts.packets_received + queues.received,
            counts.packets_sent + queues.ticks_sent,
        )
    }

    /// Bytes that wait for room.
    pub fn unsent_bytes(&self) -> u64 {
        (self.session.unsent_bytes() + self.tcp.as_ref().map_or(0, Tcp::held_bytes)) as u64
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
