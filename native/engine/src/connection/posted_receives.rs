//! The receives that are posted, in order: each of a known size is advertised as a buffer of just that size.

use std::collections::VecDeque;

struct Posted<T> {
    /// Bytes that it takes; 0: whatever comes.
    bytes: usize,
    token: T,
}

/// All of one connection. It changes only with the lock of the reading direction held, so that a read for the first of them
/// finds it there when it ends.
pub(super) struct PostedReceives<T> {
    queue: VecDeque<Posted<T>>,
    /// Bytes that the reader has taken in already and not handed over.
    pub(super) kept: usize,
    /// The last read was, or the next will be, for a posted receive: nothing is advertised on suspicion.
    pub(super) in_use: bool,
}

impl<T> Default for PostedReceives<T> {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            kept: 0,
            in_use: false,
        }
    }
}

impl<T> PostedReceives<T> {
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn push(&mut self, token: T, bytes: usize) {
        self.queue.push_back(Posted { bytes, token });
        self.in_use = true;
    }

    /// What the first of them takes.
    pub(super) fn first(&self) -> Option<usize> {
        self.queue.front().map(|posted| posted.bytes)
    }

    /// The first is satisfied, or over.
    pub(super) fn pop(&mut self) -> Option<T> {
        self.queue.pop_front().map(|posted| posted.token)
    }

    /// Removes the first receive that `is` accepts. Bytes that were taken in for it, or that land in buffers advertised
    /// for it, go to the next read.
    pub(super) fn cancel(&mut self, is: impl Fn(&T) -> bool) -> Option<T> {
        let index = self.queue.iter().position(|posted| is(&posted.token))?;
        self.queue.remove(index).map(|posted| posted.token)
    }

    /// The first wants more than what was taken in for it and `arrived` bytes.
    pub(super) fn wants_more_than(&self, arrived: usize) -> bool {
        self.in_use && self.first().unwrap_or(0) > self.kept + arrived
    }

    /// Sizes of the buffers to advertise, in order, when buffers for `covered` bytes are there already. Each is `piece`
    /// bytes at most, and the last one of a receive ends where the receive ends. The list stops at a receive of any
    /// size: where the next receive begins is not known.
    pub(super) fn pieces(&self, covered: usize, piece: usize) -> impl Iterator<Item = usize> {
        let mut behind = self.kept.saturating_add(covered);
        self.queue
            .iter()
            .map(|posted| posted.bytes)
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
