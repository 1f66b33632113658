//! The calls of the side that reads: posted receives, and the ring.

use super::Stream;
use crate::receive::{Completed, Receive, ReceiveId};
use crate::ring::RingSpan;
use crate::wire::NewRing;

impl Stream {
    /// Offers a buffer, behind those that are posted already. Of 1 to [`crate::TRANSFER_BYTES_MAX`] bytes.
    ///
    /// It stays the peer's until it is named by an [`crate::Arrival::Direct`] with `done`, by a [`Completed`] or by
    /// [`Self::withdraw`].
    pub fn post_receive(&mut self, receive: Receive) {
        self.receiver.post(receive);
    }

    /// The oldest bytes in the ring, in the order of the stream; runs of 0 bytes if there are none. While
    /// [`Self::reads_old_ring`] they are in that one.
    #[must_use]
    #[inline]
    pub fn ring_readable(&self) -> [RingSpan; 2] {
        self.receiver.readable()
    }

    /// Where the next indirect transfer arrives.
    #[must_use]
    #[inline]
    pub fn ring_writable(&self) -> RingSpan {
        self.receiver.writable()
    }

    /// All bytes in the ring, and in the ring before it.
    #[must_use]
    #[inline]
    pub fn ring_bytes_readable(&self) -> u32 {
        self.receiver.used()
    }

    /// Bytes from the next one to be read to the end of the ring that it is in, some of which may not have arrived.
    #[must_use]
    #[inline]
    pub fn ring_to_end(&self) -> u32 {
        self.receiver.ring_to_end()
    }

    /// Whether there are bytes in the ring that was replaced. The first bytes to be read are there, and its memory is
    /// in use for as long.
    #[must_use]
    #[inline]
    pub fn reads_old_ring(&self) -> bool {
        self.receiver.reads_old_ring()
    }

    /// Size of the ring that the peer writes into.
    #[must_use]
    pub fn ring_bytes(&self) -> u32 {
        self.receiver.ring_bytes()
    }

    /// Bytes of the ring that are free as far as the peer has been told.
    #[must_use]
    #[inline]
    pub fn ring_room_of_peer(&self) -> u32 {
        self.receiver.peer_room()
    }

    /// Asks the peer to give up what was advertised; nothing more is advertised meanwhile. [`crate::Arrival::Mark`] is
    /// the answer. False: a question is under way already, or the peer has finished. A peer that finishes need not
    /// answer.
    #[must_use]
    pub fn recall(&mut self) -> bool {
        self.receiver.recall()
    }

    /// As [`Self::recall`], and asks the peer to write into `ring` from the mark on. False also while the ring before
    /// this one holds bytes.
    #[must_use]
    pub fn replace_ring(&mut self, ring: NewRing) -> bool {
        self.receiver.replace_ring(ring)
    }

    /// Whether [`Self::recall`] or [`Self::replace_ring`] waits for its mark.
    #[must_use]
    pub fn is_asking(&self) -> bool {
        self.receiver.is_asking()
    }

    /// The caller copied the oldest `bytes` of the ring, or of the ring before it: into the head of the posted
    /// receives, behind what is in it, if there is one; else to where it likes. More than are in the ring, or than the
    /// head still takes, is the caller's mistake: a panic in a debug build; what is too much is ignored (ring) or
    /// counted as out (receive) otherwise.
    #[inline]
    pub fn handle_copied(&mut self, bytes: u32) -> Option<Completed> {
        self.receiver.handle_copied(bytes)
    }

    /// Takes back, one per call, a posted receive that can never be filled directly any more (indirect bytes arrived
    /// after it was advertised, or the stream is at its end), or that was not advertised yet. Its buffer is the
    /// caller's again; a `fill` receive may hold bytes that earlier arrivals told of. None: the peer may write into all
    /// others.
    #[must_use]
    #[inline]
    pub fn withdraw(&mut self) -> Option<ReceiveId> {
        self.receiver.withdraw()
    }

    /// The caller offers no buffer for now, as it has read all and has none, or reads no more for now: a peer that
    /// waits for one is told. Call it whenever that is so; it does nothing while a receive is advertised or may be, or
    /// no peer waits.
    #[inline]
    pub fn pass(&mut self) {
        self.receiver.pass();
    }

    /// Receives that are posted and not satisfied, advertised or not.
    #[must_use]
    pub fn outstanding_receives(&self) -> usize {
        self.receiver.receives()
    }

    /// The peer has finished, and every byte up to its end has arrived and left the ring.
    #[must_use]
    pub fn is_end(&self) -> bool {
        self.receiver.is_end()
    }
}
