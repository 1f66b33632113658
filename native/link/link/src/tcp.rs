//! The TCP connection of a link: there, lost, or given up by an attempt to resume.

use std::time::Instant;

use crate::notice::Loss;
use crate::questions::Questions;

/// The facts of a new TCP connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Connection {
    /// How far it leads.
    pub reach: Reach,
    /// Its bytes go in sealed records.
    pub is_sealed: bool,
}

/// How far a TCP connection leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reach {
    /// To the same network address.
    Loopback,
    /// To a kernel that answers as fast as one of this host, a container's for example, or of this rack. It may be a
    /// proxy's, with the peer behind it far away.
    Near,
    /// Further, or nobody knows.
    Far,
}

/// The TCP connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Tcp {
    /// There is none: not yet, or it is lost.
    Absent {
        /// The reason of the last loss. None: none was lost.
        loss: Option<Loss>,
    },
    /// An attempt to resume is under way, which has given the connection up if there was one. The caller keeps that
    /// unread and unwritten until the attempt ends: the peer may not know of the attempt yet. A reset would reach it as
    /// a loss, and it would make an attempt of its own.
    Resuming {
        /// The attempt ends at this time: its process may have been killed.
        until: Instant,
        /// As of `Absent`.
        loss: Option<Loss>,
    },
    /// There is one.
    Present(Present),
}

/// The state of a TCP connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Present {
    pub(crate) is_sealed: bool,
    pub(crate) output: Output,
    /// Bytes that the session has transmitted and the socket has not taken.
    pub(crate) held_bytes: usize,
    /// The questions that decide whether the path is suspected. None: what the kernel says does.
    pub(crate) questions: Option<Questions>,
}

/// The state of outgoing bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Output {
    /// There may be room.
    Free,
    /// The socket is full.
    Blocked,
    /// The kernel had no memory for more: the port writes again at this time.
    Again(Instant),
    /// Nothing more can be sent, for this reason. Bytes that have arrived are still read.
    Failed(Loss),
}

/// The result of a write to the TCP connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpWritten {
    /// All bytes are written, or no event would tell of room.
    All,
    /// The socket takes no further bytes: the caller waits until it is writable.
    Blocked,
    /// The kernel has no memory for more.
    NoMemory,
    /// Nothing more can be sent.
    Failed(Loss),
}

impl Tcp {
    pub(crate) fn present(&self) -> Option<&Present> {
        match self {
            Tcp::Present(present) => Some(present),
            Tcp::Absent { .. } | Tcp::Resuming { .. } => None,
        }
    }

    pub(crate) fn present_mut(&mut self) -> Option<&mut Present> {
        match self {
            Tcp::Present(present) => Some(present),
            Tcp::Absent { .. } | Tcp::Resuming { .. } => None,
        }
    }

    pub(crate) fn is_present(&self) -> bool {
        self.present().is_some()
    }

    /// The reason of the last loss, if no connection has come since then.
    pub(crate) fn loss(&self) -> Option<Loss> {
        match *self {
            Tcp::Absent { loss } | Tcp::Resuming { loss, .. } => loss,
            Tcp::Present(_) => None,
        }
    }

    /// The time at which the attempt under way ends.
    pub(crate) fn attempt_until(&self) -> Option<Instant> {
        match *self {
            Tcp::Resuming { until, .. } => Some(until),
            Tcp::Absent { .. } | Tcp::Present(_) => None,
        }
    }

    /// The time to write again, if the kernel had no memory.
    pub(crate) fn again_at(&self) -> Option<Instant> {
        match self.present()?.output {
            Output::Again(at) => Some(at),
            Output::Free | Output::Blocked | Output::Failed(_) => None,
        }
    }
}

impl Present {
    pub(crate) fn new(connection: Connection) -> Present {
        Present {
            is_sealed: connection.is_sealed,
            output: Output::Free,
            held_bytes: 0,
            questions: None,
        }
    }

    /// Whether a write would find no room.
    pub(crate) fn is_blocked(&self) -> bool {
        matches!(self.output, Output::Blocked | Output::Again(_))
    }
}
