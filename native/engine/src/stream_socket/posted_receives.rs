//! The receives that are posted, in order.

use std::collections::VecDeque;

/// The posted receives of one stream socket. They change only with the lock of the reading direction held, together
/// with the expected reads of the connection.
pub(super) struct PostedReceives<T>(VecDeque<PostedReceive<T>>);

struct PostedReceive<T> {
    /// The size in bytes; 0: any size.
    bytes: usize,
    token: T,
}

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

    pub(super) fn push(&mut self, token: T, bytes: usize) {
        self.0.push_back(PostedReceive { bytes, token });
    }

    /// The size of the first receive.
    pub(super) fn first(&self) -> Option<usize> {
        self.0.front().map(|posted| posted.bytes)
    }

    /// Removes the first receive, which is complete or has failed.
    pub(super) fn pop(&mut self) -> Option<T> {
        self.0.pop_front().map(|posted| posted.token)
    }

    /// Removes the first receive that `is` accepts. Returns its index and its token.
    pub(super) fn cancel(&mut self, is: impl Fn(&T) -> bool) -> Option<(usize, T)> {
        let index = self.0.iter().position(|posted| is(&posted.token))?;
        self.0.remove(index).map(|posted| (index, posted.token))
    }
}
