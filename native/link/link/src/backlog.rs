//! The bytes that may wait for TCP before the port is busy.
//!
//! While the port is busy the VM keeps its packets and suspends their senders. A short backlog leaves the kernel
//! without bytes before the senders have run again: on loopback bulk of 64 KB and 1 MB is a tenth slower with 256 KiB
//! than with 1 MiB (`bench/run.py throughput --size 64K,1M --senders 1,4`). A long one delays small packets by the time
//! in which it drains: at 200 Mbit/s a ping beside bulk takes 53 ms with 256 KiB and 79 with 1 MiB (`bench/run.py
//! distance --rtt-ms 2 --rate-mbit 200 --only ping`). So the backlog follows that time.

use std::time::{Duration, Instant};

/// The backlog at first and at least, and at most. One packet may be larger.
const BYTES_MIN: usize = 256 * 1024;
const BYTES_MAX: usize = 1024 * 1024;
/// The backlog doubles if it drains in less time: the VM takes about as long to run the senders again.
const SHORT: Duration = Duration::from_micros(500);
/// The backlog is halved if it drains in more time, a part of what a ping to another host takes.
const LONG: Duration = Duration::from_millis(4);

/// The backlog of a TCP connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Backlog {
    bytes: usize,
    /// The port is busy since then.
    busy_since: Option<Instant>,
}

impl Default for Backlog {
    fn default() -> Self {
        Backlog {
            bytes: BYTES_MIN,
            busy_since: None,
        }
    }
}

impl Backlog {
    /// The port is busy, if more bytes than this wait.
    pub fn high_bytes(&self) -> usize {
        self.bytes
    }

    /// The port is no longer busy, if not more bytes than this wait. The senders fill the rest while these drain.
    pub fn low_bytes(&self) -> usize {
        self.bytes / 8 * 3
    }

    /// The port is busy from now on, or no longer.
    pub fn handle_busy(&mut self, is_busy: bool, now: Instant) {
        if is_busy {
            self.busy_since = Some(now);
            return;
        }
        let Some(since) = self.busy_since.take() else {
            return;
        };
        let time = now.saturating_duration_since(since);
        if time < SHORT {
            self.bytes = BYTES_MAX.min(self.bytes * 2);
        } else if time > LONG {
            self.bytes = BYTES_MIN.max(self.bytes / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drained(backlog: &mut Backlog, time: Duration) -> usize {
        let now = Instant::now();
        backlog.handle_busy(true, now);
        backlog.handle_busy(false, now + time);
        backlog.high_bytes()
    }

    #[test]
    fn a_backlog_that_drains_at_once_grows_up_to_its_bound() {
        let mut backlog = Backlog::default();
        let sizes: Vec<_> = (0..4).map(|_| drained(&mut backlog, Duration::ZERO)).collect();
        assert_eq!(sizes, [512 * 1024, BYTES_MAX, BYTES_MAX, BYTES_MAX]);
        assert_eq!(backlog.low_bytes(), 384 * 1024);
    }

    #[test]
    fn a_backlog_that_drains_slowly_shrinks_to_its_bound() {
        let mut backlog = Backlog {
            bytes: BYTES_MAX,
            ..Backlog::default()
        };
        let sizes: Vec<_> = (0..3).map(|_| drained(&mut backlog, Duration::from_secs(1))).collect();
        assert_eq!(sizes, [512 * 1024, BYTES_MIN, BYTES_MIN]);
    }

    #[test]
    fn a_backlog_that_drains_within_its_time_stays() {
        let mut backlog = Backlog::default();
        for time in [SHORT, LONG] {
            assert_eq!(drained(&mut backlog, time), BYTES_MIN);
        }
    }
}
