//! The sends that are posted, in order: the bytes stay where they are until the last one is written.

use std::collections::VecDeque;

use inet_rdma_assembly::{Gather, Header};

use super::notifier::Parcel;
use inet_rdma_engine::connection::LANDING_BUFFER_BYTES_MAX;

/// Maximum number of sends that share a write, as their slices are gathered again for each write.
const GATHERED_MAX: usize = 64;

/// What has become of a posted send that was to be cancelled.
pub(super) enum Cancelled<T> {
    /// No such send is posted.
    NotFound,
    /// Bytes of it are sent, and it stays.
    Started,
    /// To be dropped without a lock.
    Removed(T),
}

/// One posted send.
struct PostedSend<T> {
    token: T,
    header: Header,
    /// Bytes that are sent, those of the header included.
    sent: usize,
}

impl<T: Parcel> PostedSend<T> {
    /// Bytes that are not sent.
    fn left(&self) -> usize {
        self.header.as_slice().len() + self.token.bytes() - self.sent
    }

    /// Adds the unsent bytes as one packet. The slices cover about `max` bytes.
    fn gather<'a>(&'a self, gather: &mut Gather<'a>, max: usize) {
        if self.sent > 0 {
            // Only the first send can be sent in part.
            gather.goes_on_behind(self.sent);
        }
        let end = gather.total() + self.left();
        let header = self.header.as_slice();
        gather.push(&header[self.sent.min(header.len())..]);
        self.token.gather(self.sent.saturating_sub(header.len()), gather, max);
        gather.end_packet_at(end);
    }

    /// Notes that `bytes` more bytes are sent.
    fn advance(&mut self, bytes: usize) {
        self.sent += bytes;
        self.token
            .advance(self.sent.saturating_sub(self.header.as_slice().len()));
    }
}

/// The posted sends of one connection.
pub(super) struct PostedSends<T>(VecDeque<PostedSend<T>>);

impl<T> Default for PostedSends<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T: Parcel> PostedSends<T> {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of unsent bytes.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(PostedSend::left).sum()
    }

    /// Adds a send after the others.
    pub(super) fn push(&mut self, token: T, header: Header) {
        self.0.push_back(PostedSend { token, header, sent: 0 });
    }

    /// Adds the rest of a send that a writer has begun, before the others.
    pub(super) fn push_rest(&mut self, token: T, header: Header, sent: usize) {
        let mut rest = PostedSend { token, header, sent: 0 };
        rest.advance(sent);
        self.0.push_front(rest);
    }

    /// The next bytes, for a write of at most `bytes`.
    pub(super) fn gather(&self, bytes: usize) -> Gather<'_> {
        let sends = self.0.len().min(GATHERED_MAX);
        let mut gather = Gather::with_capacity(3 * sends, sends);
        for send in self.0.iter().take(GATHERED_MAX) {
            if gather.total() >= bytes {
                break;
            }
            // More than the write takes, so that the peer's largest landing buffer is filled.
            send.gather(&mut gather, bytes.saturating_add(LANDING_BUFFER_BYTES_MAX));
        }
        gather
    }

    /// Notes that `bytes` more bytes are sent, from the first send on. `done` gets the token of each send that is
    /// complete.
    pub(super) fn advance(&mut self, mut bytes: usize, mut done: impl FnMut(T)) {
        while let Some(send) = self.0.front_mut() {
            let part = bytes.min(send.left());
            send.advance(part);
            bytes -= part;
            if send.left() > 0 {
                return;
            }
            if let Some(send) = self.0.pop_front() {
                done(send.token);
            }
        }
    }

    /// Removes the first send that `is` accepts.
    pub(super) fn cancel(&mut self, is: impl Fn(&T) -> bool) -> Cancelled<T> {
        let found = self.0.iter().position(|send| is(&send.token));
        match found.map(|index| (index, self.0[index].sent)) {
            Some((_, 1..)) => Cancelled::Started,
            Some((index, 0)) => self
                .0
                .remove(index)
                .map_or(Cancelled::NotFound, |send| Cancelled::Removed(send.token)),
            None => Cancelled::NotFound,
        }
    }

    /// Removes the first send, also with bytes left.
    pub(super) fn pop(&mut self) -> Option<T> {
        self.0.pop_front().map(|send| send.token)
    }
}
