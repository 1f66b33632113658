//! How long it pays to look for something before going to sleep: doubled when it was found, halved when it was not.

use std::time::Duration;

/// The shortest time that is worth the call.
const LEAST: Duration = Duration::from_micros(2);
/// Turns without looking after which it is tried again.
const PAUSE: u32 = 16;

/// What a reader has learned.
pub(super) struct Patience {
    duration: Duration,
    /// Turns to go without looking.
    pause: u32,
}

impl Patience {
    /// Willing to look for as long as it is let.
    pub fn new() -> Self {
        Self {
            duration: Duration::MAX,
            pause: 0,
        }
    }

    /// How long to look this time, at most `max`; None: not at all.
    pub fn next(&mut self, max: Duration) -> Option<Duration> {
        if self.pause > 0 {
            self.pause -= 1;
            return None;
        }
        let duration = self.duration.min(max);
        (duration >= LEAST).then_some(duration)
    }

    /// Whether looking for what [`Self::next`] said has found something.
    pub fn learn(&mut self, found: bool, max: Duration) {
        let duration = self.duration.min(max);
        self.duration = if found {
            duration.saturating_mul(2)
        } else {
            duration / 2
        };
        if self.duration < LEAST {
            self.duration = LEAST;
            self.pause = PAUSE;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{LEAST, PAUSE, Patience};

    const MAX: Duration = Duration::from_micros(20);

    #[test]
    fn it_looks_as_long_as_it_may_while_that_pays() {
        let mut patience = Patience::new();
        for _ in 0..100 {
            assert_eq!(patience.next(MAX), Some(MAX));
            patience.learn(true, MAX);
        }
    }

    #[test]
    fn it_gives_up_where_it_does_not_pay_and_tries_again_now_and_then() {
        let mut patience = Patience::new();
        let mut looks = 0;
        for _ in 0..100 * PAUSE {
            if patience.next(MAX).is_some() {
                patience.learn(false, MAX);
                looks += 1;
            }
        }
        assert!((95..=105).contains(&looks), "{looks} looks");
        while patience.next(MAX).is_none() {}
        patience.learn(true, MAX);
        assert_eq!(patience.next(MAX), Some(LEAST * 2));
    }

    #[test]
    fn nothing_is_looked_for_where_no_time_is_allowed() {
        let mut patience = Patience::new();
        assert_eq!(patience.next(Duration::ZERO), None);
    }
}
