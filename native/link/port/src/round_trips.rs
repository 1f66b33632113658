//! Round trips over a link's TCP connection: the time from a question to the answer, which the peer's port gives at
//! once.
//!
//! A link asks at most once a second, with packets that it sends anyway, and with ticks each 29 s. As every packet, the
//! answer waits until the peer's kernel and VM give the port its turn.
//!
//! Over a queue pair nothing is measured: the stream protocol has no message that is answered at once. Ticks are not
//! acknowledged. Bytes are acknowledged when the reader has freed a quarter of the ring, so that time depends on the
//! reader. Recalls are for landing buffers and rings, one at a time. The TCP connection that stands by is another path.
//! A device's confirmation of a write is seen only at the next call of [`Queue::ask`](crate::queue::Queue::ask), so its
//! time is not known.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::numbers::{ANSWER_NUMBERS, Number, UNKNOWN};

/// The time that the `recent` numbers of a link cover.
const RECENT: Duration = Duration::from_secs(60);
/// Maximum number of samples in that time: [`inet_rdma_link`] asks at most once in a second.
const RECENT_MAX: usize = 60;
/// Significant digits of the histogram: an error of a tenth at most, for a few hundred bytes.
const DIGITS: u8 = 1;

/// A number of round trips. Times of none are [`UNKNOWN`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trips {
    /// Their number.
    pub count: u64,
    /// Their median, in microseconds.
    pub p50_us: u64,
    /// Their 99th percentile.
    pub p99_us: u64,
    /// The longest one.
    pub max_us: u64,
}

/// What a link has measured.
#[derive(Debug, Clone, Copy)]
pub struct Summary {
    /// In the last minute.
    pub recent: Trips,
    /// Since the link is up.
    pub all: Trips,
}

/// The numbers of a summary.
pub(crate) const ROUND_TRIPS: &[Number<Summary>] = &[
    ("round_trip_p50_us", |trips| trips.recent.p50_us),
    ("round_trip_p99_us", |trips| trips.recent.p99_us),
    ("round_trip_max_us", |trips| trips.recent.max_us),
    ("round_trips", |trips| trips.all.count),
    ("round_trip_up_p50_us", |trips| trips.all.p50_us),
    ("round_trip_up_p99_us", |trips| trips.all.p99_us),
    ("round_trip_up_max_us", |trips| trips.all.max_us),
];
const _: () = assert!(ROUND_TRIPS.len() <= ANSWER_NUMBERS);

/// The round trips of one link. It allocates memory with the first sample.
#[derive(Debug, Default)]
pub struct RoundTrips {
    kept: Option<Box<Kept>>,
}

#[derive(Debug)]
struct Kept {
    /// Samples: time of the answer, and the round trip in microseconds; oldest first.
    recent: VecDeque<(Instant, u32)>,
    /// All round trips since the link is up, in microseconds.
    all: Histogram<u32>,
}

impl RoundTrips {
    /// The peer has answered a question, after this time.
    pub fn add(&mut self, now: Instant, trip: Duration) {
        let us = u32::try_from(trip.as_micros()).unwrap_or(u32::MAX);
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

    /// The round trips of the last minute, and all since the link is up. None: none was measured.
    pub fn summary(&self, now: Instant) -> Option<Summary> {
        let kept = self.kept.as_ref()?;
        let young = kept
            .recent
            .iter()
            .filter(|(at, _)| now.saturating_duration_since(*at) <= RECENT);
        let mut recent: Vec<u64> = young.map(|&(_, us)| us.into()).collect();
        recent.sort_unstable();
        // As the histogram does: the smallest value that this share does not exceed.
        let of = |share: f64| {
            let place = (share * recent.len() as f64).ceil() as usize;
            recent.get(place.saturating_sub(1)).copied().unwrap_or(UNKNOWN)
        };
        let all = &kept.all;
        Some(Summary {
            recent: Trips {
                count: recent.len() as u64,
                p50_us: of(0.5),
                p99_us: of(0.99),
                max_us: of(1.0),
            },
            all: Trips {
                count: all.len(),
                p50_us: all.value_at_quantile(0.5),
                p99_us: all.value_at_quantile(0.99),
                max_us: all.max(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn sample(trips: &mut RoundTrips, at: Instant, us: u64) {
        trips.add(at, Duration::from_micros(us));
    }

    #[test]
    fn nothing_is_known_before_the_first_answer() {
        let (mut trips, now) = (RoundTrips::default(), Instant::now());
        assert!(trips.summary(now).is_none());
        sample(&mut trips, now, 70);
        let one = Trips {
            count: 1,
            p50_us: 70,
            p99_us: 70,
            max_us: 70,
        };
        assert_eq!(trips.summary(now).map(|trips| trips.recent), Some(one));
    }

    #[test]
    fn the_last_minute_forgets_and_the_whole_time_does_not() {
        let (mut trips, start) = (RoundTrips::default(), Instant::now());
        sample(&mut trips, start, 60_000);
        for second in 1..=100 {
            sample(&mut trips, start + SECOND * second, 100 + u64::from(second % 2) * 100);
        }
        let end = start + SECOND * 100;
        let Summary { recent, all } = trips.summary(end).expect("some were measured");
        let minute = Trips {
            count: 60,
            p50_us: 100,
            p99_us: 200,
            max_us: 200,
        };
        assert_eq!(recent, minute);
        assert_eq!(all.count, 101);
        assert!((90..=220).contains(&all.p50_us) && all.max_us >= 60_000, "{all:?}");
        let late = trips.summary(end + RECENT * 2).expect("some were measured").recent;
        assert_eq!((late.count, late.p50_us, late.max_us), (0, UNKNOWN, UNKNOWN));
    }
}
