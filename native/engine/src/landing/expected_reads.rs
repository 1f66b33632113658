//! Reads that are known before their bytes come, in order. Each one of a known size is advertised as a buffer of just
//! that size.

use std::collections::VecDeque;

/// The expected reads of one connection. Their reader makes one call at a time, so the first of them does not change
/// while a read for it is under way.
#[derive(Default)]
pub(crate) struct ExpectedReads {
    /// The size of each in bytes; 0: whatever comes.
    sizes: VecDeque<usize>,
    /// Bytes that the reader has taken in and not handed over. A copy, as other threads ask while the reader has its
    /// assembly; [`Self::note_kept`] alone changes it.
    kept: usize,
    /// The last read was, or the next will be, an expected one: nothing is advertised on suspicion.
    pub(crate) in_use: bool,
}

impl ExpectedReads {
    pub(crate) fn push(&mut self, bytes: usize) {
        self.sizes.push_back(bytes);
        self.in_use = true;
    }

    /// Removes the first, which is satisfied.
    pub(crate) fn pop(&mut self) {
        self.sizes.pop_front();
    }

    /// Takes back the read with this index. Bytes that were taken in for it, or that land in buffers advertised for it,
    /// go to the next read.
    pub(crate) fn remove(&mut self, index: usize) {
        self.sizes.remove(index);
    }

    /// Takes back all of them.
    pub(crate) fn clear(&mut self) {
        self.sizes.clear();
    }

    /// The reader has taken in and not handed over this many bytes now; returns how many before.
    #[inline]
    pub(crate) fn note_kept(&mut self, bytes: usize) -> usize {
        std::mem::replace(&mut self.kept, bytes)
    }

    /// True if the first wants more than the bytes taken in for it and `arrived` bytes together.
    pub(crate) fn wants_more_than(&self, arrived: usize) -> bool {
        self.in_use && self.sizes.front().is_some_and(|bytes| *bytes > self.kept + arrived)
    }

    /// Sizes of the buffers to advertise, in order, when buffers for `covered` bytes are there already. Each is `piece`
    /// bytes at most, and the last one of a read ends where the read ends. The list stops at a read of any size: where
    /// the next read begins is not known.
    pub(crate) fn pieces(&self, covered: usize, piece: usize) -> impl Iterator<Item = usize> {
        let mut behind = self.kept.saturating_add(covered);
        self.sizes
            .iter()
            .copied()
            .take_while(|bytes| *bytes > 0)
            .flat_map(move |bytes| {
                let there = behind.min(bytes);
                behind -= there;
                let left = bytes - there;
                let whole = left / piece;
                std::iter::repeat_n(piece, whole).chain((left % piece > 0).then_some(left % piece))
            })
    }
}
