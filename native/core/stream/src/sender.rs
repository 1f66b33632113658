//! The sending half: picks, per transfer, between an advertised buffer and the peer's ring.

use std::collections::VecDeque;

use crate::counters::Counters;
use crate::limits::{Limits, Mode};
use crate::receiver::Question;
use crate::ring::Ring;
use crate::seq::{Phase, Seq};
use crate::transfer::{Offer, Transfer};
use crate::violation::Violation;
use crate::wire::{Advert, NewRing, Notice, RemoteAddress, TRANSFER_BYTES_MAX};

/// # Invariants
/// * All of `adverts` are of one phase. While `phase` is direct they are of that phase.
/// * While `expecting` and with no `adverts`, `phase` is direct or `late`.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
pub(crate) struct Sender {
    mode: Mode,
    /// S_s: the next byte to send.
    pub next: Seq,
    /// P_s.
    phase: Phase,
    /// The peer's ring as this side knows it; its free bytes are b_s.
    pub ring: Ring,
    ring_start: RemoteAddress,
    /// Ring bytes that the peer has acknowledged. Less than `ring` has freed while the peer reads a replaced ring.
    pub acked: Seq,
    /// The peer's question, which this side answers with a mark.
    asked: Option<Question>,
    /// Q. The entry of a `fill` buffer covers only the part that is not written yet.
    adverts: VecDeque<Advert>,
    adverts_max: u16,
    /// The phase of the last arrived advertisement, and the smallest byte that the next one of that phase can name.
    last_phase: Phase,
    last_least: Seq,
    finished: bool,
    /// True: the last advertisement was stale when it arrived, and no pass has come since then.
    late: bool,
    /// True: wait for an advertisement before using the ring. A buffer of this phase was used up, or the ring was full
    /// while `late`; since then no byte went into the ring, and no pass has come.
    expecting: bool,
    /// A defect for the tests, which the model must find: without the jump an advertisement is used at a wrong byte.
    #[cfg(test)]
    pub without_phase_jump: bool,
}

impl Sender {
    pub fn new(mode: Mode, local: &Limits, (remote, ring): (&Limits, RemoteAddress), start: Seq) -> Sender {
        Sender {
            mode,
            next: start,
            phase: Phase(0),
            ring: Ring::new(remote.ring_bytes, start),
            ring_start: ring,
            acked: start,
            asked: None,
            adverts: VecDeque::with_capacity(usize::from(local.adverts)),
            adverts_max: local.adverts,
            last_phase: Phase(0),
            last_least: start,
            finished: false,
            late: false,
            expecting: false,
            #[cfg(test)]
            without_phase_jump: false,
        }
    }

    /// Ends the sending: nothing is sent after this, and advertisements of the peer are dropped.
    pub fn finish(&mut self) {
        self.finished = true;
        self.adverts.clear();
        self.asked = None;
    }

    /// Handles the peer's question for a mark. After this side's end the peer gets none.
    pub fn handle_ask(&mut self, question: Question) -> Result<bool, Violation> {
        if let Question::Ring(NewRing { target, bytes }) = question {
            let end = target.address.checked_add(u64::from(bytes));
            end.ok_or(Violation::RingAddress)?;
        }
        if self.finished {
            return Ok(false);
        }
        if self.owes_mark() {
            return Err(Violation::AskedTwice);
        }
        self.asked = Some(question);
        Ok(true)
    }

    /// True if the peer waits for a mark.
    #[inline]
    pub fn owes_mark(&self) -> bool {
        self.asked.is_some()
    }

    /// Sends the mark that is owed.
    ///
    /// The peer advertises nothing between its question and the mark, and its messages keep their order. So this side
    /// knows all advertisements, which are of `last_phase` or older: from phase `next(last_phase)` on none can be used.
    pub fn send_mark(&mut self, counters: &mut Counters) -> Transfer {
        counters.phase_switches_sent += u64::from(self.phase.is_direct());
        if self.phase.is_direct() || self.phase < self.last_phase {
            self.phase = self.last_phase.next();
        }
        counters.adverts_stale += self.adverts.len() as u64;
        self.adverts.clear();
        self.late = false;
        self.expecting = false;
        if let Some(Question::Ring(NewRing { target, bytes })) = self.asked.take() {
            self.ring = self.ring.successor(bytes);
            self.ring_start = target;
        }
        Transfer {
            target: self.ring_start,
            notice: Notice::MARK,
        }
    }

    /// Handles an advertisement. False: it is of no use, as it is stale or this side sends no direct transfers.
    pub fn handle_advert(&mut self, advert: Advert, counters: &mut Counters) -> Result<bool, Violation> {
        self.drop_stale(counters);
        self.check_phase(&advert)?;
        if advert.target.address.checked_add(u64::from(advert.bytes)).is_none() {
            return Err(Violation::AdvertAddress);
        }
        counters.adverts_received += 1;
        let least = advert
            .seq
            .checked_add(least_bytes(&advert))
            .ok_or(Violation::TooManyBytes)?;
        if self.finished || self.mode == Mode::IndirectOnly {
            self.remember(&advert, least);
            return Ok(false);
        }
        self.check_seq(&advert)?;
        self.remember(&advert, least);
        if self.adverts.len() == usize::from(self.adverts_max) {
            return Err(Violation::AdvertExcess { max: self.adverts_max });
        }
        self.adverts.push_back(advert);
        self.drop_stale(counters);
        self.late = self.adverts.is_empty();
        self.expecting |= self.late && self.ring.free() == 0;
        Ok(!self.late)
    }

    fn remember(&mut self, advert: &Advert, least: Seq) {
        self.last_phase = advert.phase;
        self.last_least = least;
    }

    /// A receiver enters each direct phase with an advertisement, and the phases in order, so there is no gap between
    /// them. It leaves a phase only when it sees indirect bytes, and this side had left the phase before it sent them.
    /// So an advertisement of a new phase finds no advertisement of the old phase here, and no direct phase in
    /// progress.
    fn check_phase(&self, advert: &Advert) -> Result<(), Violation> {
        if !advert.phase.is_direct() {
            return Err(Violation::AdvertIndirect { phase: advert.phase });
        }
        let same = advert.phase == self.last_phase;
        let new = advert.phase.0.checked_sub(self.last_phase.0) == Some(2)
            && !self.phase.is_direct()
            && self.adverts.is_empty();
        if same || new {
            return Ok(());
        }
        let (phase, before) = (advert.phase, self.last_phase);
        Err(Violation::AdvertPhase { phase, before })
    }

    /// An advertisement must not name a byte below the smallest byte that follows the advertisement before it, nor a
    /// byte above the next byte to send plus the minimum that the held advertisements take. The upper bound is valid
    /// only while the phase has not ended at the sender: the sum lacks advertisements that were dropped as stale, but a
    /// stale advertisement ends its phase.
    fn check_seq(&self, advert: &Advert) -> Result<(), Violation> {
        let is_first = advert.phase != self.last_phase;
        let least = if is_first { Seq(0) } else { self.last_least };
        let is_over = advert.phase < self.phase;
        let held = self
            .adverts
            .iter()
            .fold(self.next, |seq, held| seq.plus(least_bytes(held)));
        let most = if is_over { Seq(u64::MAX) } else { held };
        let seq = advert.seq;
        if seq < least || seq > most {
            return Err(Violation::AdvertSeq { seq, least, most });
        }
        Ok(())
    }

    /// Handles the peer's pass: it has nothing to advertise for now. True: a transfer may have waited for this answer.
    pub fn handle_pass(&mut self) -> bool {
        let awaited = self.awaits_advert();
        self.late = false;
        self.expecting = false;
        awaited
    }

    /// See [`crate::Stream::awaits_advert`].
    pub fn awaits_advert(&self) -> bool {
        self.expecting && self.adverts.is_empty() && self.mode == Mode::Dynamic && !self.finished
    }

    /// Handles an acknowledgement: the peer has copied all bytes up to `freed` out of its ring. True: it acknowledges
    /// new bytes.
    pub fn handle_ack(&mut self, freed: Seq) -> Result<bool, Violation> {
        let (before, written) = (self.acked, self.ring.written());
        if freed > written {
            return Err(Violation::AckUnsent { freed, written });
        }
        if freed < before {
            return Err(Violation::AckBack { freed, before });
        }
        self.acked = freed;
        // Bytes freed in a replaced ring make no room in this one.
        let is_room = freed > self.ring.freed();
        if is_room {
            self.ring.free_to(freed);
        }
        Ok(is_room)
    }

    /// The first half of step 1: removes advertisements that can never be used from the head of Q.
    ///
    /// The jump prevents that a late advertisement is used at a wrong byte. The receiver sent it before it saw indirect
    /// bytes that are under way. All its other advertisements of that phase rest on the same error, so the phase ends.
    #[inline]
    fn drop_stale(&mut self, counters: &mut Counters) {
        while let Some(head) = self.adverts.front() {
            if self.phase.is_direct() || (head.phase >= self.phase && head.seq >= self.next) {
                return;
            }
            if self.phase < head.phase && self.jumps() {
                self.phase = head.phase.next();
            }
            self.adverts.pop_front();
            counters.adverts_stale += 1;
        }
    }

    fn jumps(&self) -> bool {
        #[cfg(test)]
        return !self.without_phase_jump;
        #[cfg(not(test))]
        true
    }

    /// Bytes that the next direct transfer may carry; 0: there is no usable advertisement.
    #[inline]
    pub fn direct_room(&mut self, counters: &mut Counters) -> u32 {
        self.drop_stale(counters);
        self.adverts.front().map_or(0, |head| head.bytes)
    }

    /// Bytes that the next indirect transfer may carry.
    #[inline]
    pub fn indirect_room(&self) -> u32 {
        if self.finished || self.mode == Mode::DirectOnly {
            0
        } else {
            self.ring.writable().bytes
        }
    }

    /// The transfer that the algorithm picks for `offer`, as (direct, bytes). None: wait. Changes nothing, except that
    /// it drops stale advertisements.
    #[inline]
    pub fn pick(&mut self, offer: Offer, counters: &mut Counters) -> Option<(bool, u32)> {
        if self.finished {
            return None;
        }
        let room = self.direct_room(counters);
        if room > 0 && offer.direct > 0 {
            return Some((true, offer.direct.min(room)));
        }
        match offer.indirect.min(self.indirect_room()) {
            0 => None,
            bytes => Some((false, bytes)),
        }
    }

    /// Counts a transfer of `bytes`, at most `direct_room`, into the first advertised buffer.
    pub fn send_direct(&mut self, bytes: u32, counters: &mut Counters) -> Option<Transfer> {
        let head = self.adverts.front_mut()?;
        let target = head.target;
        let head_phase = head.phase;
        if head.fill && bytes < head.bytes {
            head.target = head.target.plus(bytes);
            head.bytes -= bytes;
            head.seq = head.seq.plus(bytes);
        } else {
            self.adverts.pop_front();
            self.expecting = true;
        }
        if !self.phase.is_direct() {
            self.phase = head_phase;
            counters.phase_switches_sent += 1;
        }
        self.next = self.next.plus(bytes);
        counters.direct_transfers_sent += 1;
        counters.direct_bytes_sent += u64::from(bytes);
        Some(Transfer {
            target,
            notice: Notice { direct: true, bytes },
        })
    }

    /// Counts a transfer of `bytes`, at most `indirect_room`, into the peer's ring.
    #[inline(always)]
    pub fn send_indirect(&mut self, bytes: u32, counters: &mut Counters) -> Transfer {
        let target = self.ring_start.plus(self.ring.writable().offset);
        if self.phase.is_direct() {
            self.phase = self.phase.next();
            counters.phase_switches_sent += 1;
        }
        self.ring.write(bytes);
        self.expecting = self.late && self.ring.free() == 0;
        self.next = self.next.plus(bytes);
        counters.indirect_transfers_sent += 1;
        counters.indirect_bytes_sent += u64::from(bytes);
        Transfer {
            target,
            notice: Notice { direct: false, bytes },
        }
    }
}

/// Minimum number of bytes that this buffer takes before the next buffer is used.
fn least_bytes(advert: &Advert) -> u32 {
    debug_assert!(advert.bytes <= TRANSFER_BYTES_MAX);
    if advert.fill { advert.bytes } else { 1 }
}
