//! The write under way, and the packets that wait for one.

use std::time::Instant;

/// Packets that share a write.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Gathering {
    /// Packets wait for the end of the caller's turn: others may share a write with them.
    pub(crate) waits: bool,
    /// The last packet over TCP that did not wait.
    pub(crate) sent_at: Option<Instant>,
}

/// The write under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum Transmission {
    /// There is none.
    #[default]
    None,
    /// The bytes for TCP come next.
    Tcp(Begun),
    /// The bytes for the queue pair come next.
    QueuePair(Begun),
    /// All paths have what they take.
    Done(Begun),
}

/// A write that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Begun {
    /// Bytes that no path had taken at the begin.
    pub(crate) unsent_bytes: usize,
    /// Somebody waits for what goes over TCP.
    pub(crate) is_awaited: bool,
    /// The caller has looked at the TCP connection before this write. A connection that is at its end gives no answer,
    /// and another look none either.
    pub(crate) has_looked: bool,
}

impl Transmission {
    pub(crate) fn is_due(self) -> bool {
        self != Transmission::None
    }
}
