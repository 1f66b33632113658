//! A transfer: the offer of the caller, and the write that it must post.

use crate::wire::{Notice, RemoteAddress};

/// The bytes that the caller would write now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Number of bytes for a transfer into the ring. 0: do not use the ring, wait for an advertisement.
    pub indirect: u32,
    /// Number of bytes for a transfer into an advertised buffer. 0: a voluntary indirect transfer, which makes the
    /// present advertisements stale.
    pub direct: u32,
}

/// A write that the caller must post now, with its notice. The notice has the number of its bytes, at most as many as
/// were offered for its kind; a mark has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Transfer {
    /// The target: in an advertised buffer if the notice is direct, else in the peer's ring.
    pub target: RemoteAddress,
    /// The notice for the peer.
    pub notice: Notice,
}
