//! Signalled requests without bytes: their completion shows that all before them are complete.

use inet_rdma_fabric::Answer;
use inet_rdma_stream::RemoteAddress;
use inet_rdma_verbs::qp::{Operation, Source};

use super::{Outlet, SendQueue, key_of};

impl SendQueue {
    /// Posts a signalled request after all that is under way: its completion lets [`Self::is_over`] see the end of
    /// them.
    pub(crate) fn post_end_marker(&mut self, outlet: &Outlet<'_>, target: RemoteAddress) {
        if !self.is_over(outlet) && self.post_nothing(outlet, target).is_none() {
            self.marker_due = Some(target);
        }
    }

    /// Posts the end marker for which the queue had no place.
    pub(super) fn post_due_marker(&mut self, outlet: &Outlet<'_>) {
        let Some(target) = self.marker_due.filter(|_| self.waiting.is_empty()) else {
            return;
        };
        if self.ledger.is_idle() || self.post_nothing(outlet, target).is_some() {
            self.marker_due = None;
        }
    }

    /// Posts a signalled write of no bytes, which the peer does not notice: it is complete when all before it are.
    /// None: the queue has no place for it beside the entries of a transfer whose bytes may be staged already.
    fn post_nothing(&mut self, outlet: &Outlet<'_>, target: RemoteAddress) -> Option<u64> {
        if !self.ledger.takes_control() {
            return None;
        }
        let write = Operation::Write {
            key: key_of(target),
            address: target.address,
            immediate: None,
        };
        let number = self.ledger.post_signalled(false);
        // If it cannot be posted, no request can.
        let _ = outlet.qp.post_send(number, write, Source::Region(&[]), true);
        Some(number)
    }

    /// Asks the peer's device for an answer, unless it owes one: a write is complete when that device has acknowledged
    /// it. [`Answer::Arrived`] if some request has been completed since the last call, or none was under way. If the
    /// queue is full no request is added: the signalled requests in it serve the purpose.
    pub(crate) fn ask(&mut self, outlet: &Outlet<'_>, target: RemoteAddress) -> Answer {
        self.catch_up(outlet);
        if self.failed.is_some() {
            return Answer::NotAsked;
        }
        let done = self.ledger.done();
        let has_answered = self.ledger.is_idle() || done > self.done_when_asked;
        self.done_when_asked = done;
        if self.ledger.is_done(self.asked) {
            if let Some(number) = self.post_nothing(outlet, target) {
                self.asked = number;
            }
        }
        if has_answered { Answer::Arrived } else { Answer::Awaited }
    }
}
