//! The counts of a link.

use std::time::Instant;

use super::Link;
use crate::multipath;
use crate::numbers::{ANSWER_NUMBERS, Number, values};
use crate::queue::Queue;
use crate::round_trips::ROUND_TRIPS;
use crate::tally::QueueCounts;

/// What a link counts over all its paths, by the keys of the carrier's `inet_rdma_counts`. Bytes and sizes are with the
/// packets' lengths; of the packets received, sizes leave ticks out. `packet_deviation_received`: the bits of an f64.
pub(crate) const COUNTS: &[Number<Link>] = &[
    ("packets_received", |link| link.packets().0),
    ("packets_sent", |link| link.packets().1),
    ("bytes_received", |link| link.state.session().received().0),
    ("bytes_sent", |link| link.state.session().counts().bytes_sent),
    ("bytes_pending", Link::unsent_bytes),
    ("subflows", |link| link.tcp_socket().map_or(0, multipath::subflows)),
    ("bytes_unacknowledged", |link| {
        link.state.session().logged_bytes() as u64
    }),
    ("window_bytes", |link| link.state.window_bytes() as u64),
    ("window_limits", |link| link.state.window_limits()),
    ("packet_bytes_received", |link| link.tally.bytes_received),
    ("largest_packet_received", |link| link.tally.largest_received),
    ("packet_deviation_received", |link| {
        link.tally.deviation_received().to_bits()
    }),
    ("largest_packet_sent", |link| link.tally.largest_sent),
    ("losses", |link| link.state.changes().losses),
    ("damages", |link| link.state.damages()),
    ("resumes", |link| link.state.changes().resumes),
    ("moves", |link| link.state.changes().moves),
    ("suspended_ms", |link| {
        u64::try_from(link.state.suspended(Instant::now()).as_millis()).unwrap_or(u64::MAX)
    }),
    ("suspicions", |link| link.state.paths().counts().suspicions),
    ("false_suspicions", |link| link.state.paths().counts().false_suspicions),
    ("credit_stalls", |link| link.queue_counts().credit_stalls),
    ("wakeups_sent", |link| link.queue_counts().wakeups_sent),
    ("wakeups_received", |link| link.queue_counts().wakeups_received),
];

impl Link {
    /// Packets received and sent, ticks included.
    pub fn packets(&self) -> (u64, u64) {
        let counts = self.state.session().counts();
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
        self.state.unsent_bytes() as u64
    }

    /// What `inet:getstat/1` says of a link, over all its paths, by the numbers `INET_STAT_*` of kernel's inet_int.hrl.
    pub fn socket_count(&self, number: u8) -> Option<u64> {
        let (packets_received, packets_sent) = self.packets();
        let (bytes_received, bytes_sent) = (self.tally.bytes_received, self.state.session().counts().bytes_sent);
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

    /// Counts who sends, and to whom, from the first packet on.
    pub fn attribute(&mut self) {
        self.tally.attribute();
    }

    /// Who sends, and to whom: see [`Attribution::term`](crate::attribution::Attribution::term).
    pub fn attribution(&mut self) -> Option<Vec<u8>> {
        self.tally.attribution().map(|attribution| attribution.term())
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
}
