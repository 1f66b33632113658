//! How long a path may owe an answer.

use std::time::{Duration, Instant};

/// The longest patience that false suspicions lead to: far below `net_ticktime`, 60 s, which would notice a loss first.
const LONGEST: Duration = Duration::from_secs(30);
/// The time without a false suspicion after which the patience is halved: so they stay at about one in this time.
const EASES_AFTER: Duration = Duration::from_secs(60);

/// The patience with the paths of one link. Each false suspicion doubles it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Patience {
    /// The time of the option `suspect_after_ms`.
    shortest: Duration,
    present: Duration,
    /// Time of the last change. None: it is the shortest.
    changed_at: Option<Instant>,
}

impl Patience {
    pub(crate) fn new(shortest: Duration) -> Patience {
        Patience {
            shortest,
            present: shortest,
            changed_at: None,
        }
    }

    /// The time of the option.
    pub(crate) fn shortest(&self) -> Duration {
        self.shortest
    }

    /// The time for which a path may owe an answer.
    pub(crate) fn at(&mut self, now: Instant) -> Duration {
        while let Some(changed_at) = self.changed_at {
            let eased_at = changed_at + EASES_AFTER;
            if eased_at > now {
                break;
            }
            self.present = (self.present / 2).max(self.shortest);
            self.changed_at = (self.present > self.shortest).then_some(eased_at);
        }
        self.present
    }

    /// A suspicion was false.
    pub(crate) fn handle_false(&mut self, now: Instant) {
        let doubled = self.at(now).saturating_mul(2);
        self.present = doubled.min(LONGEST.max(self.shortest));
        self.changed_at = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn false_suspicions_double_the_patience_up_to_half_a_minute() {
        let now = Instant::now();
        let mut patience = Patience::new(SECOND);
        let doubled = [1, 2, 4, 8, 16, 30, 30].map(|seconds| {
            assert_eq!(patience.at(now), SECOND * seconds);
            patience.handle_false(now);
        });
        assert_eq!(doubled.len(), 7);
    }

    #[test]
    fn a_minute_without_a_false_suspicion_halves_it() {
        let now = Instant::now();
        let mut patience = Patience::new(SECOND);
        (0..3).for_each(|_| patience.handle_false(now));
        let minutes = [0, 1, 2, 3, 100].map(|minute| patience.at(now + EASES_AFTER * minute).as_secs());
        assert_eq!(minutes, [8, 4, 2, 1, 1]);
    }

    #[test]
    fn an_option_above_the_longest_patience_holds() {
        let now = Instant::now();
        let mut patience = Patience::new(SECOND * 3600);
        patience.handle_false(now);
        assert_eq!(patience.at(now), SECOND * 3600);
    }
}
