//! Active mode: the number of messages that are left, and the token of their user.

/// A change of active mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActiveOption {
    /// No messages.
    Passive,
    /// One message, then passive mode, without [`super::StreamNotifier::passive`].
    Once,
    /// Each message.
    Infinity,
    /// Adds to the count of messages that are left, which is 0 in other modes. A sum of 0 or less means passive mode,
    /// and the user is told ([`super::StreamNotifier::passive`]).
    Add(i16),
}

/// The messages that are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// No limit.
    Infinity,
    /// One, then passive mode, without [`super::StreamNotifier::passive`].
    Once,
    /// At least one.
    Count(i16),
}

/// The mode of a stream socket.
pub(super) struct ActiveMode<T>(Option<Active<T>>);

/// Active mode that is on.
struct Active<T> {
    left: Left,
    /// Names the user of the messages.
    token: T,
}

/// The state of active mode after a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum After<T> {
    /// Active mode is still on.
    Active,
    /// The count is used up: the mode is passive, and the user with this token must be told.
    UsedUp(T),
    /// The mode is passive.
    Passive,
}

impl ActiveOption {
    /// The messages that are left after this option, if `before` were left. None inside: passive mode.
    fn left(self, before: Option<Left>) -> Result<Option<Left>, SumOutOfRange> {
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

    /// True if this option asks for messages.
    pub(super) fn turns_on(self) -> bool {
        match self {
            ActiveOption::Passive => false,
            ActiveOption::Once | ActiveOption::Infinity => true,
            ActiveOption::Add(count) => count > 0,
        }
    }
}

/// The sum of the new count and the count that was left does not fit into 16 bits.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SumOutOfRange;

impl<T> ActiveMode<T> {
    pub(super) fn passive() -> Self {
        Self(None)
    }

    pub(super) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// The messages that are left. None: the mode is passive.
    pub(super) fn left(&self) -> Option<Left> {
        self.0.as_ref().map(|active| active.left)
    }

    /// The token of the user; None: the mode is passive.
    pub(super) fn token(&self) -> Option<&T> {
        self.0.as_ref().map(|active| &active.token)
    }

    /// Follows this option. Returns `token` if it turns active mode off.
    pub(super) fn set(&mut self, option: ActiveOption, token: T) -> Result<Option<T>, SumOutOfRange> {
        match option.left(self.left())? {
            Some(left) => {
                self.0 = Some(Active { left, token });
                Ok(None)
            }
            None => {
                self.0 = None;
                Ok(Some(token))
            }
        }
    }

    /// Counts one message that was handed over.
    pub(super) fn count_message(&mut self) -> After<T> {
        match self.0.as_mut().map(|active| &mut active.left) {
            Some(Left::Infinity) => After::Active,
            Some(Left::Count(count @ 2..)) => {
                *count -= 1;
                After::Active
            }
            Some(Left::Count(_)) => self.turn_off().map_or(After::Passive, After::UsedUp),
            Some(Left::Once) | None => {
                self.0 = None;
                After::Passive
            }
        }
    }

    /// Turns active mode off. Returns the token if it was on.
    pub(super) fn turn_off(&mut self) -> Option<T> {
        self.0.take().map(|active| active.token)
    }
}
