//! Active mode: how many messages are left.

/// A change of active mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActiveOption {
    /// Nothing is handed over unasked.
    Passive,
    /// One message, then passive mode, without [`super::StreamNotifier::passive`].
    Once,
    /// Each message.
    Infinity,
    /// Adds to the count of messages that are left, which is 0 in other modes. A sum of 0 or less means passive mode,
    /// and the user is told ([`super::StreamNotifier::passive`]).
    Add(i16),
}

/// How many messages are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// No limit.
    Infinity,
    /// One, then passive mode, without [`super::StreamNotifier::passive`].
    Once,
    /// At least one.
    Count(i16),
}

/// The state behind a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    /// The next one.
    Active(Left),
    /// Passive mode, and the user is told.
    UsedUp,
    /// Passive mode.
    Passive,
}

impl ActiveOption {
    /// The number of messages left after this option, where `before` were left; None inside: passive mode.
    pub(super) fn left(self, before: Option<Left>) -> Result<Option<Left>, SumOutOfRange> {
        let before = match before {
            Some(Left::Count(count)) => count,
            _ => 0,
        };
        Ok(match self {
            ActiveOption::Passive => None,
            ActiveOption::Once => Some(Left::Once),
            ActiveOption::Infinity => Some(Left::Infinity),
            ActiveOption::Add(more) => {
                let sum = before.checked_add(more).ok_or(SumOutOfRange)?;
                (sum > 0).then_some(Left::Count(sum))
            }
        })
    }

    /// Tells whether this option asks for messages.
    pub(super) fn turns_on(self) -> bool {
        match self {
            ActiveOption::Passive => false,
            ActiveOption::Once | ActiveOption::Infinity => true,
            ActiveOption::Add(count) => count > 0,
        }
    }
}

/// A count and what was left of one add up to more than 16 bits hold.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SumOutOfRange;

impl Left {
    /// One message has been handed over.
    pub(super) fn after_message(self) -> After {
        match self {
            Left::Infinity => After::Active(Left::Infinity),
            Left::Once => After::Passive,
            Left::Count(count) if count > 1 => After::Active(Left::Count(count - 1)),
            Left::Count(_) => After::UsedUp,
        }
    }
}
