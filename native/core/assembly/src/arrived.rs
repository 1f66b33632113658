//! Bytes in memory that the peer can write. They are copied out first, and only the copies are interpreted; a search
//! for a byte alone reads them in place.

use std::ops::Range;

use bytes::buf::UninitSlice;

/// Bytes that have arrived, in up to two runs (before and after the ring's wrap).
///
/// # Invariants
/// Both runs are mapped memory for as long as this value lives; the peer may write to them at any time.
pub struct Arrived {
    runs: [(*const u8, usize); 2],
}

impl Arrived {
    /// # Safety
    /// Each run must be readable for its length for as long as the value lives.
    #[inline]
    pub unsafe fn new(runs: [(*const u8, usize); 2]) -> Self {
        Self { runs }
    }

    /// All bytes.
    #[expect(clippy::len_without_is_empty, reason = "its users want to know how many there are")]
    #[inline]
    pub fn len(&self) -> usize {
        self.runs[0].1 + self.runs[1].1
    }

    /// Copies the bytes from `at` on. Returns the copy.
    #[inline]
    pub fn copy_out<'a>(&self, at: usize, to: &'a mut UninitSlice) -> &'a mut [u8] {
        let (base, bytes) = self.runs[0];
        if at + to.len() <= bytes {
            // SAFETY: as below: the source lies in the first run as a whole.
            unsafe { std::ptr::copy_nonoverlapping(base.add(at), to.as_mut_ptr(), to.len()) };
        } else {
            self.copy_out_of_both(at, to);
        }
        // SAFETY: all bytes of the slice have been written, and it is borrowed for as long.
        unsafe { std::slice::from_raw_parts_mut(to.as_mut_ptr(), to.len()) }
    }

    #[inline(never)]
    fn copy_out_of_both(&self, at: usize, to: &mut UninitSlice) {
        assert!(at + to.len() <= self.len(), "copy beyond what arrived");
        let mut skip = at;
        let mut done = 0;
        for (base, bytes) in self.runs {
            let part = bytes.saturating_sub(skip).min(to.len() - done);
            if part > 0 {
                // SAFETY: `skip + part <= bytes`, so the source lies in a run, mapped by the type's invariant; `to` is
                // this process's own memory with room for `part` after `done`. The peer may write the source
                // meanwhile: the bytes are untrusted either way, and nothing but this copy looks at them.
                unsafe { std::ptr::copy_nonoverlapping(base.add(skip), to[done..].as_mut_ptr(), part) };
                done += part;
            }
            skip = skip.saturating_sub(bytes);
        }
    }

    /// The position of the first `byte` in `range`. The peer may have changed it when it is copied later.
    pub(crate) fn find(&self, byte: u8, range: Range<usize>) -> Option<usize> {
        assert!(range.end <= self.len(), "search beyond what arrived");
        let mut start = 0;
        for (base, bytes) in self.runs {
            let from = range.start.saturating_sub(start).min(bytes);
            let to = range.end.saturating_sub(start).min(bytes);
            if from < to {
                // SAFETY: `from..to` lies in a run, mapped by the type's invariant. memchr only reads; the peer may
                // write these bytes meanwhile, and whatever memchr makes of that is compared with the range below.
                let found = unsafe { libc::memchr(base.add(from).cast(), byte.into(), to - from) };
                let at = found.addr().wrapping_sub(base.addr());
                if !found.is_null() && (from..to).contains(&at) {
                    return Some(start + at);
                }
            }
            start += bytes;
        }
        None
    }

    /// Copies `BYTES` bytes from `at` on: one instruction if they lie in one run.
    #[inline]
    pub fn read<const BYTES: usize>(&self, at: usize) -> [u8; BYTES] {
        let (base, bytes) = self.runs[0];
        if at.checked_add(BYTES).is_some_and(|end| end <= bytes) {
            // SAFETY: the bytes lie in the first run, mapped by the type's invariant, and an array of bytes may lie
            // anywhere. The peer may write them meanwhile: they are untrusted either way, and nothing but this copy
            // looks at them.
            return unsafe { base.add(at).cast::<[u8; BYTES]>().read_unaligned() };
        }
        let mut read = [0; BYTES];
        self.copy_out(at, UninitSlice::new(&mut read));
        read
    }
}
