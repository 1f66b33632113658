//! Signalled requests without bytes: their completion shows that all before them are complete.

use inet_rdma_fabric::{Answer, FabricError};
use inet_rdma_stream::RemoteAddress;
use inet_rdma_verbs::qp::{Operation, Source};

use super::{Outlet, Question, SendQueue, key_of, posted};

impl SendQueue {
    /// Posts a signalled request after all that is under way: its completion lets [`Self::is_over`] see the end of
    /// them.
    pub(crate) fn post_end_marker(&mut self, outlet: &Outlet<'_>, target: RemoteAddress) {
        if !self.is_over(outlet) && self.post_nothing(outlet, Question::Write, target).is_none() {
            self.marker_due = Some(target);
        }
    }

    /// Posts the end marker for which the queue had no place.
    pub(super) fn post_due_marker(&mut self, outlet: &Outlet<'_>) {
        let Some(target) = self.marker_due.filter(|_| self.waiting.is_empty()) else {
            return;
        };
        if self.ledger.is_idle() || self.post_nothing(outlet, Question::Write, target).is_some() {
            self.marker_due = None;
        }
    }

    /// Posts a signalled request of no bytes, which the peer does not notice: it is complete when all before it are.
    /// None: the queue has no place for it beside the entries of a transfer whose bytes may be staged already.
    fn post_nothing(&mut self, outlet: &Outlet<'_>, question: Question, target: RemoteAddress) -> Option<u64> {
        if !self.ledger.takes_control() {
            return None;
        }
        let number = self.ledger.post_signalled(false);
        // If it cannot be posted, no request can.
        let _ = question.post(outlet, number, target);
        Some(number)
    }

    /// Asks the peer's device for an answer, unless it owes one. [`Answer::Arrived`] if it has answered since the last
    /// call, or nothing was under way. If the queue is full no request is added: the signalled requests in it serve the
    /// purpose.
    ///
    /// Each completion is an answer to a question that is a write. To one that is a read only its own is.
    pub(crate) fn ask(&mut self, outlet: &Outlet<'_>, question: Question, target: RemoteAddress) -> Answer {
        self.catch_up(outlet);
        if self.failed.is_some() {
            return Answer::NotAsked;
        }
        let done = self.ledger.done();
        let has_moved = self.ledger.is_idle() || done > self.done_when_asked;
        self.done_when_asked = done;
        let has_answered = match question {
            Question::Read if self.is_asked => self.is_answered,
            Question::Read | Question::Write => has_moved,
        };
        if self.is_answered {
            let posted = self.post_nothing(outlet, question, target);
            self.is_asked = posted.is_some();
            if let Some(number) = posted {
                (self.asked, self.is_answered) = (number, false);
            }
        }
        if has_answered { Answer::Arrived } else { Answer::Awaited }
    }
}

impl Question {
    /// Posts it as the signalled request with this number. `target`: somewhere in the peer's memory.
    pub(super) fn post(self, outlet: &Outlet<'_>, number: u64, target: RemoteAddress) -> Result<(), FabricError> {
        let (key, address) = (key_of(target), target.address);
        let write = Operation::Write {
            key,
            address,
            immediate: None,
        };
        let result = match self {
            Question::Write => outlet.qp.post_send(number, write, Source::Region(&[]), true),
            Question::Read => {
                let nowhere = [outlet.slots.sge(outlet.slots_offset, 0)];
                let read = Operation::Read { key, address };
                outlet.qp.post_send(number, read, Source::Region(&nowhere), true)
            }
        };
        posted(result)
    }
}
