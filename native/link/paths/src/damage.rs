//! TCP connections whose bytes were changed on their way.

use std::time::{Duration, Instant};

/// The time over which damages count.
const WITHIN: Duration = Duration::from_secs(60);
/// Maximum number of damages in that time: a network that changes bits every few seconds is out of order, and so is a
/// peer that seals wrongly.
const DAMAGES_MAX: u32 = 8;

/// The damages of one link.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Damages {
    total: u64,
    /// Begin of the present time, and the damages in it.
    recent: Option<(Instant, u32)>,
}

impl Damages {
    /// Counts one more. False: these are too many.
    #[must_use]
    pub fn add(&mut self, now: Instant) -> bool {
        self.total += 1;
        let recent = self
            .recent
            .filter(|(since, _)| now.saturating_duration_since(*since) < WITHIN);
        let (since, count) = recent.map_or((now, 1), |(since, count)| (since, count + 1));
        self.recent = Some((since, count));
        count <= DAMAGES_MAX
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_damages_are_borne_and_many_within_a_minute_are_not() {
        let start = Instant::now();
        let mut damages = Damages::default();
        assert!((0..DAMAGES_MAX).all(|_| damages.add(start)));
        assert!(!damages.add(start + WITHIN / 2));
        assert!(damages.add(start + WITHIN), "another minute");
        assert_eq!(damages.total(), u64::from(DAMAGES_MAX) + 2);
    }

    #[test]
    fn damages_that_are_far_apart_are_borne_for_ever() {
        let start = Instant::now();
        let mut damages = Damages::default();
        assert!((0..1000).all(|number| damages.add(start + WITHIN / DAMAGES_MAX * number)));
    }
}
