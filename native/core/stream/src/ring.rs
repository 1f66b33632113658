//! Positions in a ring. The sender's view of the peer's ring and the receiver's view of its own use the same
//! arithmetic.

use crate::seq::Seq;

/// A contiguous run in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RingSpan {
    /// Its start, in bytes from the start of the ring.
    pub offset: u32,
    /// Its size; 0: there is no run.
    pub bytes: u32,
}

/// The offsets are kept beside the counts, so that no call divides: a small transfer makes six calls.
///
/// # Invariants
/// * `base <= freed <= written`, and `written - freed <= bytes`.
/// * `written_at` and `freed_at` are below `bytes`, and behind `base` as far as `written` and `freed`, modulo `bytes`.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
pub(crate) struct Ring {
    bytes: u32,
    /// The position of the byte that was first at offset 0.
    base: Seq,
    /// Number of bytes ever written, into this ring and the replaced ones.
    written: Seq,
    freed: Seq,
    /// Offset of the next byte to write.
    written_at: u32,
    /// Offset of the oldest byte in the ring.
    freed_at: u32,
}

impl Ring {
    /// An empty ring of `bytes` (at least 1), through which `start` bytes have passed.
    pub fn new(bytes: u32, start: Seq) -> Ring {
        // Fits: a remainder by a 32-bit number.
        let at = (start.0 % u64::from(bytes)) as u32;
        Ring {
            bytes,
            base: Seq(0),
            written: start,
            freed: start,
            written_at: at,
            freed_at: at,
        }
    }

    /// The ring that replaces `self`: the next byte goes to offset 0 of other memory, of `bytes` (at least 1).
    pub fn successor(&self, bytes: u32) -> Ring {
        Ring {
            bytes,
            base: self.written,
            written: self.written,
            freed: self.written,
            written_at: 0,
            freed_at: 0,
        }
    }

    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    pub fn base(&self) -> Seq {
        self.base
    }

    pub fn written(&self) -> Seq {
        self.written
    }

    pub fn freed(&self) -> Seq {
        self.freed
    }

    /// Bytes in the ring. Fits: the difference is at most `bytes`.
    pub fn used(&self) -> u32 {
        (self.written.0 - self.freed.0) as u32
    }

    pub fn free(&self) -> u32 {
        self.bytes - self.used()
    }

    /// The run that the next write may use: up to the first byte in use or the ring's end.
    pub fn writable(&self) -> RingSpan {
        RingSpan {
            offset: self.written_at,
            bytes: self.free().min(self.write_to_end()),
        }
    }

    /// The oldest run of bytes in the ring, up to its end.
    pub fn readable(&self) -> RingSpan {
        RingSpan {
            offset: self.freed_at,
            bytes: self.used().min(self.read_to_end()),
        }
    }

    /// Bytes from the next byte to write up to the ring's end.
    pub fn write_to_end(&self) -> u32 {
        self.bytes - self.written_at
    }

    /// Bytes from the oldest byte, or the place of the next one in an empty ring, up to the ring's end.
    pub fn read_to_end(&self) -> u32 {
        self.bytes - self.freed_at
    }

    /// Notes that `bytes` were written; at most `free()`.
    pub fn write(&mut self, bytes: u32) {
        debug_assert!(bytes <= self.free());
        self.written = self.written.plus(bytes);
        self.written_at = self.behind(self.written_at, bytes);
    }

    /// Frees all bytes up to `freed`; at most `written()`, not less than before.
    pub fn free_to(&mut self, freed: Seq) {
        debug_assert!(self.freed <= freed && freed <= self.written);
        // Fits: they are in the ring.
        self.free_some((freed.0 - self.freed.0) as u32);
    }

    /// Frees the oldest `bytes`, or all if there are fewer, which is a mistake of the caller. Returns their number.
    pub fn free_first(&mut self, bytes: u32) -> u32 {
        debug_assert!(
            bytes <= self.used(),
            "{bytes} bytes copied, {} in the ring",
            self.used()
        );
        let bytes = bytes.min(self.used());
        self.free_some(bytes);
        bytes
    }

    fn free_some(&mut self, bytes: u32) {
        self.freed = self.freed.plus(bytes);
        self.freed_at = self.behind(self.freed_at, bytes);
    }

    /// The offset `bytes` after `at`; at most the size of the ring.
    fn behind(&self, at: u32, bytes: u32) -> u32 {
        let to_end = self.bytes - at;
        if bytes < to_end { at + bytes } else { bytes - to_end }
    }
}
