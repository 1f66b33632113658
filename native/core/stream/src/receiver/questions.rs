//! Questions that the peer answers with a mark: to give up all advertisements, and to write into another ring, too.

use super::{Answer, Ask, Question, Receiver};
use crate::counters::Counters;
use crate::receive::Arrival;
use crate::violation::Violation;
use crate::wire::{ControlBody, NewRing, TRANSFER_BYTES_MAX};

impl Receiver {
    /// See [`crate::Stream::recall`].
    pub fn recall(&mut self) -> bool {
        self.want(Question::Recall)
    }

    /// See [`crate::Stream::replace_ring`].
    pub fn replace_ring(&mut self, ring: NewRing) -> bool {
        debug_assert!(ring.bytes > 0 && ring.bytes <= TRANSFER_BYTES_MAX);
        self.old.is_none() && self.want(Question::Ring(ring))
    }

    fn want(&mut self, question: Question) -> bool {
        let may = !self.is_asking() && self.end.is_none();
        if may {
            self.ask = Ask::Wanted(question);
        }
        may
    }

    /// True if a question waits to be sent. A peer that has finished would not answer.
    #[inline]
    pub fn wants_to_ask(&self) -> bool {
        matches!(self.ask, Ask::Wanted(_)) && self.end.is_none()
    }

    /// True if a question waits to be sent, or for its mark.
    pub fn is_asking(&self) -> bool {
        !matches!(self.ask, Ask::Nothing)
    }

    /// The question, which the caller must send.
    #[inline]
    pub fn take_ask(&mut self) -> Option<ControlBody> {
        if self.wants_to_ask() { self.take_wanted() } else { None }
    }

    #[cold]
    fn take_wanted(&mut self) -> Option<ControlBody> {
        let Ask::Wanted(question) = self.ask else { return None };
        self.ask = Ask::Sent(question);
        Some(match question {
            Question::Recall => ControlBody::Recall,
            Question::Ring(ring) => ControlBody::Ring(ring),
        })
    }

    /// Handles the peer's mark: the peer holds no advertisement, waits for none, and writes into the ring of the
    /// question.
    #[cold]
    pub fn handle_mark(&mut self, counters: &mut Counters) -> Result<Arrival, Violation> {
        let Ask::Sent(question) = self.ask else {
            return Err(Violation::MarkUnasked);
        };
        self.ask = Ask::Nothing;
        if self.phase.is_direct() {
            self.phase = self.phase.next();
            counters.phase_switches_received += 1;
        }
        self.answer = Answer::NotDue;
        let Question::Ring(NewRing { bytes, .. }) = question else {
            return Ok(Arrival::Mark { ring: false });
        };
        let next = self.ring.successor(bytes);
        let before = std::mem::replace(&mut self.ring, next);
        debug_assert!(self.old.is_none());
        self.old = (before.used() > 0).then_some(before);
        Ok(Arrival::Mark { ring: true })
    }
}
