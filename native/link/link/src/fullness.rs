//! When a link is full: senders want more than it carries, although the peer takes bytes.
//!
//! A full link is busy most of the time, with short breaks in which the VM's senders fill its backlog again. So the
//! time is summed over at least a second. A link whose peer takes nothing is no such link: it stalls.

use std::time::{Duration, Instant};

use crate::notice::Notice;

/// Least time over which the busy time is summed.
const SPAN: Duration = Duration::from_secs(1);
/// Least time between two words of it.
const PAUSE: Duration = Duration::from_secs(60);
/// Least time between two words that the port is busy. Each wakes the guard, which costs about 50 us.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// The busy time of one link.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Fullness {
    /// When the link has become busy for the first time in this span.
    begun: Option<Instant>,
    /// The link is busy since then.
    busy_since: Option<Instant>,
    busy: Duration,
    /// When [`Notice::Full`] was told last.
    told: Option<Instant>,
    /// When [`Notice::Busy`] was told last.
    busy_told: Option<Instant>,
}

impl Fullness {
    /// The port is busy from now on, or no longer. What the guard is told: [`Notice::Busy`], or [`Notice::Full`] if the
    /// link was busy for at least half of a span that ends now. Neither if it was told a short while ago.
    pub fn handle_busy(&mut self, is_busy: bool, now: Instant) -> Option<Notice> {
        if is_busy {
            self.busy_since = Some(now);
            self.begun.get_or_insert(now);
            return is_due(&mut self.busy_told, BUSY_PAUSE, now).then_some(Notice::Busy);
        }
        let (Some(since), Some(begun)) = (self.busy_since.take(), self.begun) else {
            return None;
        };
        self.busy += now.saturating_duration_since(since);
        let span = now.saturating_duration_since(begun);
        if span < SPAN {
            return None;
        }
        let is_full = self.busy * 2 >= span;
        (self.begun, self.busy) = (None, Duration::ZERO);
        (is_full && is_due(&mut self.told, PAUSE, now)).then_some(Notice::Full)
    }

    /// The link stalls, or no longer does: the time until now is not that of a full link.
    pub fn restart(&mut self) {
        *self = Fullness {
            told: self.told,
            busy_told: self.busy_told,
            ..Fullness::default()
        };
    }
}

/// Whether `pause` has passed since the last time that this was true.
fn is_due(told: &mut Option<Instant>, pause: Duration, now: Instant) -> bool {
    let is_due = told.is_none_or(|told| now.saturating_duration_since(told) >= pause);
    if is_due {
        *told = Some(now);
    }
    is_due
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds in which the link is busy for a part of each millisecond. Returns when it was told, in milliseconds.
    fn told(fullness: &mut Fullness, start: Instant, first_ms: u64, rounds: u64, busy_us: u64) -> Vec<u64> {
        let mut told = Vec::new();
        for round in first_ms..first_ms + rounds {
            let at = start + Duration::from_millis(round);
            assert_ne!(fullness.handle_busy(true, at), Some(Notice::Full));
            match fullness.handle_busy(false, at + Duration::from_micros(busy_us)) {
                None => {}
                Some(notice) => {
                    assert_eq!(notice, Notice::Full);
                    told.push(round);
                }
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
        assert_eq!(fullness.handle_busy(true, start), Some(Notice::Busy));
        fullness.restart();
        assert_eq!(fullness.handle_busy(false, start + Duration::from_secs(5)), None);
        assert_eq!(told(&mut fullness, start, 5_000, 900, 900), []);
    }

    #[test]
    fn a_busy_link_is_told_at_once_and_once_a_second() {
        let (mut fullness, start) = (Fullness::default(), Instant::now());
        let told = Vec::from_iter((0..3000).filter(|round| {
            let at = start + Duration::from_millis(*round);
            let is_told = fullness.handle_busy(true, at).is_some();
            assert_ne!(fullness.handle_busy(false, at), Some(Notice::Busy));
            is_told
        }));
        assert_eq!(told, [0, 1000, 2000]);
    }

    #[test]
    fn one_packet_that_takes_seconds_fills_a_link() {
        let (mut fullness, start) = (Fullness::default(), Instant::now());
        assert_eq!(told(&mut fullness, start, 0, 1, 3_000_000), [0]);
    }
}
