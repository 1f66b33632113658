//! The time in which no path carries a session.

use std::time::{Duration, Instant};

use super::Link;

/// The times without a path.
#[derive(Debug, Default)]
pub(super) struct Outage {
    /// The begin of the present one. None: a path carries the session.
    since: Option<Instant>,
    /// The sum of the earlier ones.
    before: Duration,
}

impl Outage {
    /// The sum of all.
    pub(super) fn total(&self) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

impl Link {
    /// Called when a path has come or gone.
    pub(super) fn note_carried(&mut self) {
        if self.tcp.is_some() || self.is_carried_by_queue() {
            self.outage = Outage {
                since: None,
                before: self.outage.total(),
            };
        } else if self.is_started {
            self.outage.since.get_or_insert_with(Instant::now);
        }
    }
}
