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

/// The reason why nothing can be received from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReceiveError {
    /// The path ends; the session may go on over another one.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The session ends.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// The path ends: a record was changed on its way, or somebody else has sent it.
    #[error(transparent)]
    Record(#[from] inet_rdma_records::Violation),
    /// The path ends: outside of records, bytes of a compressed block were changed on their way.
    #[error(transparent)]
    Block(#[from] BlockViolation),
    /// The session ends: in records the peer itself broke the rules of compressed blocks; or, outside of them, a part
    /// of the block was given to the session.
    #[error(transparent)]
    PeerBlock(BlockViolation),
}

impl ReceiveError {
    /// True if the peer broke the rules; otherwise only the path is lost.
    pub fn ends_session(&self) -> bool {
        matches!(self, ReceiveError::Violation(_) | ReceiveError::PeerBlock(_))
    }

    /// True if bytes that arrived are not the bytes that the peer sent.
    pub fn is_damage(&self) -> bool {
        matches!(self, ReceiveError::Record(_) | ReceiveError::Block(_))
    }
}

/// The progress of a transmission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Transmitted {
    /// All bytes of the session are sent.
    All,
    /// The socket is full: wait until it is writable.
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
