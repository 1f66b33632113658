//! Receives that are posted before their bytes come: each of a known size is advertised as a buffer of just that size.

use std::collections::VecDeque;

use super::core::Core;
use super::{Connection, ReadEnd, Wakes};
use crate::assembly::{Buffer, ReadLimit, Received};

/// The receives that are posted, in order.
#[derive(Default)]
pub(super) struct Posted {
    /// Bytes of each; 0: whatever comes.
    queue: VecDeque<usize>,
    /// Bytes that the reader has taken in already and not handed over.
    pub(super) kept: usize,
    /// The last read was, or the next will be, for a posted receive: nothing is advertised on suspicion.
    pub(super) in_use: bool,
}

impl Posted {
    /// What the first of them takes.
    pub(super) fn first(&self) -> Option<usize> {
        self.queue.front().copied()
    }

    /// The first is satisfied.
    pub(super) fn done(&mut self) {
        self.queue.pop_front();
    }

    /// The pieces that can be advertised, in order, when the stream is covered up to `covered` bytes: none is larger
    /// than `piece`, and each that ends a receive ends just there. Behind one that takes whatever comes nobody knows
    /// where the next begins.
    pub(super) fn pieces(&self, covered: usize, piece: usize) -> impl Iterator<Item = usize> {
        let mut behind = self.kept.saturating_add(covered);
        self.queue
            .iter()
            .take_while(|bytes| **bytes > 0)
            .flat_map(move |bytes| {
                let there = behind.min(*bytes);
                behind -= there;
                let left = bytes - there;
                let whole = left / piece;
                std::iter::repeat_n(piece, whole).chain((left % piece > 0).then_some(left % piece))
            })
    }
}

impl Core {
    /// A posted receive will have the whole of a landing buffer of which a part has arrived: it waits for the rest. Once
    /// no more can come, the part is all there is.
    pub(super) fn waits_for_rest(&self, arrived: usize) -> bool {
        let wanted = self.posted.first().unwrap_or(0);
        self.is_up() && self.posted.in_use && wanted > self.posted.kept + arrived
    }
}

impl<B: Buffer> Connection<B> {
    /// Posts a receive of exactly so many bytes ([`crate::assembly::Framing::Raw`]), or with 0 of whatever is there or of
    /// the next packet. [`Self::read_posted`] reads for those that are posted, in order.
    pub fn post_receive(&self, bytes: usize) {
        let mut core = self.core.lock();
        core.posted.queue.push_back(bytes);
        core.posted.in_use = true;
    }

    /// Takes back the posted receive with this index. What was taken in for it, or lands in what was advertised for it, is
    /// for whoever reads next.
    pub fn cancel_receive(&self, index: usize) {
        self.core.lock().posted.queue.remove(index);
    }

    /// Reads, about `bytes` at most, for the first of the posted receives; adds what satisfies it to `out`, and it is off
    /// the list.
    pub fn read_posted(&self, bytes: usize, out: &mut Vec<Received<B>>) -> (ReadEnd, Wakes) {
        let mut reader = self.reader.lock();
        let first = self.core.lock().posted.first();
        let Some(exact) = first else {
            return (ReadEnd::Empty, Wakes::default());
        };
        let limit = ReadLimit {
            bytes,
            packets: 1,
            exact,
        };
        self.read_into(&mut reader, limit, true, out)
    }
}
