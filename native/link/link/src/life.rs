//! The life of a link.

use std::time::Instant;

/// The stage of a link's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum Life {
    /// The paths belong to the settlement, and the VM takes no packets yet.
    #[default]
    Settling,
    /// The VM takes packets.
    Up,
    /// The port is closed with bytes queued, or the last read of a connection has ended the session.
    Ending {
        /// The link ends at this time at the latest.
        at: Instant,
        /// The VM takes packets.
        is_started: bool,
    },
    /// The port ends.
    Over,
}

impl Life {
    pub(crate) fn is_started(self) -> bool {
        matches!(self, Life::Up | Life::Ending { is_started: true, .. })
    }

    pub(crate) fn start(self) -> Life {
        match self {
            Life::Settling | Life::Up => Life::Up,
            Life::Ending { at, .. } => Life::Ending { at, is_started: true },
            Life::Over => Life::Over,
        }
    }

    /// The earliest of several ends counts.
    pub(crate) fn end_at(self, until: Instant) -> Life {
        match self {
            Life::Settling | Life::Up => Life::Ending {
                at: until,
                is_started: self.is_started(),
            },
            Life::Ending { at, is_started } => Life::Ending {
                at: at.min(until),
                is_started,
            },
            Life::Over => Life::Over,
        }
    }

    pub(crate) fn ends_at(self) -> Option<Instant> {
        match self {
            Life::Ending { at, .. } => Some(at),
            Life::Settling | Life::Up | Life::Over => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_link_that_ends_before_it_is_up_still_comes_up() {
        let at = Instant::now();
        assert!(!Life::Settling.is_started() && Life::Settling.start().is_started());
        let ending = Life::Settling.end_at(at);
        assert!(!ending.is_started());
        let ending = ending.start();
        assert_eq!((ending.is_started(), ending.ends_at()), (true, Some(at)));
        assert!(Life::Up.end_at(at).is_started());
    }

    #[test]
    fn the_earliest_of_several_ends_counts() {
        let (first, later) = (Instant::now(), Instant::now() + Duration::from_secs(1));
        let ends_at = |life: Life| life.ends_at();
        assert_eq!(ends_at(Life::Up), None);
        assert_eq!(ends_at(Life::Up.end_at(later).end_at(first)), Some(first));
        assert_eq!(ends_at(Life::Up.end_at(first).end_at(later)), Some(first));
    }

    #[test]
    fn nothing_follows_the_end() {
        assert_eq!(Life::Up.start(), Life::Up);
        assert_eq!(Life::Over.start(), Life::Over);
        assert_eq!(Life::Over.end_at(Instant::now()), Life::Over);
        assert!(!Life::Over.is_started());
    }
}
