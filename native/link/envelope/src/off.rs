//! Why a reader has switched itself off.

/// A packet contradicts the formats, so the reader's copy of the atom cache may be wrong from there on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Off {
    /// The packet ends inside of its header or its control message.
    #[error("a packet ends inside of its header or its control message")]
    Truncated,
    /// The packet begins with neither a distribution header nor the byte of a packet without one.
    #[error("a packet begins with an unknown header")]
    UnknownHeader,
    /// The header refers to an entry of the cache that no header has filled.
    #[error("a header refers to an empty entry of the atom cache")]
    EmptyEntry,
    /// A term refers to an atom that the header does not have.
    #[error("a control message refers to an atom that its header does not have")]
    MissingAtom,
    /// The control message is no tuple that begins with a number.
    #[error("a control message is no tuple that begins with a number")]
    NoOperation,
}
