//! Faults of records and of control messages.

/// A breach of the rules of records by the peer, or by a stranger in its place. Each ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A ring that is too small for records.
    #[error("a ring of {0} bytes takes no records")]
    RecordRing(u32),
    /// A record of an impossible size.
    #[error("a record of {bytes} bytes; 1 to {max} are possible")]
    RecordBytes {
        /// Its size, as its header gives it.
        bytes: usize,
        /// The largest size.
        max: usize,
    },
    /// A part of a record.
    #[error("a record of {bytes} bytes of which {arrived} came")]
    RecordCut {
        /// Size of the whole record.
        bytes: usize,
        /// Bytes of it that have arrived.
        arrived: usize,
    },
    /// A record or control message under a key that is neither the present one nor the next.
    #[error("a record under the key of generation {said}; the present one is {present}")]
    KeyGeneration {
        /// The generation in its header.
        said: u32,
        /// The present generation.
        present: u32,
    },
    /// A record that was changed, repeated, left out, or moved.
    #[error("record {sequence} is not the peer's: it was changed, or is out of order")]
    RecordForged {
        /// The number that it should have.
        sequence: u64,
    },
    /// A control message that was changed, repeated, left out, or moved.
    #[error("control message {sequence} is not the peer's: it was changed, or is out of order")]
    ControlForged {
        /// The number that it should have.
        sequence: u64,
    },
}
