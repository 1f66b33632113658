//! What the kernel or the device says of the peer's host.

use std::time::Duration;

/// The resolution of the kernel's clock of acknowledgements: a tick of its slowest timer (`CONFIG_HZ=100`).
pub(crate) const RESOLUTION: Duration = Duration::from_millis(10);

/// The facts of one look at a path. The caller takes the time before it asks for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Look {
    /// The time since anything has come from the peer's host; `Duration::MAX` if that is unknown.
    pub heard: Duration,
    /// The time since the last answer to something that was sent over the path: since the debt shrank. What the peer
    /// sends by itself is none: it may arrive while nothing arrives at the peer.
    pub answered: Duration,
    /// What the peer's host owes.
    pub debt: Debt,
}

/// What the peer's host owes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Debt {
    /// Nothing; or nobody can say.
    Nothing,
    /// Nothing now. Bytes wait for which it will owe an answer: the caller looks again.
    Later,
    /// The path is at its end, which another event tells: no answer, and no reason for a suspicion.
    Ended,
    /// An answer.
    Owed {
        /// The least time for which it owes that, as far as the kernel or the device knows.
        owed: Duration,
        /// The time that an answer may take over this path.
        due: Duration,
    },
}

impl Look {
    /// Nobody can say.
    pub const UNKNOWN: Look = Look {
        heard: Duration::MAX,
        answered: Duration::MAX,
        debt: Debt::Nothing,
    };

    /// Whether anything has come within this time for certain.
    pub(crate) fn is_heard_within(&self, time: Duration) -> bool {
        self.heard.saturating_add(RESOLUTION) < time
    }

    /// Whether an answer has come within this time for certain.
    pub(crate) fn is_answered_within(&self, time: Duration) -> bool {
        self.answered.saturating_add(RESOLUTION) < time
    }

    /// Whether no answer has come within this time for certain.
    pub(crate) fn is_unanswered_for(&self, time: Duration) -> bool {
        self.answered >= time.saturating_add(RESOLUTION)
    }
}
