//! The receiving half: arrived bytes, the ring, and which posted receives are advertised.

mod adverts;
mod questions;

use std::collections::VecDeque;

use crate::counters::Counters;
use crate::limits::{Limits, Mode};
use crate::receive::{Arrival, Completed, OutstandingReceive, Receive, ReceiveId};
use crate::ring::{Ring, RingSpan};
use crate::seq::{Phase, Seq};
use crate::violation::Violation;
use crate::wire::{NewRing, TRANSFER_BYTES_MAX};

/// From this many bytes freed on an acknowledgement is due, however large the ring is.
const ACK_BYTES_MAX: u64 = 1 << 20;

/// # Invariants
/// * The first `advertised` of `receives` are advertised, all for `advert_phase`; the others are not.
/// * S'_r = S_r + the sum of what the advertised ones get at least.
/// * While a ring holds bytes, `phase` is indirect.
/// * `old` holds bytes if there is one, and ends where `ring` begins.
/// * `unread` is what both hold, and `freed + unread` what was written into all rings.
/// * While `ask` is not `Nothing` no advertisement is sent.
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
    /// The ring that the peer writes into; what is used of it and of `old` is b_r.
    ring: Ring,
    /// The ring before it, as long as it holds bytes.
    old: Option<Ring>,
    /// Bytes in both, and bytes ever copied out of a ring: each is looked at several times for a transfer.
    unread: u32,
    freed: Seq,
    ask: Ask,
    /// Ring bytes that were acknowledged to the peer.
    acked: Seq,
    receives: VecDeque<OutstandingReceive>,
    advertised: usize,
    advert_phase: Phase,
    /// Advertisements that the peer holds at a time.
    adverts_max: u16,
    /// Length of the stream, once the peer said it.
    end: Option<Seq>,
    answer: Answer,
    /// The mutation that the model must find: without the answer a sender that saw advertisements too late waits for
    /// ever.
    #[cfg(test)]
    pub without_late_answer: bool,
}

/// What the peer, which may be waiting for an advertisement, is to hear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Answer {
    /// Nothing: it does not wait.
    NotDue,
    /// It used a buffer of this phase up, or went on through the ring with advertisements unused, which it may have
    /// seen too late; since then nothing was advertised or passed.
    Due,
    /// There is nothing to advertise for now.
    Pass,
}

/// What this side asks the peer to answer with a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Ask {
    /// Nothing.
    Nothing,
    /// This, and the message has not been sent.
    Wanted(Question),
    /// This, and the mark has not come.
    Sent(Question),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Question {
    Recall,
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

    /// The runs of bytes that are to be read next, in one ring.
    #[inline]
    pub fn readable(&self) -> [RingSpan; 2] {
        let ring = self.old.as_ref().unwrap_or(&self.ring);
        let first = ring.readable();
        let second = RingSpan {
            offset: 0,
            bytes: ring.used() - first.bytes,
        };
        [first, second]
    }

    /// Where the peer writes next.
    #[inline]
    pub fn writable(&self) -> RingSpan {
        self.ring.writable()
    }

    /// Whether what is to be read next is in the ring before the last one that was taken over.
    #[inline]
    pub fn reads_old_ring(&self) -> bool {
        self.old.is_some()
    }

    /// Bytes in both rings.
    #[inline]
    pub fn used(&self) -> u32 {
        self.unread
    }

    /// Bytes of the ring that are free as far as the peer has been told.
    pub fn peer_room(&self) -> u32 {
        // Fits: at most what the ring holds was written since it was taken over and not acknowledged.
        let unacked = (self.ring.written().0 - self.acked.max(self.ring.base()).0) as u32;
        self.ring.bytes().saturating_sub(unacked)
    }

    /// Size of the ring that the peer writes into.
    pub fn ring_bytes(&self) -> u32 {
        self.ring.bytes()
    }

    /// See [`crate::Stream::ring_to_end`].
    #[inline]
    pub fn ring_to_end(&self) -> u32 {
        self.old.as_ref().unwrap_or(&self.ring).read_to_end()
    }

    pub fn receives(&self) -> usize {
        self.receives.len()
    }

    /// All bytes up to this one have arrived.
    fn arrived(&self) -> Seq {
        self.next.plus(self.used())
    }

    /// The stream ended, and nothing of it is left in the ring.
    pub fn is_end(&self) -> bool {
        self.end == Some(self.next) && self.used() == 0
    }

    fn check_end(&self, bytes: u32) -> Result<(), Violation> {
        let after = self.arrived().checked_add(bytes).ok_or(Violation::TooManyBytes)?;
        match self.end {
            Some(end) if after > end => Err(Violation::DataAfterFinish { bytes, end }),
            _ => Ok(()),
        }
    }

    /// The peer wrote `bytes` into the buffer that it must think is next.
    #[inline]
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

    /// Indirect bytes have come in a direct phase.
    #[cold]
    fn leave_direct_phase(&mut self, counters: &mut Counters) {
        self.phase = self.phase.next();
        counters.phase_switches_received += 1;
        let answers = self.advertised > 0 && self.end.is_none() && self.answers_late();
        self.answer = if answers { Answer::Due } else { Answer::NotDue };
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
        self.receives.push_back(OutstandingReceive::new(receive));
        // It may be advertised instead.
        if self.is_passing() {
            self.answer = Answer::Due;
        }
    }

    /// The caller copied `bytes` out of the ring, into the head receive if there is one.
    #[inline]
    pub fn handle_copied(&mut self, bytes: u32) -> Option<Completed> {
        let bytes = match &mut self.old {
            None => self.ring.free_first(bytes),
            Some(old) => {
                let bytes = old.free_first(bytes);
                self.old.take_if(|old| old.used() == 0);
                bytes
            }
        };
        if bytes == 0 {
            return None;
        }
        self.unread -= bytes;
        self.freed = self.freed.plus(bytes);
        self.next = self.next.plus(bytes);
        if self.receives.is_empty() {
            self.estimate = self.estimate.plus(bytes);
            return None;
        }
        self.fill_head(bytes)
    }

    /// `bytes` of the ring have gone into the head receive.
    #[inline(never)]
    fn fill_head(&mut self, bytes: u32) -> Option<Completed> {
        let is_advertised = self.advertised > 0;
        let head = self.receives.front_mut()?;
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

    /// Whether enough was freed for a message of its own. A sender that found the ring full waits for this, so it must
    /// come true at the latest when the ring is empty: a quarter of the ring, and at least one byte, is never more than
    /// all of it. After the peer's end there is no peer to tell. A large ring does not let its sender wait for the
    /// memory that it keeps.
    pub fn ack_due(&self) -> bool {
        self.has_unacked() && self.freed.0 - self.acked.0 >= u64::from(self.ring.bytes() / 4).min(ACK_BYTES_MAX)
    }

    /// Whether anything was freed that the peer does not know of and still wants to.
    pub fn has_unacked(&self) -> bool {
        self.end.is_none() && self.freed > self.acked
    }

    /// All bytes freed so far, which the caller must tell the peer.
    pub fn ack(&mut self) -> Seq {
        self.acked = self.freed;
        self.acked
    }
}
