//! Expected reads: reads that are known before their bytes come, in order. For a read of a known size a buffer of
//! exactly that size is advertised.

use std::collections::VecDeque;

/// The expected reads of one connection. Their reader makes one call at a time, so the first expected read does not
/// change during a read.
#[derive(Default)]
pub(crate) struct ExpectedReads {
    /// The size of each read in bytes; 0: a read of any size.
    sizes: VecDeque<usize>,
    /// Bytes that the reader has taken in and not handed over. A copy for other threads, as only the reader can use its
    /// assembly; [`Self::note_kept`] alone changes it.
    kept: usize,
    /// True: the last read was an expected one, or the next will be. Only buffers for expected reads are advertised
    /// then.
    pub(crate) in_use: bool,
}

impl ExpectedReads {
    pub(crate) fn push(&mut self, bytes: usize) {
        self.sizes.push_back(bytes);
        self.in_use = true;
    }

    pub(crate) fn first(&self) -> Option<usize> {
        self.sizes.front().copied()
    }

    pub(crate) fn pop(&mut self) {
        self.sizes.pop_front();
    }

    /// Takes back the read with this index. Bytes that were taken in for it, or that land in buffers advertised for it,
    /// go to the next read.
    pub(crate) fn remove(&mut self, index: usize) {
        self.sizes.remove(index);
    }

    pub(crate) fn clear(&mut self) {
        self.sizes.clear();
    }

    /// Sets the number of bytes that the reader has taken in and not handed over.
    #[inline]
    pub(crate) fn note_kept(&mut self, bytes: usize) {
        self.kept = bytes;
    }

    /// True if the first read needs more bytes than those taken in for it and `arrived` bytes together.
    pub(crate) fn wants_more_than(&self, arrived: usize) -> bool {
        self.in_use && self.first().is_some_and(|bytes| bytes > self.kept + arrived)
    }

    /// Sizes of the buffers to advertise, in order, if buffers for `covered` bytes are advertised already. Each is at
    /// most `piece` bytes, and the last buffer of a read ends with the read. The list stops at a read of any size, as
    /// the begin of the next read is not known.
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
