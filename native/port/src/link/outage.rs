//! The time in which no path carries a session.

use std::time::{Duration, Instant};

/// The times without a path.
#[derive(Debug, Default)]
pub(super) struct Outage {
    /// The begin of the present one. None: a path carries the session.
    since: Option<Instant>,
    /// The sum of the earlier ones.
    before: Duration,
}

impl Outage {
    /// The last path has gone.
    pub(super) fn begin(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    /// A path carries the session.
    pub(super) fn end(&mut self) {
        self.before = self.total();
        self.since = None;
    }

    /// The sum of all.
    pub(super) fn total(&self) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}
