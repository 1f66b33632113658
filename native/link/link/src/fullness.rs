//! When a link is full: senders want more than it carries, although the peer takes bytes.
//!
//! A full link is busy most of the time, with short breaks in which the VM's senders fill its backlog again. So the
//! time is summed over at least a second. A link whose peer takes nothing is no such link: it stalls.

use std::time::{Duration, Instant};

/// Least time over which the busy time is summed.
const SPAN: Duration = Duration::from_secs(1);
/// Least time between two words of it.
const PAUSE: Duration = Duration::from_secs(60);

/// The busy time of one link.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Fullness {
    /// When the link has become busy for the first time in this span.
    begun: Option<Instant>,
    /// The link is busy since then.
    busy_since: Option<Instant>,
    busy: Duration,
    told: Option<Instant>,
}

impl Fullness {
    /// The port is busy from now on, or no longer. True: the link was busy for at least half of a span that ends now,
    /// and that has not been told for a while.
    pub fn handle_busy(&mut self, is_busy: bool, now: Instant) -> bool {
        if is_busy {
            self.busy_since = Some(now);
            self.begun.get_or_insert(now);
            return false;
        }
        let (Some(since), Some(begun)) = (self.busy_since.take(), self.begun) else {
            return false;
        };
        self.busy += now.saturating_duration_since(since);
        let span = now.saturating_duration_since(begun);
        if span < SPAN {
            return false;
        }
        let is_full = self.busy * 2 >= span;
        (self.begun, self.busy) = (None, Duration::ZERO);
        let is_due = self
            .told
            .is_none_or(|told| now.saturating_duration_since(told) >= PAUSE);
        if is_full && is_due {
            self.told = Some(now);
        }
        is_full && is_due
    }

    /// The link stalls, or no longer does: the time until now is not that of a full link.
    pub fn restart(&mut self) {
        *self = Fullness {
            told: self.told,
            ..Fullness::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds in which the link is busy for a part of each millisecond. Returns when it was told, in milliseconds.
    fn told(fullness: &mut Fullness, start: Instant, first_ms: u64, rounds: u64, busy_us: u64) -> Vec<u64> {
        let mut told = Vec::new();
        for round in first_ms..first_ms + rounds {
            let at = start + Duration::from_millis(round);
            assert!(!fullness.handle_busy(true, at));
            if fullness.handle_busy(false, at + Duration::from_micros(busy_us)) {
                told.push(round);
            }
        }
        told
    }

    #[test]
    fn a_full_link_is_told_after_a_second_and_once_a_minute() {
        let (mut fullness, start) = (Fullness::default(), Instant::now());
        let told = told(&mut fullness, start, 0, 100_000, 600);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            (999..=1001).contains(&told[0]) && (61_000..62_500).contains(&told[1]),
            "{told:?}"
        );
    }

    #[test]
    fn a_link_that_is_busy_for_less_than_half_of_the_time_is_not_full() {
        let (mut fullness, start) = (Fullness::default(), Instant::now());
        assert_eq!(told(&mut fullness, start, 0, 10_000, 300), []);
    }

    #[test]
    fn a_burst_is_no_full_link() {
        let (mut fullness, start) = (Fullness::default(), Instant::now());
        assert_eq!(told(&mut fullness, start, 0, 500, 900), []);
        assert_eq!(told(&mut fullness, start, 5_000, 500, 900), []);
    }

    #[test]
    fn a_stalled_link_is_not_full() {
        let (mut fullness, start) = (Fullness::default(), Instant::now());
        assert!(!fullness.handle_busy(true, start));
        fullness.restart();
        assert!(!fullness.handle_busy(false, start + Duration::from_secs(5)));
        assert_eq!(told(&mut fullness, start, 5_000, 900, 900), []);
    }

    #[test]
    fn one_packet_that_takes_seconds_fills_a_link() {
        let (mut fullness, start) = (Fullness::default(), Instant::now());
        assert_eq!(told(&mut fullness, start, 0, 1, 3_000_000), [0]);
    }
}
