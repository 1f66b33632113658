//! The receiving half: arrived bytes, the ring, and the advertisements of posted receives.

mod adverts;
mod questions;

use std::collections::VecDeque;

use crate::counters::Counters;
use crate::limits::{Limits, Mode};
use crate::receive::{Arrival, OutstandingReceive, Receive, ReceiveId};
use crate::ring::{Ring, RingSpan};
use crate::seq::{Phase, Seq};
use crate::violation::Violation;
use crate::wire::{NewRing, TRANSFER_BYTES_MAX};

/// Number of freed bytes for which an acknowledgement is due at the latest, however large the ring is.
const ACK_BYTES_MAX: u64 = 1 << 20;

/// # Invariants
/// * The first `advertised` of `receives` are advertised, all for `advert_phase`; the others are not.
/// * S'_r = S_r + the sum of the minimum sizes that the advertised receives still get.
/// * While a ring holds bytes, `phase` is indirect.
/// * `old` holds bytes if there is one, and ends where `ring` begins.
/// * `unread` is the number of bytes in both rings, and `freed + unread` that of all bytes written into rings.
/// * While `ask` is not `Nothing` no advertisement is sent.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
pub(crate) struct Receiver {
    mode: Mode,
    /// S_r: the next byte to hand over.
    next: Seq,
    /// S'_r: the estimated byte at which the peer will use the next advertisement.
    estimate: Seq,
    /// P_r.
    phase: Phase,
    /// The ring that the peer writes into. The used bytes of it and of `old` are b_r.
    pub ring: Ring,
    /// The replaced ring, as long as it holds bytes.
    pub old: Option<Ring>,
    /// Bytes in both rings; `freed`: all bytes ever copied out of a ring. Each transfer reads both several times.
    pub unread: u32,
    freed: Seq,
    ask: Ask,
    /// Ring bytes that were acknowledged to the peer.
    acked: Seq,
    ack_wanted: bool,
    pub receives: VecDeque<OutstandingReceive>,
    advertised: usize,
    advert_phase: Phase,
    /// Advertisements that the peer holds at a time.
    adverts_max: u16,
    /// Length of the stream. None: the peer has not told it yet.
    end: Option<Seq>,
    answer: Answer,
    /// A defect for the tests, which the model must find: without the answer a sender whose advertisements came too
    /// late waits for ever.
    #[cfg(test)]
    pub without_late_answer: bool,
}

/// The answer to a peer that may wait for an advertisement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Answer {
    /// None: the peer does not wait.
    NotDue,
    /// An answer is due: the peer has used up a buffer of this phase, or has written into the ring though it had
    /// advertisements, which may have come too late. Since then this side has sent no advertisement and no pass.
    Due,
    /// A pass is due: there is nothing to advertise for now.
    Pass,
}

/// The question of this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Ask {
    Nothing,
    /// It has not been sent.
    Wanted(Question),
    /// The mark has not come.
    Sent(Question),
}

/// A question that is answered with a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Question {
    /// Give up all advertisements.
    Recall,
    /// Give up all advertisements, and write into this ring from now on.
    Ring(NewRing),
}

impl Receiver {
    pub fn new(mode: Mode, local: &Limits, remote: &Limits, start: Seq) -> Receiver {
        Receiver {
            mode,
            next: start,
            estimate: start,
            phase: Phase(0),
            ring: Ring::new(local.ring_bytes, start),
            old: None,
            unread: 0,
            freed: start,
            ask: Ask::Nothing,
            acked: start,
            ack_wanted: false,
            // This side's own number: a number of the peer's must not make it allocate.
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

    /// The next runs of bytes to read, all in one ring.
    #[inline]
    pub fn readable(&self) -> [RingSpan; 2] {
        let ring = self.read_ring();
        let first = ring.readable();
        let second = RingSpan {
            offset: 0,
            bytes: ring.used() - first.bytes,
        };
        [first, second]
    }

    /// Bytes of the ring that are free as far as the peer has been told.
    pub fn peer_room(&self) -> u32 {
        // Fits: the unacknowledged bytes of a ring are at most its size.
        let unacked = (self.ring.written().0 - self.acked.max(self.ring.base()).0) as u32;
        self.ring.bytes().saturating_sub(unacked)
    }

    /// The ring that is read next.
    #[inline]
    pub fn read_ring(&self) -> &Ring {
        self.old.as_ref().unwrap_or(&self.ring)
    }

    /// All bytes up to this one have arrived.
    fn arrived(&self) -> Seq {
        self.next.plus(self.unread)
    }

    /// True if the stream has ended, and none of its bytes are left in the ring.
    pub fn is_end(&self) -> bool {
        self.end == Some(self.next) && self.unread == 0
    }

    fn check_end(&self, bytes: u32) -> Result<(), Violation> {
        let after = self.arrived().checked_add(bytes).ok_or(Violation::TooManyBytes)?;
        match self.end {
            Some(end) if after > end => Err(Violation::DataAfterFinish { bytes, end }),
            _ => Ok(()),
        }
    }

    /// Handles a direct transfer of `bytes`, which the peer wrote into the next advertised buffer.
    #[inline]
    pub fn handle_direct(&mut self, bytes: u32, counters: &mut Counters) -> Result<Arrival, Violation> {
        self.check_end(bytes)?;
        let fresh = self.is_advertising();
        let Some(head) = self.receives.front_mut().filter(|_| fresh) else {
            return Err(Violation::DirectUnadvertised);
        };
        let room = head.room();
        if bytes > room {
            return Err(Violation::DirectTooLong { bytes, room });
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

    /// Handles an indirect transfer of `bytes`, which the peer wrote into the ring.
    #[inline]
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
            self.leave_direct_phase(counters);
        }
        self.ring.write(bytes);
        self.unread += bytes;
        counters.indirect_transfers_received += 1;
        counters.indirect_bytes_received += u64::from(bytes);
        Ok(Arrival::Ring { bytes })
    }

    /// Ends a direct phase, in which indirect bytes have come.
    #[cold]
    fn leave_direct_phase(&mut self, counters: &mut Counters) {
        self.phase = self.phase.next();
        counters.phase_switches_received += 1;
        let answers = self.advertised > 0 && self.end.is_none() && self.answers_late();
        self.answer = if answers { Answer::Due } else { Answer::NotDue };
    }

    fn answers_late(&self) -> bool {
        #[cfg(test)]
        return !self.without_late_answer;
        #[cfg(not(test))]
        true
    }

    pub fn handle_finish(&mut self, end: Seq) -> Result<(), Violation> {
        if self.end.is_some() {
            return Err(Violation::FinishTwice);
        }
        let arrived = self.arrived();
        if end < arrived {
            return Err(Violation::FinishShort { end, arrived });
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
        self.receives.push_back(OutstandingReceive::new(receive));
        // This receive may be advertised: no pass is needed.
        if self.is_passing() {
            self.answer = Answer::Due;
        }
    }

    /// See [`crate::Stream::handle_copied`].
    #[inline]
    pub fn handle_copied(&mut self, bytes: u32) {
        let bytes = match &mut self.old {
            None => self.ring.free_first(bytes),
            Some(old) => {
                let bytes = old.free_first(bytes);
                self.old.take_if(|old| old.used() == 0);
                bytes
            }
        };
        self.unread -= bytes;
        self.freed = self.freed.plus(bytes);
        self.next = self.next.plus(bytes);
        self.estimate = self.estimate.plus(bytes);
    }

    /// Takes back a receive that the peer can no longer write into, or does not know of.
    #[inline]
    pub fn withdraw(&mut self) -> Option<ReceiveId> {
        if self.receives.is_empty() {
            None
        } else {
            self.withdraw_one()
        }
    }

    #[inline(never)]
    fn withdraw_one(&mut self) -> Option<ReceiveId> {
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

    /// True if an acknowledgement is due: half of the ring is freed, at least one byte and at most [`ACK_BYTES_MAX`]. A
    /// sender that found the ring full waits for it, so it must be due at the latest when the ring is empty; an earlier
    /// one wakes that sender more often, each time for less. After the peer's end none is due.
    pub fn ack_due(&self) -> bool {
        self.has_unacked() && (self.ack_wanted || self.has_freed_part(2))
    }

    /// As [`crate::Stream::handle_writer_waits`].
    pub fn handle_writer_waits(&mut self) {
        self.ack_wanted = self.has_freed_part(4);
    }

    fn has_freed_part(&self, divisor: u32) -> bool {
        self.freed.0 - self.acked.0 >= u64::from(self.ring.bytes() / divisor).min(ACK_BYTES_MAX)
    }

    /// True if bytes were freed that are not acknowledged, and the peer has not finished.
    pub fn has_unacked(&self) -> bool {
        self.end.is_none() && self.freed > self.acked
    }

    /// All bytes freed so far, which the caller must tell the peer.
    pub fn ack(&mut self) -> Seq {
        (self.ack_wanted, self.acked) = (false, self.freed);
        self.acked
    }
}
