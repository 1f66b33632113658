//! The counts of a link.

use std::time::{Duration, Instant};

use super::Link;
use super::notices::EARNED;
use crate::numbers::{ANSWER_NUMBERS, ROUND_TRIPS, UNKNOWN};
use crate::port::Port;
use crate::queue::Queue;
use crate::tcp::Tcp;

/// Number of packets of both directions after which a link has earned a queue pair. Set-up, `global` and `pg` take
/// fewer packets on a link without traffic of its users.
const EARNED_PACKETS: u64 = 64;
/// Number of bytes after which a link has earned a queue pair.
const EARNED_BYTES: u64 = 256 * 1024;

/// A number by its key.
type Number = (&'static str, fn(&Link) -> u64);

/// What a link counts over all its paths, by the keys of the carrier's `inet_rdma_counts`; `has_tcp` and
/// `carried_by_queue` (1 or 0) are the carrier's own. Bytes and sizes are with the packets' lengths; of the packets
/// received, sizes leave ticks out. `packet_deviation_received`: the bits of an f64.
pub(crate) const COUNTS: &[Number] = &[
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
        u64::try_from(link.suspended_for().as_millis()).unwrap_or(u64::MAX)
    }),
    ("has_tcp", |link| link.tcp.is_some().into()),
    ("carried_by_queue", |link| link.is_carried_by_queue().into()),
];

impl Link {
    /// Packets received and sent, ticks included.
    pub fn packets(&self) -> (u64, u64) {
        let counts = self.session.counts();
        let (received, ticks) = self.queue.as_ref().map_or((0, 0), Queue::counts);
        (
            counts.packets_received + self.past.0 + received,
            counts.packets_sent + self.past.1 + ticks,
        )
    }

    /// Bytes that wait for room.
    pub fn unsent_bytes(&self) -> u64 {
        (self.session.unsent_bytes() + self.tcp.as_ref().map_or(0, Tcp::held_bytes)) as u64
    }

    /// The numbers of [`COUNTS`] from `first` on, as many as an answer takes.
    pub fn counts(&self, first: usize) -> Vec<u64> {
        let wanted = COUNTS.iter().skip(first).take(ANSWER_NUMBERS);
        wanted.map(|(_, number)| number(self)).collect()
    }

    /// The numbers of [`ROUND_TRIPS`]. None: no round trip was measured.
    pub fn round_trips(&self) -> Option<[u64; ROUND_TRIPS.len()]> {
        let [recent, p50, p99, max, all, all_p50, all_p99, all_max] = self.round_trips.summary(Instant::now());
        let of_recent = |us| if recent > 0 { us } else { UNKNOWN };
        let [p50, p99, max] = [p50, p99, max].map(of_recent);
        (all > 0).then_some([p50, p99, max, all, all_p50, all_p99, all_max])
    }

    /// The total time in which no path carried the session.
    fn suspended_for(&self) -> Duration {
        let (since, before) = self.suspended;
        before + since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Called when a path has come or gone.
    pub(super) fn note_carried(&mut self) {
        let carries = self.tcp.is_some() || self.is_carried_by_queue();
        let (since, _) = self.suspended;
        match (carries, since) {
            (true, Some(_)) => self.suspended = (None, self.suspended_for()),
            (false, None) if self.is_started => self.suspended.0 = Some(Instant::now()),
            _ => {}
        }
    }

    fn is_carried_by_queue(&self) -> bool {
        self.queue.is_some() && self.session.is_sent_by_queue()
    }

    /// Packets and bytes of both directions over TCP.
    pub(super) fn passed(&self) -> (u64, u64) {
        let counts = self.session.counts();
        (
            counts.packets_received + counts.packets_sent,
            counts.bytes_received + counts.bytes_sent,
        )
    }

    pub(super) fn look_whether_earned(&mut self, port: Port) {
        if self.has_earned || self.watcher.is_none() {
            return;
        }
        let (packets, bytes) = self.passed();
        if packets - self.earned_before.0 >= EARNED_PACKETS || bytes - self.earned_before.1 >= EARNED_BYTES {
            self.has_earned = true;
            self.tell(port, EARNED);
        }
    }
}
