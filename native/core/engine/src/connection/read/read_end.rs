//! How a read ends.

use crate::connection::closed::Closed;
use crate::connection::state::{Connection, Core};

/// How a read ended.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadEnd {
    /// There may be more: read again.
    More,
    /// Nothing more for now.
    Empty,
    /// Nothing more, ever.
    Closed(Closed),
}

/// How a read ended, without the reason of the connection's end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    More,
    /// Nothing more for now.
    Empty,
    /// The user no longer reads.
    Stopped,
    /// The peer has ended its stream, and all of it was read.
    EndOfStream,
    Ended,
}

impl Outcome {
    #[inline]
    pub(crate) fn is_end(self) -> bool {
        matches!(self, Outcome::Stopped | Outcome::EndOfStream | Outcome::Ended)
    }
}

/// The reason why a read finds nothing more.
#[inline]
pub(crate) fn nothing_more(core: &Core) -> Outcome {
    if !core.is_up() {
        Outcome::Ended
    } else if core.stream.is_end() && !core.awaits_landed() {
        Outcome::EndOfStream
    } else {
        Outcome::Empty
    }
}

impl Connection {
    /// The outcome for the caller, with the reason of the connection's end.
    #[inline]
    pub(crate) fn read_end(&self, outcome: Outcome) -> ReadEnd {
        match outcome {
            Outcome::More => ReadEnd::More,
            Outcome::Empty => ReadEnd::Empty,
            Outcome::Stopped => ReadEnd::Closed(Closed::Here),
            Outcome::EndOfStream => ReadEnd::Closed(Closed::ByPeer),
            Outcome::Ended => ReadEnd::Closed(self.why_over()),
        }
    }

    #[cold]
    fn why_over(&self) -> Closed {
        self.closed().unwrap_or(Closed::ByPeer)
    }
}
