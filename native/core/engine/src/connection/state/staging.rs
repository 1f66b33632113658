//! Replaces the staging memory, from which transfers are sent, when the peer's ring changes its size.

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Fits,
    /// Memory of this many bytes is needed in its place.
    Claimed(usize),
    /// Memory of `bytes` is ready, and takes over after the transfer that is being posted. `claimed`: the present size
    /// of the peer's ring.
    Prepared { bytes: usize, claimed: usize },
    /// The memory was replaced, and the device may still send from the earlier one. Bytes claimed since then are
    /// registered only after a sweep has released the earlier memory. So a peer that changes its ring often pins at
    /// most the present memory and one replaced memory here.
    Replaced(Option<usize>),
}

#[derive(Default)]
pub(crate) struct Staging(State);

impl Staging {
    /// Claims memory of this size. Returns true if it can be fetched now.
    pub(crate) fn claim(&mut self, bytes: usize) -> bool {
        match &mut self.0 {
            State::Replaced(claimed) => {
                *claimed = Some(bytes);
                return false;
            }
            State::Prepared { claimed, .. } => *claimed = bytes,
            State::Fits | State::Claimed(_) => self.0 = State::Claimed(bytes),
        }
        true
    }

    /// The size of the memory to fetch; None: nothing is to be fetched.
    pub(crate) fn claimed_bytes(&self) -> Option<usize> {
        match self.0 {
            State::Claimed(bytes) => Some(bytes),
            State::Fits | State::Prepared { .. } | State::Replaced(_) => None,
        }
    }

    /// Notes that memory of `bytes` is ready, and must not take over yet.
    pub(crate) fn prepare(&mut self, bytes: usize) {
        if let State::Claimed(claimed) = self.0 {
            self.0 = State::Prepared { bytes, claimed };
        }
    }

    /// The size of the memory that is ready and waits to take over.
    #[inline]
    pub(crate) fn prepared_bytes(&self) -> Option<usize> {
        match self.0 {
            State::Prepared { bytes, .. } => Some(bytes),
            State::Fits | State::Claimed(_) | State::Replaced(_) => None,
        }
    }

    /// Notes that memory of `bytes` has taken over.
    pub(crate) fn replaced(&mut self, bytes: usize) {
        if let State::Claimed(claimed) | State::Prepared { claimed, .. } = self.0 {
            self.0 = State::Replaced((claimed != bytes).then_some(claimed));
        }
    }

    /// True while the earlier memory is not released.
    pub(crate) fn is_replaced(&self) -> bool {
        matches!(self.0, State::Replaced(_))
    }

    pub(crate) fn released(&mut self) {
        if let State::Replaced(claimed) = self.0 {
            self.0 = claimed.map_or(State::Fits, State::Claimed);
        }
    }

    /// True if nothing is left to do.
    pub(crate) fn fits(&self) -> bool {
        self.0 == State::Fits
    }
}
