//! What comes of a call on a path.

use inet_rdma_session::Violation;
use rustix::io::Errno;

use crate::compress::BlockViolation;

/// The socket can be used no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The peer has closed it, or its host has on behalf of the process.
    #[error("the peer closed the TCP connection")]
    Eof,
    /// The kernel gives this error.
    #[error("the TCP connection failed: {0}")]
    Error(Errno),
}

/// Why no more can be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReceiveError {
    /// The path ends; the session may go on over another one.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The session ends.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// The session ends: a record is not the peer's.
    #[error(transparent)]
    Record(#[from] inet_rdma_records::Violation),
    /// The session ends: the peer compresses what cannot be.
    #[error(transparent)]
    Block(#[from] BlockViolation),
}

impl ReceiveError {
    /// The peer broke the rules; else the path alone is lost.
    pub fn ends_session(&self) -> bool {
        !matches!(self, ReceiveError::Lost(_))
    }
}

/// How far a transmission came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Transmitted {
    /// All that the session has.
    All,
    /// The socket takes no more: wait until it is writable.
    Blocked,
}
