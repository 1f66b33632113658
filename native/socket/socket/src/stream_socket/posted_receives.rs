//! The receives that are posted, in order.

use std::collections::VecDeque;

/// The tokens of the posted receives of one stream socket. Each has an expected read of the connection, which knows its
/// size: both lists change together, with the lock of the reading direction held.
pub(super) struct PostedReceives<T>(VecDeque<T>);

impl<T> Default for PostedReceives<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> PostedReceives<T> {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn push(&mut self, token: T) {
        self.0.push_back(token);
    }

    /// Removes the first receive, which is complete or has failed.
    pub(super) fn pop(&mut self) -> Option<T> {
        self.0.pop_front()
    }

    /// Removes the first receive that `is` accepts. Returns its index.
    pub(super) fn cancel(&mut self, is: impl Fn(&T) -> bool) -> Option<usize> {
        let index = self.0.iter().position(is)?;
        self.0.remove(index).map(|_token| index)
    }
}
