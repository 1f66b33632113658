//! Counters with a meaning.

/// The sequence number of a byte of the stream: the count of bytes before it. 64 bits never wrap in practice
/// (at 100 GB/s after 5.8 years), yet all arithmetic on a peer's word is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seq(pub u64);

impl Seq {
    /// The byte `bytes` further on. None: past the last number, which only a peer that breaks the protocol can reach.
    pub(crate) fn checked_add(self, bytes: u32) -> Option<Seq> {
        self.0.checked_add(u64::from(bytes)).map(Seq)
    }

    /// The byte `bytes` further on, for counts that the caller has checked already.
    pub(crate) fn plus(self, bytes: u32) -> Seq {
        Seq(self.0.saturating_add(u64::from(bytes)))
    }
}

/// Counts the switches between direct (even) and indirect (odd) transfers; never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Phase(pub u64);

impl Phase {
    /// True in a phase of direct transfers.
    pub fn is_direct(self) -> bool {
        self.0 % 2 == 0
    }

    /// The phase after this one. The last number is odd and has none after it: only even phases come from a peer,
    /// and those all have one.
    #[must_use]
    pub fn next(self) -> Phase {
        Phase(self.0.saturating_add(1))
    }
}
