//! Advertisements of posted receives, and the answer that there are none.

use super::{Answer, Ask, Receiver};
use crate::counters::Counters;
use crate::limits::Mode;
use crate::wire::Advert;

impl Receiver {
    /// True if there is an advertisement that the peer can probably use.
    pub(super) fn is_advertising(&self) -> bool {
        self.advertised > 0 && self.advert_phase == self.phase
    }

    /// True if the first receive that is not advertised may be advertised now.
    pub fn may_advertise(&self) -> bool {
        // The condition that is false on most connections comes first.
        self.receives.len() > self.advertised
            && self.unread == 0
            && self.mode != Mode::IndirectOnly
            && self.end.is_none()
            && matches!(self.ask, Ask::Nothing)
            && (self.advertised == 0 || self.is_advertising())
            && self.advertised < usize::from(self.adverts_max)
    }

    /// The next advertisement, which the caller must send.
    pub fn advertise(&mut self, counters: &mut Counters) -> Option<Advert> {
        if !self.may_advertise() {
            return None;
        }
        let posted = self.receives.get(self.advertised)?;
        if !self.phase.is_direct() {
            self.phase = self.phase.next();
            counters.phase_switches_received += 1;
        }
        let advert = Advert {
            target: posted.receive.target.plus(posted.filled),
            bytes: posted.room(),
            fill: posted.receive.fill,
            seq: self.estimate,
            phase: self.phase,
        };
        self.estimate = self.estimate.plus(posted.least());
        self.advertised += 1;
        self.advert_phase = self.phase;
        self.answer = Answer::NotDue;
        counters.adverts_sent += 1;
        Some(advert)
    }

    /// See [`crate::Stream::pass`].
    pub fn pass(&mut self) {
        if self.answer == Answer::Due && !self.is_advertising() && !self.may_advertise() {
            self.answer = Answer::Pass;
        }
    }

    pub fn is_passing(&self) -> bool {
        self.answer == Answer::Pass
    }

    /// True if the caller must tell the peer now that there is nothing to advertise.
    pub fn take_pass(&mut self) -> bool {
        let passes = self.is_passing();
        if passes {
            self.answer = Answer::NotDue;
        }
        passes
    }
}
