//! The counts of a link.

use std::time::Instant;

use inet_rdma_paths::{Path, State, Traffic};

use super::Link;
use crate::numbers::{ANSWER_NUMBERS, Number, values};
use crate::queue::Queue;
use crate::round_trips::ROUND_TRIPS;
use crate::tally::QueueWork;
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
        u64::try_from(link.outage.total(Instant::now()).as_millis()).unwrap_or(u64::MAX)
    }),
    ("suspicions", |link| link.paths.counts().suspicions),
    ("false_suspicions", |link| link.paths.counts().false_suspicions),
    ("credit_stalls", |link| link.queue_work().credit_stalls),
    ("wakeups_sent", |link| link.queue_work().wakeups_sent),
    ("wakeups_received", |link| link.queue_work().wakeups_received),
    ("path_state", |link| match link.state().state {
        State::Carried => 0,
        State::Suspected => 1,
        State::Suspended => 2,
    }),
    ("has_tcp", |link| {
        (link.tcp.is_some() && !link.paths.is_held(Path::Tcp)).into()
    }),
    ("carried_by_queue", |link| {
        (link.is_carried_by_queue() && !link.paths.is_held(Path::QueuePair)).into()
    }),
];

/// What `inet:getstat/1` says of a link, over all its paths: averages are left to the reader.
pub struct SocketCounts {
    pub packets_received: u64,
    pub packets_sent: u64,
    pub bytes_received: u64,
    pub bytes_sent: u64,
    pub bytes_pending: u64,
    pub largest_received: u64,
    pub largest_sent: u64,
    pub deviation_received: u64,
}

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

    /// The work of all queue pairs.
    fn queue_work(&self) -> QueueWork {
        let mut work = self.past_work;
        work += self.queue.as_ref().map(Queue::work).unwrap_or_default();
        work
    }

    /// Bytes that wait for room.
    pub fn unsent_bytes(&self) -> u64 {
        (self.session.unsent_bytes() + self.tcp.as_ref().map_or(0, Tcp::held_bytes)) as u64
    }

    /// The counts of a socket.
    pub fn socket_counts(&self) -> SocketCounts {
        let (packets_received, packets_sent) = self.packets();
        SocketCounts {
            packets_received,
            packets_sent,
            bytes_received: self.tally.bytes_received(),
            bytes_sent: self.session.counts().bytes_sent,
            bytes_pending: self.unsent_bytes(),
            largest_received: self.tally.largest_received(),
            largest_sent: self.tally.largest_sent(),
            deviation_received: self.tally.deviation_received() as u64,
        }
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
