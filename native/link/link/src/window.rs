//! The window that follows the path: the bytes that TCP has under way without an acknowledgement.
//!
//! A window below the path's bandwidth times its round trip leaves the path idle, and a larger one costs the log's
//! memory alone. So the window begins small. While acknowledgements use it up it becomes three times the bytes that are
//! acknowledged within the shortest round trip: a queue in the network, or a peer that reads slowly, makes trips longer
//! and leaves that product as it is. It shrinks when it is not used.

use std::time::{Duration, Instant};

use inet_rdma_session::{Position, WINDOW_BYTES_FIRST};

use crate::tcp::Reach;

/// The window of a TCP connection over loopback. The bytes pass from one processor to another through their caches: 4
/// senders of 1 MB are a quarter faster than with 1 MiB, at three quarters of the CPU (`bench/run.py throughput --size
/// 64K,1M,16M --senders 1,4`). Less than two acknowledgements leaves the path idle.
const WINDOW_BYTES_LOOPBACK: usize = 640 * 1024;
/// The window of a TCP connection to a near host. With 4 MiB a sender of 64 KB or 1 MB has 0.6 of this rate over a
/// virtual cable (`bench/run.py network --cable --only throughput`). It is enough for 5 GB/s over a round trip of 200
/// us.
const WINDOW_BYTES_NEAR: usize = 1 << 20;
/// The window becomes this many times the bytes that are acknowledged within a round trip: one for the path, one for
/// the round trip in which a lost segment is sent again and nothing is acknowledged, one for growth. TCP's own window
/// bounds what is in the network. With 2, BBR has 0.87 of inet_tcp's rate at 1 Gbit/s and 200 ms, with 3 0.96, with 4
/// 0.93.
const TRIPS: u128 = 3;
/// The shortest time in which acknowledged bytes are counted: acknowledgements come in bursts.
const SAMPLE: Duration = Duration::from_millis(10);
/// A path with shorter trips keeps the first window: that is enough for 800 MB/s, and more bytes leave the processors'
/// caches. 4 senders of 1 MB over a virtual cable are a quarter slower with a window of 20 MiB.
const NEAR: Duration = Duration::from_millis(5);
/// The window is not changed for fewer bytes: an acknowledgement.
const STEP_BYTES: usize = 256 * 1024;
/// The window shrinks when less than this part of it was used between two answers to questions, a second at least.
const UNUSED_PART: usize = 4;
/// The shortest trip is the shortest of this many answers and of as many before them: a path may change.
const ANSWERS: u8 = 32;

/// The window of a link.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Window {
    /// The session's own bound.
    bytes: usize,
    /// The bound when nothing is known of the path.
    first: usize,
    is_loopback: bool,
    /// The most bytes. None: the sides tell no windows.
    max: Option<usize>,
    /// The shortest trips of the present answers, and of those before.
    trips: [Option<Duration>; 2],
    answers: u8,
    /// Bytes that are acknowledged are counted since this time, from this position on.
    sample: Option<(Instant, Position)>,
    /// The number of times that the window was at its bound and should have grown.
    limits: u64,
}

impl Default for Window {
    fn default() -> Self {
        Window {
            bytes: WINDOW_BYTES_FIRST,
            first: WINDOW_BYTES_FIRST,
            is_loopback: false,
            max: None,
            trips: [None; 2],
            answers: 0,
            sample: None,
            limits: 0,
        }
    }
}

impl Window {
    /// Both sides tell windows; this side's is at most this.
    pub fn set_max(&mut self, bytes: usize) {
        self.max = Some(bytes);
    }

    /// Whether the window may ever be larger than at first.
    pub fn grows(&self) -> bool {
        !self.is_loopback && self.max.is_some_and(|max| max > WINDOW_BYTES_FIRST)
    }

    /// Whether the caller has granted a part of it.
    pub fn is_granted(&self) -> bool {
        self.bytes > WINDOW_BYTES_FIRST
    }

    /// It has this many bytes from now on, of those that were wanted.
    pub fn set(&mut self, wanted: usize, granted: usize) {
        self.limits += u64::from(granted < wanted);
        self.bytes = granted;
    }

    /// The number of times that it should have grown and did not.
    pub fn limits(&self) -> u64 {
        self.limits
    }

    /// There is another connection, over which no answer has come. Returns another window. Bytes that the peer lacks
    /// are sent again over the new connection with the window that the old one has earned.
    #[must_use]
    pub fn begin(&mut self, reach: Reach) -> Option<usize> {
        self.first = match reach {
            Reach::Loopback => WINDOW_BYTES_LOOPBACK,
            Reach::Near => WINDOW_BYTES_NEAR,
            Reach::Far => WINDOW_BYTES_FIRST,
        };
        self.is_loopback = reach == Reach::Loopback;
        self.trips = [None; 2];
        self.answers = 0;
        self.sample = None;
        let keeps = self.grows() && self.bytes >= self.first;
        (!keeps && self.bytes != self.first).then_some(self.first)
    }

    /// Nothing is under way, and nothing was for long. Returns another window.
    #[must_use]
    pub fn rested(&self) -> Option<usize> {
        (self.bytes > self.first).then_some(self.first)
    }

    /// The peer's port has answered a question in this time; at most `used` bytes were under way since the last answer.
    /// Returns another window.
    #[must_use]
    pub fn handle_answer(&mut self, trip: Duration, used: usize) -> Option<usize> {
        if self.answers == ANSWERS {
            self.trips = [None, self.trips[0]];
            self.answers = 0;
        }
        self.answers += 1;
        self.trips[0] = Some(self.trips[0].map_or(trip, |shortest| shortest.min(trip)));
        if self.bytes <= self.first {
            None
        } else if self.is_near() {
            Some(self.first)
        } else {
            (used < self.bytes / UNUSED_PART).then(|| self.first.max(self.bytes / 2))
        }
    }

    /// The peer has acknowledged all before this position. `is_full`: bytes have waited for that since the last call.
    /// `peer_max`: the bytes that the peer takes. Returns a larger window.
    #[must_use]
    pub fn handle_acknowledged(
        &mut self,
        now: Instant,
        acknowledged: Position,
        is_full: bool,
        peer_max: usize,
    ) -> Option<usize> {
        let mut wanted = None;
        if self.sample.is_some() {
            wanted = Some(self.measured(now, acknowledged)?);
        }
        self.sample = is_full.then_some((now, acknowledged));
        let grows = |bytes: &usize| !self.is_near() && *bytes >= self.bytes.saturating_add(STEP_BYTES);
        let wanted = wanted.filter(grows)?;
        let bound = self.max.unwrap_or(0).min(peer_max);
        if self.bytes < bound {
            Some(wanted.min(bound))
        } else {
            self.limits += 1;
            None
        }
    }

    fn is_near(&self) -> bool {
        self.shortest_trip().is_some_and(|trip| trip < NEAR)
    }

    fn shortest_trip(&self) -> Option<Duration> {
        self.trips.into_iter().flatten().min()
    }

    /// The window that the acknowledged bytes ask for. None: more time must pass.
    fn measured(&self, now: Instant, acknowledged: Position) -> Option<usize> {
        let ((since, from), trip) = (self.sample?, self.shortest_trip()?);
        let passed = now.saturating_duration_since(since);
        if passed < trip.max(SAMPLE) {
            return None;
        }
        let bytes = acknowledged.saturating_since(from) as u128;
        let wanted = TRIPS * bytes * trip.as_nanos() / passed.as_nanos();
        Some(usize::try_from(wanted).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_shortest_trip_is_forgotten_after_many_answers() {
        let mut window = Window::default();
        assert_eq!(window.handle_answer(20 * MS, 0), None);
        for _ in 1..2 * ANSWERS {
            assert_eq!(window.handle_answer(100 * MS, 0), None);
            assert_eq!(window.shortest_trip(), Some(20 * MS));
        }
        assert_eq!(window.handle_answer(100 * MS, 0), None);
        assert_eq!(window.shortest_trip(), Some(100 * MS));
    }

    #[test]
    fn a_path_that_turns_out_to_be_near_has_the_first_window() {
        let (mut window, now) = (Window::default(), Instant::now());
        window.set_max(usize::MAX);
        let acknowledge = |window: &mut Window, ms: u32| {
            window.sample = Some((now, Position(0)));
            window.handle_acknowledged(now + ms * MS, Position(64 << 20), true, usize::MAX)
        };
        assert_eq!(window.handle_answer(8 * MS, 0), None);
        let larger = acknowledge(&mut window, 10).expect("it grows");
        window.set(larger, larger);
        assert_eq!(window.handle_answer(MS, larger), Some(WINDOW_BYTES_FIRST));
        window.set(WINDOW_BYTES_FIRST, WINDOW_BYTES_FIRST);
        assert_eq!(acknowledge(&mut window, 10), None);
        assert_eq!(window.limits(), 0);
    }

    #[test]
    fn three_times_what_is_acknowledged_within_the_shortest_trip_is_wanted() {
        let (mut window, now) = (Window::default(), Instant::now());
        window.sample = Some((now, Position(7)));
        assert_eq!(window.measured(now + 200 * MS, Position(9)), None, "no trip is known");
        assert_eq!(window.handle_answer(100 * MS, 0), None);
        assert_eq!(window.measured(now + 99 * MS, Position(9)), None, "too early");
        // A queue on the way makes the trip take twice as long.
        let acknowledged = Position(7 + 10_000_000);
        assert_eq!(window.measured(now + 100 * MS, acknowledged), Some(30_000_000));
        assert_eq!(window.measured(now + 200 * MS, acknowledged), Some(15_000_000));
    }
}
