//! The watch over one path.

use std::time::{Duration, Instant};

use crate::look::{Debt, Look};

/// The state of one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum Watch {
    /// There is no such path.
    #[default]
    Absent,
    /// The kernel reports its end: it is never suspected.
    Exempt,
    /// The peer's host owes nothing.
    Rest,
    /// It may owe an answer to a tick, or to another frame for which nobody waits. There is no timer: the next tick
    /// looks, or the next write for which somebody waits.
    Ticked,
    /// It may owe an answer to a write.
    Waiting {
        /// It has owed one since this time, unless an answer has come since.
        since: Instant,
        look_at: Instant,
    },
    /// It owes an answer for too long.
    Suspected {
        since: Instant,
        look_at: Instant,
        /// By [`crate::Paths::hold_writes`]: nothing is written, and anything that comes afterwards ends the suspicion.
        /// The suspicion of another path ends by an answer alone.
        is_held: bool,
    },
}

/// A change of the suspicion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// The path owes an answer for too long.
    Suspected,
    /// `is_false`: the path had been suspected as it owed an answer.
    Trusted { is_false: bool },
}

impl Watch {
    pub(crate) fn is_suspected(&self) -> bool {
        matches!(self, Watch::Suspected { .. })
    }

    pub(crate) fn is_held(&self) -> bool {
        matches!(self, Watch::Suspected { is_held: true, .. })
    }

    /// The time of the next look.
    pub(crate) fn at(&self) -> Option<Instant> {
        match self {
            Watch::Waiting { look_at, .. } | Watch::Suspected { look_at, .. } => Some(*look_at),
            Watch::Absent | Watch::Exempt | Watch::Rest | Watch::Ticked => None,
        }
    }

    /// Takes the facts of a look. `patience`: the time for which the path may owe an answer; None: for ever.
    /// `interval`: the time between looks at a suspected path.
    pub(crate) fn handle_look(
        &mut self,
        now: Instant,
        look: Look,
        patience: Option<Duration>,
        interval: Duration,
    ) -> Option<Change> {
        match *self {
            Watch::Absent | Watch::Exempt | Watch::Rest => None,
            Watch::Ticked => self.handle_owed(now, now, look, patience?, interval),
            Watch::Waiting { since, .. } => self.handle_owed(now, since, look, patience?, interval),
            Watch::Suspected { since, is_held, .. } => {
                let suspected_for = now.saturating_duration_since(since);
                let is_answered = if is_held {
                    look.is_heard_within(suspected_for)
                } else {
                    look.is_answered_within(suspected_for) || matches!(look.debt, Debt::Nothing | Debt::Later)
                };
                if look.debt == Debt::Ended || !is_answered {
                    let look_at = now + interval;
                    *self = Watch::Suspected {
                        since,
                        look_at,
                        is_held,
                    };
                    return None;
                }
                *self = Watch::Rest;
                if let Some(patience) = patience.filter(|_| look.debt != Debt::Nothing) {
                    self.wait(now, now + patience);
                }
                Some(Change::Trusted { is_false: !is_held })
            }
        }
    }

    /// A path that is not suspected.
    fn handle_owed(
        &mut self,
        now: Instant,
        since: Instant,
        look: Look,
        patience: Duration,
        interval: Duration,
    ) -> Option<Change> {
        let Debt::Owed { owed, due } = look.debt else {
            *self = match (look.debt, *self) {
                (Debt::Nothing, _) | (Debt::Later, Watch::Ticked) => Watch::Rest,
                (_, before) => before,
            };
            if let Watch::Waiting { .. } = self {
                self.wait(now, now + patience);
            }
            return None;
        };
        let patience = patience.max(due);
        // An answer that comes between two writes says nothing of the second one. So half of the time must have passed
        // since a moment at which an answer was owed, and none came.
        let is_silent = look.is_unanswered_for(now.saturating_duration_since(since));
        let since = if is_silent { since } else { now };
        let silence = owed.max(now.saturating_duration_since(since));
        if !look.is_answered_within(patience) && silence >= patience / 2 {
            *self = Watch::Suspected {
                since: now,
                look_at: now + interval,
                is_held: false,
            };
            return Some(Change::Suspected);
        }
        let left = patience
            .saturating_sub(look.answered)
            .max((patience / 2).saturating_sub(silence));
        self.wait(since, now + left);
        None
    }

    fn wait(&mut self, since: Instant, look_at: Instant) {
        *self = Watch::Waiting { since, look_at };
    }

    /// Bytes were written for which a process waits.
    pub(crate) fn handle_data_written(&mut self, now: Instant, patience: Duration) {
        if matches!(self, Watch::Rest | Watch::Ticked) {
            self.wait(now, now + patience);
        }
    }

    /// Other bytes were written.
    pub(crate) fn handle_tick_written(&mut self) {
        if *self == Watch::Rest {
            *self = Watch::Ticked;
        }
    }
}
