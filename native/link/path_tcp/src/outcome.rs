//! The results of calls on a path.

use inet_rdma_session::Violation;
use rustix::io::Errno;

use crate::compress::BlockViolation;

/// The socket can no longer be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The peer has closed it, or the peer's host has after the process's end.
    #[error("the peer closed the TCP connection")]
    Eof,
    /// The kernel gives this error.
    #[error("the TCP connection failed: {0}")]
    Error(Errno),
}

/// The reason why no more can be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReceiveError {
    /// The path ends; the session may go on over another one.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The session ends.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// The session ends: a record is forged.
    #[error(transparent)]
    Record(#[from] inet_rdma_records::Violation),
    /// The session ends: the peer broke the rules of compressed blocks.
    #[error(transparent)]
    Block(#[from] BlockViolation),
}

impl ReceiveError {
    /// True if the peer broke the rules; otherwise only the path is lost.
    pub fn ends_session(&self) -> bool {
        !matches!(self, ReceiveError::Lost(_))
    }
}

/// The progress of a transmission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Transmitted {
    /// All bytes of the session are sent.
    All,
    /// The socket takes no more: wait until it is writable.
    Blocked,
    /// The kernel lacks memory for more. The socket may stay writable meanwhile: try again after a moment.
    NoMemory,
}

/// The end of a turn of receiving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Received {
    /// All bytes that had arrived are taken.
    All,
    /// The turn is over, and more may be here: see [`TcpPath::holds_input`](crate::TcpPath::holds_input).
    More,
}
