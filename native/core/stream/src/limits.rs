//! The limits that each side sets for the other before the first byte.

use crate::wire::TRANSFER_BYTES_MAX;

/// The limits that one side sets for the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Size of the ring: a power of two is not required. 1 to 2^31 - 1.
    pub ring_bytes: u32,
    /// Depth of the receive queue. At least [`Limits::RECEIVE_SLOTS_MIN`].
    pub receive_slots: u16,
    /// Advertisements that this side holds at a time. At least 1.
    pub adverts: u16,
}

impl Limits {
    /// With fewer slots than this, both sides could wait for credits for ever (see `credit.rs`).
    pub const RECEIVE_SLOTS_MIN: u16 = 5;

    /// Fails unless a stream can run within these limits.
    pub fn check(&self) -> Result<(), LimitsError> {
        if self.ring_bytes == 0 || self.ring_bytes > TRANSFER_BYTES_MAX {
            return Err(LimitsError::RingBytes(self.ring_bytes));
        }
        if self.receive_slots < Self::RECEIVE_SLOTS_MIN {
            return Err(LimitsError::ReceiveSlots(self.receive_slots));
        }
        if self.adverts == 0 {
            return Err(LimitsError::Adverts);
        }
        Ok(())
    }
}

/// Limits that no stream can run within; the fault of the side that set them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    /// The ring is empty or larger than one notice can say.
    #[error("a ring of {0} bytes: 1 to {TRANSFER_BYTES_MAX} are possible")]
    RingBytes(u32),
    /// Too few receive slots to keep one back for credits.
    #[error("{0} receive slots: {least} are the least", least = Limits::RECEIVE_SLOTS_MIN)]
    ReceiveSlots(u16),
    /// No room for an advertisement.
    #[error("0 advertisements: 1 is the least")]
    Adverts,
}

/// The kinds of transfers in use. Modes other than [`Mode::Dynamic`] are for measurements, and both sides need the same
/// mode: a sender of one kind and a receiver of the other kind wait for each other for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// Both kinds: the sender picks one for each transfer.
    #[default]
    Dynamic,
    /// The sender never writes into the ring; it waits for an advertisement.
    DirectOnly,
    /// The receiver never advertises, and the sender ignores advertisements.
    IndirectOnly,
}
