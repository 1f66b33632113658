//! A bound on log lines that a peer can cause.

use std::time::{Duration, Instant};

/// Lines per [`PERIOD`]: enough to read the first callers of a misconfigured program one by one.
pub const LINES_MAX: u32 = 10;
/// With [`LINES_MAX`] a port scanner adds at most 14,400 lines a day to a log, about 2 MB.
pub const PERIOD: Duration = Duration::from_secs(60);

/// Admits at most [`LINES_MAX`] lines in each [`PERIOD`], and counts those that it leaves out.
pub struct LogLimit {
    period_start: Instant,
    lines: u32,
    left_out: u64,
}

impl LogLimit {
    /// With a period that begins now.
    pub fn new(now: Instant) -> Self {
        Self {
            period_start: now,
            lines: 0,
            left_out: 0,
        }
    }

    /// Some: a line may be written now; the number of lines left out since the last written one. None: leave it out.
    pub fn admit(&mut self, now: Instant) -> Option<u64> {
        if now.duration_since(self.period_start) >= PERIOD {
            self.period_start = now;
            self.lines = 0;
        }
        if self.lines == LINES_MAX {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_period_are_bounded_and_the_next_period_counts_those_left_out() {
        let start = Instant::now();
        let mut limit = LogLimit::new(start);
        for _ in 0..LINES_MAX {
            assert_eq!(limit.admit(start), Some(0));
        }
        for _ in 0..1000 {
            assert_eq!(limit.admit(start + PERIOD - Duration::from_nanos(1)), None);
        }
        assert_eq!(limit.admit(start + PERIOD), Some(1000));
        assert_eq!(limit.admit(start + PERIOD), Some(0));
    }

    #[test]
    fn a_caller_now_and_then_is_never_left_out() {
        let mut now = Instant::now();
        let mut limit = LogLimit::new(now);
        for _ in 0..1000 {
            assert_eq!(limit.admit(now), Some(0));
            now += PERIOD / LINES_MAX;
        }
    }
}
