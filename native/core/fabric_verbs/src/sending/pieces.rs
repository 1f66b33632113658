//! The requests of the self-test. Each source is the slot of the request itself: staging memory is left as it is.

use inet_rdma_fabric::FabricError;
use inet_rdma_stream::{CONTROL_BYTES, RemoteAddress};
use inet_rdma_verbs::qp::{Operation, Source};

use super::{Outlet, Question, SendQueue, fill_slot, key_of};
use crate::trial_report::Piece;

impl SendQueue {
    /// Whether the next request of the self-test can be posted. Otherwise a completion makes room.
    pub(crate) fn takes_piece(&mut self, outlet: &Outlet<'_>) -> bool {
        if !self.waiting.is_empty() || !self.ledger.takes_control() {
            self.catch_up(outlet);
        }
        self.waiting.is_empty() && self.ledger.takes_control()
    }

    /// The number of the last request that was posted.
    pub(crate) fn last_posted(&self) -> u64 {
        self.ledger.posted()
    }

    /// Posts a piece. One that is not inline has no more bytes than a control message. `target`: where a write goes.
    pub(crate) fn post_piece(
        &mut self,
        outlet: &Outlet<'_>,
        piece: Piece,
        bytes: &[u8],
        target: RemoteAddress,
    ) -> Result<(), FabricError> {
        let slot_of_next = |sending: &SendQueue| fill_slot(outlet, sending.ledger.posted() + 1, bytes);
        match piece {
            Piece::InlineSend => {
                let posted = self.ledger.post(false, true);
                self.post(outlet, posted, Operation::Send, Source::Inline(bytes))
            }
            Piece::InlineWrite => self.post_noticed(outlet, Source::Inline(bytes), target, piece.word()),
            Piece::Gather => {
                let offset = slot_of_next(self);
                let half = bytes.len() / 2;
                let sges = [
                    outlet.slots.sge(offset, half),
                    outlet.slots.sge(offset + half, bytes.len() - half),
                ];
                self.post_noticed(outlet, Source::Region(&sges), target, piece.word())
            }
            Piece::Write | Piece::Window => {
                let sge = [outlet.slots.sge(slot_of_next(self), bytes.len())];
                self.post_noticed(outlet, Source::Region(&sge), target, piece.word())
            }
            Piece::Silent => {
                let sge = [outlet.slots.sge(slot_of_next(self), bytes.len())];
                let posted = (self.ledger.post_signalled(false), true);
                let write = Operation::Write {
                    key: key_of(target),
                    address: target.address,
                    immediate: None,
                };
                self.post(outlet, posted, write, Source::Region(&sge))
            }
        }
    }

    /// Posts the last message of a flight, not inline. It has no signal where the queue does without: its completion
    /// would come when the user has the queue pair.
    pub(crate) fn post_report(
        &mut self,
        outlet: &Outlet<'_>,
        message: &[u8; CONTROL_BYTES],
    ) -> Result<(), FabricError> {
        let posted = self.ledger.post(false, true);
        let sge = [outlet.slots.sge(fill_slot(outlet, posted.0, message), message.len())];
        self.post(outlet, posted, Operation::Send, Source::Region(&sge))
    }

    /// Posts a question, as [`Self::ask`] does; [`Self::is_answered`] tells whether it is complete.
    pub(crate) fn post_question(
        &mut self,
        outlet: &Outlet<'_>,
        question: Question,
        target: RemoteAddress,
    ) -> Result<(), FabricError> {
        let number = self.ledger.post_signalled(false);
        self.counts.sends_posted += 1;
        question.post(outlet, number, target)?;
        (self.asked, self.is_answered) = (number, false);
        Ok(())
    }

    /// Whether the last question is complete. True without one.
    pub(crate) fn is_answered(&self) -> bool {
        self.is_answered
    }
}
