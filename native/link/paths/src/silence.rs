//! Whether a peer that has sent packets has fallen silent.

use std::time::{Duration, Instant};

/// The silence behind the packets of a peer. A side that only reads is owed no answer, so nothing shows it an outage of
/// the way to it: it asks, once for each silence.
///
/// An idle link has no timer, and one that gets packets one in each window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Silence {
    /// The end of the window. None: no packet has come since the last silence.
    at: Option<Instant>,
    /// Packets have come in the window.
    is_heard: bool,
}

impl Silence {
    /// Packets have come; ticks and acknowledgements are none. `now` is asked at the first ones behind a silence.
    pub fn handle_packets(&mut self, window: Duration, now: impl FnOnce() -> Instant) {
        if self.at.is_some() {
            self.is_heard = true;
        } else {
            self.at = Some(now() + window);
        }
    }

    /// The end of the window.
    pub fn at(&self) -> Option<Instant> {
        self.at
    }

    /// True, once, if a window has ended in which no packet has come.
    #[must_use]
    pub fn begins(&mut self, window: Duration, now: Instant) -> bool {
        if self.at.is_none_or(|at| at > now) {
            return false;
        }
        let is_heard = std::mem::take(&mut self.is_heard);
        self.at = is_heard.then(|| now + window);
        !is_heard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_millis(500);

    #[test]
    fn a_silence_begins_once_behind_the_packets() {
        let start = Instant::now();
        let mut silence = Silence::default();
        assert!(!silence.begins(WINDOW, start), "nothing was ever heard");
        silence.handle_packets(WINDOW, || start);
        assert!(!silence.begins(WINDOW, start + WINDOW / 2));
        assert!(silence.begins(WINDOW, start + WINDOW));
        assert_eq!(silence.at(), None, "an idle link has no timer");
        assert!(!silence.begins(WINDOW, start + 10 * WINDOW));
    }

    #[test]
    fn packets_in_each_window_leave_no_silence() {
        let start = Instant::now();
        let mut silence = Silence::default();
        silence.handle_packets(WINDOW, || start);
        for window in 1..=3 {
            silence.handle_packets(WINDOW, || panic!("no clock is read"));
            assert!(!silence.begins(WINDOW, start + window * WINDOW));
        }
        assert!(silence.begins(WINDOW, start + 4 * WINDOW));
    }
}
