//! When a link stalls: its port is busy, and the peer takes nothing for a while.

use std::time::{Duration, Instant};

/// Interval between two checks of a busy link. A link that has moved no byte since the last one stalls, so a stall
/// shows after one to two seconds. A peer that runs takes bytes within milliseconds; a network that loses packets
/// resends them within a second.
const INTERVAL: Duration = Duration::from_secs(1);

/// The change that a check finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StallChange {
    /// The peer takes nothing.
    Stalled,
    /// The peer takes bytes again.
    Ended,
}

/// The state of one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Stall {
    /// The port is not busy.
    #[default]
    Idle,
    /// The port is busy.
    Busy {
        /// The next check.
        at: Instant,
        /// Bytes have gone since the last check.
        has_moved: bool,
    },
    /// The peer takes nothing.
    Stalled,
}

impl Stall {
    /// Notes that the port has become busy, or is no longer busy.
    #[must_use]
    pub fn set_busy(&mut self, is_busy: bool, now: Instant) -> Option<StallChange> {
        let before = *self;
        *self = match (before, is_busy) {
            (_, false) => Stall::Idle,
            (Stall::Idle, true) => Stall::Busy {
                at: now + INTERVAL,
                has_moved: false,
            },
            (before, true) => before,
        };
        (before == Stall::Stalled && !is_busy).then_some(StallChange::Ended)
    }

    /// Whether the port is busy.
    pub fn is_busy(&self) -> bool {
        !matches!(self, Stall::Idle)
    }

    /// True if the caller must report bytes that have gone to the peer: [`Self::handle_moved`].
    pub fn wants_moved(&self) -> bool {
        matches!(self, Stall::Busy { has_moved: false, .. } | Stall::Stalled)
    }

    /// Notes that bytes have gone to the peer.
    #[must_use]
    pub fn handle_moved(&mut self, now: Instant) -> Option<StallChange> {
        match self {
            Stall::Idle => None,
            Stall::Busy { has_moved, .. } => {
                *has_moved = true;
                None
            }
            Stall::Stalled => {
                *self = Stall::Busy {
                    at: now + INTERVAL,
                    has_moved: true,
                };
                Some(StallChange::Ended)
            }
        }
    }

    /// The time of the next [`Self::handle_timeout`], if one is needed.
    pub fn at(&self) -> Option<Instant> {
        match self {
            Stall::Busy { at, .. } => Some(*at),
            Stall::Idle | Stall::Stalled => None,
        }
    }

    /// Checks whether bytes have gone, if it is time.
    #[must_use]
    pub fn handle_timeout(&mut self, now: Instant) -> Option<StallChange> {
        match *self {
            Stall::Busy { at, has_moved: false } if at <= now => {
                *self = Stall::Stalled;
                Some(StallChange::Stalled)
            }
            Stall::Busy { at, has_moved: true } if at <= now => {
                *self = Stall::Busy {
                    at: now + INTERVAL,
                    has_moved: false,
                };
                None
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy() -> (Stall, Instant) {
        let mut stall = Stall::default();
        assert_eq!(stall.set_busy(true, Instant::now()), None);
        let at = stall.at().expect("it is busy");
        (stall, at)
    }

    #[test]
    fn a_busy_link_that_moves_nothing_stalls_once() {
        let (mut stall, at) = busy();
        assert_eq!(stall.handle_timeout(at - Duration::from_millis(1)), None);
        assert_eq!(stall.handle_timeout(at), Some(StallChange::Stalled));
        assert_eq!(stall.handle_timeout(at + INTERVAL), None);
        assert_eq!(stall.at(), None, "no timer while nothing moves");
    }

    #[test]
    fn a_link_that_moves_bytes_does_not_stall() {
        let (mut stall, mut at) = busy();
        for _ in 0..5 {
            assert!(stall.wants_moved());
            assert_eq!(stall.handle_moved(at), None);
            assert!(!stall.wants_moved(), "it knows already");
            assert_eq!(stall.handle_timeout(at), None);
            at = stall.at().expect("it is busy");
        }
        assert_eq!(
            stall.handle_timeout(at),
            Some(StallChange::Stalled),
            "nothing since then"
        );
    }

    #[test]
    fn a_stalled_link_resumes_with_the_next_bytes_or_the_end_of_its_queue() {
        let (mut stall, at) = busy();
        assert_eq!(stall.handle_timeout(at), Some(StallChange::Stalled));
        let mut emptied = stall;
        assert_eq!(emptied.set_busy(false, at), Some(StallChange::Ended));
        assert_eq!(emptied, Stall::Idle);
        assert_eq!(stall.handle_moved(at), Some(StallChange::Ended));
        assert_eq!(stall.set_busy(false, at), None, "told already");
    }
}
