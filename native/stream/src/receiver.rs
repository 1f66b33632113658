//! The receiving half: arrived bytes, the ring, and which posted receives are advertised.

use std::collections::VecDeque;

use crate::counters::Counters;
use crate::limits::{Limits, Mode};
use crate::receive::{Arrival, Completed, Posted, Receive, ReceiveId};
use crate::ring::Ring;
use crate::seq::{Phase, Seq};
use crate::violation::Violation;
use crate::wire::{Advert, TRANSFER_BYTES_MAX};

/// # Invariants
/// * The first `advertised` of `receives` are advertised, all for `advert_phase`; the others are not.
/// * S'_r = S_r + the sum of what the advertised ones get at least.
/// * While the ring holds bytes, `phase` is indirect.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
pub(crate) struct Receiver {
    mode: Mode,
    /// S_r: the next byte to hand over.
    next: Seq,
    /// S'_r: the byte that the next advertisement will meet, as far as can be told.
    estimate: Seq,
    /// P_r.
    phase: Phase,
    /// This side's ring; what is used of it is b_r.
    ring: Ring,
    /// Ring bytes that were acknowledged to the peer.
    acked: Seq,
    receives: VecDeque<Posted>,
    advertised: usize,
    advert_phase: Phase,
    /// Advertisements that the peer holds at a time.
    adverts_max: u16,
    /// Length of the stream, once the peer said it.
    end: Option<Seq>,
    answer: Answer,
    /// The mutation that the model must find: without the answer a sender that saw advertisements too late waits for ever.
    #[cfg(test)]
    pub without_late_answer: bool,
}

/// What the peer, which may be waiting for an advertisement, is to hear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Answer {
    /// Nothing: it does not wait.
    NotDue,
    /// It used a buffer of this phase up, or went on through the ring with advertisements unused, which it may have seen too
    /// late; since then nothing was advertised or passed.
    Due,
    /// There is nothing to advertise for now.
    Pass,
}

impl Receiver {
    pub fn new(mode: Mode, local: &Limits, remote: &Limits, start: Seq) -> Receiver {
        Receiver {
            mode,
            next: start,
            estimate: start,
            phase: Phase(0),
            ring: Ring::new(local.ring_bytes, start),
            acked: start,
            // The peer's number must not make this side allocate; its own is the better guess.
            receives: VecDeque::with_capacity(usize::from(local.adverts)),
            advertised: 0,
            advert_phase: Phase(0),
            adverts_max: remote.adverts,
            end: None,
            answer: Answer::NotDue,
            #[cfg(test)]
            without_late_answer: false,
        }
    }

    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    pub fn receives(&self) -> usize {
        self.receives.len()
    }

    /// All bytes up to this one have arrived.
    fn arrived(&self) -> Seq {
        self.next.plus(self.ring.used())
    }

    /// The stream ended, and nothing of it is left in the ring.
    pub fn is_end(&self) -> bool {
        self.end == Some(self.next) && self.ring.used() == 0
    }

    fn check_end(&self, bytes: u32) -> Result<(), Violation> {
        let after = self.arrived().checked_add(bytes).ok_or(Violation::TooManyBytes)?;
        match self.end {
            Some(end) if after > end => Err(Violation::DataAfterFinish { bytes, end }),
            _ => Ok(()),
        }
    }

    /// The peer wrote `bytes` into the buffer that it must think is next.
    pub fn handle_direct(&mut self, bytes: u32, counters: &mut Counters) -> Result<Arrival, Violation> {
        self.check_end(bytes)?;
        let fresh = self.is_advertising();
        let Some(head) = self.receives.front_mut().filter(|_| fresh) else {
            return Err(Violation::DirectUnadvertised);
        };
        if bytes > head.room() {
            return Err(Violation::DirectTooLong {
                bytes,
                room: head.room(),
            });
        }
        let (id, offset) = (head.receive.id, head.filled);
        if !head.receive.fill {
            self.estimate = self.estimate.plus(bytes - 1);
        }
        let done = head.fill(bytes);
        if done {
            self.receives.pop_front();
            self.advertised -= 1;
            if self.end.is_none() {
                self.answer = Answer::Due;
            }
        }
        self.next = self.next.plus(bytes);
        counters.direct_transfers_received += 1;
        counters.direct_bytes_received += u64::from(bytes);
        Ok(Arrival::Direct {
            id,
            offset,
            bytes,
            done,
        })
    }

    /// The peer wrote `bytes` into the ring.
    pub fn handle_indirect(&mut self, bytes: u32, counters: &mut Counters) -> Result<Arrival, Violation> {
        self.check_end(bytes)?;
        let free = self.ring.free();
        if bytes > free {
            return Err(Violation::RingOverflow { bytes, free });
        }
        let contiguous = self.ring.writable().bytes;
        if bytes > contiguous {
            return Err(Violation::RingWrap { bytes, contiguous });
        }
        if self.phase.is_direct() {
            self.phase = self.phase.next();
            counters.phase_switches_received += 1;
            let answers = self.advertised > 0 && self.end.is_none() && self.answers_late();
            self.answer = if answers { Answer::Due } else { Answer::NotDue };
        }
        self.ring.write(bytes);
        counters.indirect_transfers_received += 1;
        counters.indirect_bytes_received += u64::from(bytes);
        Ok(Arrival::Ring { bytes })
    }

    #[cfg(not(test))]
    fn answers_late(&self) -> bool {
        true
    }

    #[cfg(test)]
    fn answers_late(&self) -> bool {
        !self.without_late_answer
    }

    /// The peer says where its stream ends.
    pub fn handle_finish(&mut self, end: Seq) -> Result<(), Violation> {
        if self.end.is_some() {
            return Err(Violation::FinishTwice);
        }
        if end < self.arrived() {
            return Err(Violation::FinishShort {
                end,
                arrived: self.arrived(),
            });
        }
        self.end = Some(end);
        self.answer = Answer::NotDue;
        Ok(())
    }

    pub fn post(&mut self, receive: Receive) {
        debug_assert!(
            receive.bytes > 0 && receive.bytes <= TRANSFER_BYTES_MAX,
            "a receive of {} bytes",
            receive.bytes
        );
        self.receives.push_back(Posted::new(receive));
        // It may be advertised instead.
        if self.is_passing() {
            self.answer = Answer::Due;
        }
    }

    /// The caller copied `bytes` out of the ring, into the head receive if there is one.
    pub fn handle_copied(&mut self, bytes: u32) -> Option<Completed> {
        debug_assert!(
            bytes <= self.ring.used(),
            "{bytes} bytes copied, {} in the ring",
            self.ring.used()
        );
        let bytes = bytes.min(self.ring.used());
        if bytes == 0 {
            return None;
        }
        self.ring.free_to(self.ring.freed().plus(bytes));
        self.next = self.next.plus(bytes);
        let is_advertised = self.advertised > 0;
        let Some(head) = self.receives.front_mut() else {
            self.estimate = self.estimate.plus(bytes);
            return None;
        };
        debug_assert!(
            bytes <= head.room(),
            "{bytes} bytes copied into a buffer for {}",
            head.room()
        );
        // An advertised receive has its least in S'_r already; the rest, and all of another one, is new.
        let known = if is_advertised { head.least().min(bytes) } else { 0 };
        let done = head.fill(bytes.min(head.room()));
        let completed = Completed {
            id: head.receive.id,
            bytes: head.filled,
        };
        self.estimate = self.estimate.plus(bytes - known);
        if !done {
            return None;
        }
        self.receives.pop_front();
        self.advertised -= usize::from(is_advertised);
        Some(completed)
    }

    /// Takes back a receive that the peer cannot write into any more, or does not know of.
    pub fn withdraw(&mut self) -> Option<ReceiveId> {
        let is_over = self.advert_phase < self.phase || self.is_end();
        if self.advertised > 0 && is_over {
            let head = self.receives.pop_front()?;
            self.advertised -= 1;
            self.estimate = Seq(self.estimate.0 - u64::from(head.least()));
            return Some(head.receive.id);
        }
        if self.advertised > 0 && self.receives.len() == self.advertised {
            return None;
        }
        let posted = if self.advertised == 0 {
            self.receives.pop_front()
        } else {
            self.receives.pop_back()
        };
        posted.map(|posted| posted.receive.id)
    }

    /// Whether there is an advertisement that the peer can use, as far as can be told.
    fn is_advertising(&self) -> bool {
        self.advertised > 0 && self.advert_phase == self.phase
    }

    /// Whether the first receive that is not advertised may be now.
    pub fn may_advertise(&self) -> bool {
        self.mode != Mode::IndirectOnly
            && self.end.is_none()
            && self.ring.used() == 0
            && self.receives.len() > self.advertised
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

    /// Whether the caller must tell the peer now that there is nothing to advertise.
    pub fn take_pass(&mut self) -> bool {
        let passes = self.is_passing();
        if passes {
            self.answer = Answer::NotDue;
        }
        passes
    }

    /// Whether enough was freed for a message of its own. A sender that found the ring full waits for this, so it must
    /// come true at the latest when the ring is empty: a quarter of the ring, and at least one byte, is never more than
    /// all of it. After the peer's end there is no peer to tell.
    pub fn ack_due(&self) -> bool {
        self.has_unacked() && self.ring.freed().0 - self.acked.0 >= u64::from(self.ring.bytes() / 4)
    }

    /// Whether anything was freed that the peer does not know of and still wants to.
    pub fn has_unacked(&self) -> bool {
        self.end.is_none() && self.ring.freed() > self.acked
    }

    /// All bytes freed so far, which the caller must tell the peer.
    pub fn ack(&mut self) -> Seq {
        self.acked = self.ring.freed();
        self.acked
    }
}
