//! The time that the thread of events has been at work, by which others find out that it hangs in the kernel.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A turn, or a wake within it, that takes longer than this hangs in the kernel: a queue pair is moved to the error
/// state in microseconds, by a device's firmware in milliseconds.
const HANGS_AFTER: Duration = Duration::from_secs(10);

/// When the thread's turn, or its last wake, began.
pub(super) struct Turn {
    start: Instant,
    /// Milliseconds after `start`, plus 1; 0: the thread waits for events.
    began_ms: AtomicU64,
}

impl Turn {
    pub(super) fn new() -> Turn {
        Turn {
            start: Instant::now(),
            began_ms: AtomicU64::new(0),
        }
    }

    fn since_start_ms(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.start).as_millis()).unwrap_or(u64::MAX - 1)
    }

    pub(super) fn begin(&self, now: Instant) {
        self.began_ms.store(self.since_start_ms(now) + 1, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.began_ms.store(0, Ordering::Relaxed);
    }

    pub(super) fn hangs(&self, now: Instant) -> bool {
        match self.began_ms.load(Ordering::Relaxed) {
            0 => false,
            began => {
                let for_ms = (self.since_start_ms(now) + 1).saturating_sub(began);
                Duration::from_millis(for_ms) >= HANGS_AFTER
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_that_does_not_end_is_seen() {
        let turn = Turn::new();
        let (begin, late) = (turn.start + HANGS_AFTER, turn.start + HANGS_AFTER + HANGS_AFTER);
        assert!(!turn.hangs(late), "it waits");
        turn.begin(begin);
        assert!(!turn.hangs(begin + HANGS_AFTER / 2));
        assert!(turn.hangs(late));
        turn.end();
        assert!(!turn.hangs(late));
    }
}
