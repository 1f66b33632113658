//! Room to write.

use std::num::NonZeroUsize;

/// Room for one transfer: [`crate::QueuePair::write_room`] finds it, [`crate::QueuePair::post_write`] uses it up. It is
/// not reserved: another transfer that is posted before uses the same room.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct WriteRoom(NonZeroUsize);

impl WriteRoom {
    /// The room of a fabric that takes a transfer of any size at any time.
    pub const UNLIMITED: Self = Self(NonZeroUsize::MAX);

    /// Room for this many bytes; None: there is no room.
    #[inline]
    pub fn new(bytes: usize) -> Option<Self> {
        NonZeroUsize::new(bytes).map(Self)
    }

    /// The most bytes that the transfer may have.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.0.get()
    }
}
