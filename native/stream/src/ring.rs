//! Positions in a ring: the sender's view of the peer's ring and the receiver's of its own are the same arithmetic.

use crate::seq::Seq;

/// A contiguous run in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RingSpan {
    /// Its start, in bytes from the start of the ring.
    pub offset: u32,
    /// Its size; 0: there is none.
    pub bytes: u32,
}

/// # Invariants
/// `base <= freed <= written`, and `written - freed <= bytes`.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
pub(crate) struct Ring {
    bytes: u32,
    /// The ring byte that goes to offset 0 first.
    base: Seq,
    /// Bytes ever written, into this ring and those before it. The next one goes to `(written - base) % bytes`.
    written: Seq,
    /// Bytes ever freed. The oldest one in the ring is at `(freed - base) % bytes`.
    freed: Seq,
}

impl Ring {
    /// An empty ring of `bytes` (at least 1) that has had `start` bytes through it.
    pub fn new(bytes: u32, start: Seq) -> Ring {
        Ring {
            bytes,
            base: Seq(0),
            written: start,
            freed: start,
        }
    }

    /// The ring that takes over where `self` ends: the next byte goes to offset 0 of other memory, of `bytes` (at least
    /// 1).
    pub fn successor(&self, bytes: u32) -> Ring {
        Ring {
            bytes,
            base: self.written,
            written: self.written,
            freed: self.written,
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
        self.span(self.written, self.free())
    }

    /// The oldest run of bytes in the ring, up to its end.
    pub fn readable(&self) -> RingSpan {
        self.span(self.freed, self.used())
    }

    /// Bytes from where the next write goes to the ring's end.
    pub fn write_to_end(&self) -> u32 {
        self.to_end(self.written)
    }

    /// Bytes from the oldest one in the ring, or where it will be, to the ring's end.
    pub fn read_to_end(&self) -> u32 {
        self.to_end(self.freed)
    }

    /// `bytes` are now written; at most `free()`.
    pub fn write(&mut self, bytes: u32) {
        debug_assert!(bytes <= self.free());
        self.written = self.written.plus(bytes);
    }

    /// All up to `freed` are now free; at most `written()`, not less than before.
    pub fn free_to(&mut self, freed: Seq) {
        debug_assert!(self.freed <= freed && freed <= self.written);
        self.freed = freed;
    }

    /// The oldest `bytes`, or all that there are, are now free; how many. More is the caller's mistake.
    pub fn free_first(&mut self, bytes: u32) -> u32 {
        debug_assert!(
            bytes <= self.used(),
            "{bytes} bytes copied, {} in the ring",
            self.used()
        );
        let bytes = bytes.min(self.used());
        self.freed = self.freed.plus(bytes);
        bytes
    }

    fn span(&self, from: Seq, bytes: u32) -> RingSpan {
        let offset = self.offset(from);
        RingSpan {
            offset,
            bytes: bytes.min(self.bytes - offset),
        }
    }

    fn to_end(&self, from: Seq) -> u32 {
        self.bytes - self.offset(from)
    }

    /// `from` is `written` or `freed`, so not below `base`.
    fn offset(&self, from: Seq) -> u32 {
        // Fits: a remainder by a 32-bit number.
        ((from.0 - self.base.0) % u64::from(self.bytes)) as u32
    }
}
