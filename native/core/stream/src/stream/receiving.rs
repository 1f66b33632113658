//! The calls of the side that reads: posted receives, and the ring.

use super::Stream;
use crate::receive::{Receive, ReceiveId};
use crate::ring::RingSpan;
use crate::wire::NewRing;

impl Stream {
    /// Posts a receive, after the others: offers a buffer of 1 to [`crate::TRANSFER_BYTES_MAX`] bytes.
    ///
    /// The peer may write into the buffer until an [`crate::Arrival::Direct`] with `done` or [`Self::withdraw`] names
    /// it.
    pub fn post_receive(&mut self, receive: Receive) {
        self.receiver.post(receive);
    }

    /// The oldest bytes in the ring, in the order of the stream; runs of 0 bytes if there are none. While
    /// [`Self::reads_old_ring`] is true they are in the replaced ring.
    #[must_use]
    #[inline]
    pub fn ring_readable(&self) -> [RingSpan; 2] {
        self.receiver.readable()
    }

    /// The offset at which the next indirect transfer arrives.
    #[must_use]
    #[inline]
    pub fn ring_writable(&self) -> RingSpan {
        self.receiver.ring.writable()
    }

    /// Number of bytes in the ring and in the replaced ring.
    #[must_use]
    #[inline]
    pub fn ring_bytes_readable(&self) -> u32 {
        self.receiver.unread
    }

    /// Bytes from the next one to read up to the end of its ring, some of which might not have arrived.
    #[must_use]
    #[inline]
    pub fn ring_to_end(&self) -> u32 {
        self.receiver.read_ring().read_to_end()
    }

    /// True while the replaced ring holds bytes. The next bytes to read are there, and its memory is in use.
    #[must_use]
    #[inline]
    pub fn reads_old_ring(&self) -> bool {
        self.receiver.old.is_some()
    }

    /// Size of the ring that the peer writes into.
    #[must_use]
    pub fn ring_bytes(&self) -> u32 {
        self.receiver.ring.bytes()
    }

    /// Bytes of the ring that are free as far as the peer has been told.
    #[must_use]
    #[inline]
    pub fn ring_room_of_peer(&self) -> u32 {
        self.receiver.peer_room()
    }

    /// Asks the peer to give up all advertisements; nothing is advertised until the answer, [`crate::Arrival::Mark`].
    /// False: a question is under way already, or the peer has finished. A peer that finishes need not answer.
    #[must_use]
    pub fn recall(&mut self) -> bool {
        self.receiver.recall()
    }

    /// As [`Self::recall`], and asks the peer to write into `ring` from the mark on. False also while the replaced ring
    /// holds bytes.
    #[must_use]
    pub fn replace_ring(&mut self, ring: NewRing) -> bool {
        self.receiver.replace_ring(ring)
    }

    /// Whether [`Self::recall`] or [`Self::replace_ring`] waits for its mark.
    #[must_use]
    pub fn is_asking(&self) -> bool {
        self.receiver.is_asking()
    }

    /// Notes that the caller has copied the oldest `bytes` of the ring, or of the replaced ring. More bytes than it
    /// holds are a mistake of the caller: a debug build panics; a release build ignores the excess.
    #[inline]
    pub fn handle_copied(&mut self, bytes: u32) {
        self.receiver.handle_copied(bytes);
    }

    /// Takes back one posted receive that the peer can no longer fill (indirect bytes have arrived after its
    /// advertisement, or the stream is at its end), or that was not advertised. The caller owns its buffer again; that
    /// of a `fill` receive may hold bytes of earlier arrivals. None: the peer may write into all others.
    #[must_use]
    #[inline]
    pub fn withdraw(&mut self) -> Option<ReceiveId> {
        self.receiver.withdraw()
    }

    /// Tells a waiting peer that the caller offers no buffer for now. Call it when the caller has read everything and
    /// has no buffer, or does not read for now. Does nothing while a receive is advertised or may be, or if the peer
    /// does not wait.
    #[inline]
    pub fn pass(&mut self) {
        self.receiver.pass();
    }

    /// Number of posted receives that are not complete, advertised or not.
    #[must_use]
    pub fn outstanding_receives(&self) -> usize {
        self.receiver.receives.len()
    }

    /// True if the peer has finished, and every byte up to its end has arrived and left the ring.
    #[must_use]
    pub fn is_end(&self) -> bool {
        self.receiver.is_end()
    }
}
