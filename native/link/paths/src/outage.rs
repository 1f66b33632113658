//! The time in which no path carries a session.

use std::time::{Duration, Instant};

/// The times without a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Outage {
    /// The begin of the present one. None: a path carries the session.
    since: Option<Instant>,
    /// The sum of the earlier ones.
    before: Duration,
}

impl Outage {
    /// The last path has gone.
    pub fn begin(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// A path carries the session.
    pub fn end(&mut self, now: Instant) {
        self.before = self.total(now);
        self.since = None;
    }

    /// The sum of all.
    pub fn total(&self, now: Instant) -> Duration {
        let present = self.since.map(|since| now.saturating_duration_since(since));
        self.before + present.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_without_a_path_add_up() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut outage = Outage::default();
        outage.end(at(1));
        assert_eq!(outage.total(at(1)), Duration::ZERO);
        outage.begin(at(2));
        outage.begin(at(3));
        assert_eq!(
            outage.total(at(4)),
            Duration::from_secs(2),
            "the present one counts, from its begin"
        );
        outage.end(at(5));
        outage.begin(at(10));
        outage.end(at(11));
        assert_eq!(outage.total(at(20)), Duration::from_secs(4));
    }
}
