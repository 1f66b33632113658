//! A transfer: what the caller offers for it, and what it must post.

use crate::wire::{Notice, RemoteAddress};

/// The bytes that the caller would write now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Bytes, if the transfer goes into the ring. 0: nothing is meant for the ring, wait for an advertisement.
    pub indirect: u32,
    /// Bytes, if the transfer goes into an advertised buffer. 0: a voluntary indirect transfer, which makes the
    /// advertisements at hand stale.
    pub direct: u32,
}

/// A write that the caller must post now, with its notice. It carries as many of the caller's bytes as the notice says,
/// never more than were offered for its kind; a mark carries none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Transfer {
    /// Where to: into an advertised buffer if the notice is direct, else into the peer's ring.
    pub target: RemoteAddress,
    /// The notice for the peer.
    pub notice: Notice,
}

impl Transfer {
    /// How many bytes.
    pub fn bytes(&self) -> u32 {
        self.notice.bytes
    }
}
