//! What is counted of a link.

use std::time::{Duration, Instant};

use super::Link;
use super::notices::EARNED;
use crate::port::Port;
use crate::queue::Queue;
use crate::tcp::Tcp;

/// From this many packets of both directions on a link has earned a queue pair. Set-up, `global` and `pg` of a link
/// without traffic of its users take fewer.
const EARNED_PACKETS: u64 = 64;
/// The same in bytes.
const EARNED_BYTES: u64 = 256 * 1024;

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

    /// Packets received and sent, ticks included; bytes that wait for room; of packets received, ticks left out, their
    /// bytes, the size of the largest, and the bits of the standard deviation of the sizes, an f64; the size of the
    /// largest packet sent; milliseconds for which no path carried the session. Bytes and sizes are with the packets' lengths.
    /// All paths are counted together.
    pub fn counts(&self) -> [u64; 8] {
        let (received, sent) = self.packets();
        [
            received,
            sent,
            self.unsent_bytes(),
            self.tally.bytes_received(),
            self.tally.largest_received(),
            self.tally.deviation_received().to_bits(),
            self.tally.largest_sent(),
            u64::try_from(self.suspended_for().as_millis()).unwrap_or(u64::MAX),
        ]
    }

    /// Those of [`RoundTrips::summary`](crate::round_trips::RoundTrips::summary).
    pub fn round_trips(&self) -> [u64; 8] {
        self.round_trips.summary(Instant::now())
    }

    /// For how long no path carried the session.
    fn suspended_for(&self) -> Duration {
        let (since, before) = self.suspended;
        before + since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// A path has come or gone.
    pub(super) fn note_carried(&mut self) {
        let carries = self.tcp.is_some() || (self.queue.is_some() && self.session.is_sent_by_queue());
        let (since, _) = self.suspended;
        match (carries, since) {
            (true, Some(_)) => self.suspended = (None, self.suspended_for()),
            (false, None) if self.is_started => self.suspended.0 = Some(Instant::now()),
            _ => {}
        }
    }

    /// Bytes received and bytes sent by all paths, packets' lengths included; bytes that the peer has not acknowledged;
    /// losses, resumes and moves; whether a TCP connection is there, and whether a queue pair carries.
    pub fn statistics(&self) -> [u64; 8] {
        [
            self.session.received().0,
            self.session.counts().bytes_sent,
            self.session.logged_bytes() as u64,
            self.changes.losses,
            self.changes.resumes,
            self.changes.moves,
            self.tcp.is_some().into(),
            (self.queue.is_some() && self.session.is_sent_by_queue()).into(),
        ]
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
