//! Round trips over a link's TCP connection: of a question that the peer's port answers at once.
//!
//! A link asks at most once a second, when it sends anyway, and at each tick. The answer waits for what the peer's
//! kernel and its VM do before the port's turn, as every packet does.
//!
//! Over a queue pair nothing is asked, as the stream protocol has no question of which only the time counts. Ticks are
//! not acknowledged; bytes are when the reader has freed a quarter of the ring, and that time says how the reader does,
//! not how long the way is. Recalls are for landing buffers and rings, one at a time. The TCP connection that stands by
//! is another way. A device's confirmation of a write is looked for by [`Queue::ask`](crate::queue::Queue::ask) at its
//! next call, and so has no time of its own.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// The shortest time between two questions.
const INTERVAL: Duration = Duration::from_secs(1);
/// What `recent` of a link means.
const RECENT: Duration = Duration::from_secs(60);
/// Samples that are kept: all of that time, as there is one in a second at most.
const RECENT_MAX: usize = 60;
/// Significant digits of the histogram: an error of a tenth at most, for a few hundred bytes.
const DIGITS: u8 = 1;

/// The round trips of one link. Without a sample it has no memory beside itself.
#[derive(Debug, Default)]
pub struct RoundTrips {
    /// The question under way.
    asked: Option<(u64, Instant)>,
    /// The last one.
    last: Option<(u64, Instant)>,
    kept: Option<Box<Kept>>,
}

#[derive(Debug)]
struct Kept {
    /// When they came, and microseconds; oldest first.
    recent: VecDeque<(Instant, u32)>,
    /// Since the link is up, in microseconds.
    all: Histogram<u32>,
}

impl RoundTrips {
    /// The number to ask with, if it is time and no other question is under way.
    #[must_use]
    pub fn ask(&mut self, now: Instant) -> Option<u64> {
        let is_early = self
            .last
            .is_some_and(|(_, last)| now.saturating_duration_since(last) < INTERVAL);
        if is_early || self.asked.is_some() {
            return None;
        }
        let number = self.last.map_or(0, |(number, _)| number.wrapping_add(1));
        self.last = Some((number, now));
        self.asked = self.last;
        Some(number)
    }

    /// The peer has answered.
    pub fn handle_answer(&mut self, number: u64, now: Instant) {
        // Another number: to a question that was lost with its connection, or one that was never asked.
        let Some((_, asked)) = self.asked.take_if(|(asked, _)| *asked == number) else {
            return;
        };
        let us = u32::try_from(now.saturating_duration_since(asked).as_micros()).unwrap_or(u32::MAX);
        if self.kept.is_none() {
            self.kept = Histogram::new(DIGITS).ok().map(|all| {
                Box::new(Kept {
                    recent: VecDeque::new(),
                    all,
                })
            });
        }
        let Some(kept) = &mut self.kept else { return };
        kept.all += u64::from(us);
        while kept.recent.len() >= RECENT_MAX
            || kept
                .recent
                .front()
                .is_some_and(|(at, _)| now.saturating_duration_since(*at) > RECENT)
        {
            kept.recent.pop_front();
        }
        kept.recent.push_back((now, us));
    }

    /// The question under way is lost with the connection.
    pub fn forget_question(&mut self) {
        self.asked = None;
    }

    /// How many in the last minute, and their median, 99th percentile and maximum in microseconds; the same since the
    /// link is up.
    pub fn summary(&self, now: Instant) -> [u64; 8] {
        let Some(kept) = &self.kept else { return [0; 8] };
        let young = kept
            .recent
            .iter()
            .filter(|(at, _)| now.saturating_duration_since(*at) <= RECENT);
        let mut recent: Vec<u64> = young.map(|&(_, us)| us.into()).collect();
        recent.sort_unstable();
        // As the histogram does: the smallest value that this share does not exceed.
        let of = |share: f64| {
            let place = (share * recent.len() as f64).ceil() as usize;
            recent.get(place.saturating_sub(1)).copied().unwrap_or(0)
        };
        let all = &kept.all;
        [
            recent.len() as u64,
            of(0.5),
            of(0.99),
            of(1.0),
            all.len(),
            all.value_at_quantile(0.5),
            all.value_at_quantile(0.99),
            all.max(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(trips: &mut RoundTrips, at: Instant, us: u64) {
        let number = trips.ask(at).expect("it is time");
        trips.handle_answer(number, at + Duration::from_micros(us));
    }

    #[test]
    fn one_question_is_under_way_and_one_asked_in_a_second() {
        let (mut trips, now) = (RoundTrips::default(), Instant::now());
        let number = trips.ask(now).expect("the first");
        assert_eq!(trips.ask(now + INTERVAL), None, "under way");
        trips.handle_answer(number.wrapping_add(1), now);
        assert_eq!(trips.summary(now), [0; 8], "another number");
        trips.handle_answer(number, now + Duration::from_micros(70));
        assert_eq!(trips.ask(now + INTERVAL / 2), None, "early");
        let second = trips.ask(now + INTERVAL).expect("it is time");
        trips.forget_question();
        trips.handle_answer(second, now + INTERVAL);
        assert_eq!(trips.summary(now + INTERVAL)[..4], [1, 70, 70, 70]);
    }

    #[test]
    fn the_last_minute_forgets_and_the_whole_time_does_not() {
        let (mut trips, start) = (RoundTrips::default(), Instant::now());
        sample(&mut trips, start, 60_000);
        for second in 1..=100 {
            sample(&mut trips, start + INTERVAL * second, 100 + u64::from(second % 2) * 100);
        }
        let end = start + INTERVAL * 100;
        let [count, p50, p99, max, all, all_p50, _, all_max] = trips.summary(end);
        assert_eq!((count, p50, p99, max), (60, 100, 200, 200));
        assert_eq!(all, 101);
        assert!(
            (90..=220).contains(&all_p50) && all_max >= 60_000,
            "{all_p50} {all_max}"
        );
        assert_eq!(trips.summary(end + RECENT * 2)[..4], [0; 4]);
    }
}
