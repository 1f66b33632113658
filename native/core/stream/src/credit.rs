//! Receive slots: how many messages may be under way, so that no receive queue ever runs dry.
//!
//! Every message, the notice of a transfer or a control message, uses one slot of the other side's receive queue. A
//! side starts with as many credits as the peer has slots, and spends one per message. The slot of an arrived message
//! is posted again before the message is handled. From then on the slot is *owed* to the peer: the next control message
//! returns it as a credit.
//!
//! # Rules
//! * One credit is reserved for FINISH from the start, so that a side can always tell the peer that it closes. The
//!   other rules count the *free* credits: all but this one until FINISH is sent, all of them after it.
//! * A transfer needs more than [`DATA_RESERVE`] free credits: bulk never takes what control messages live on.
//! * A control message that gives credits back needs one free credit; one that gives none back needs two. So the last
//!   free credit is only ever spent on a message that brings the other side credits.
//! * A message for credits alone is made once at least half of the slots are owed.
//!
//! # Never more messages than slots
//! For the direction from A to B, at any time: credits of A + messages under way to B + owed by B + credits under way
//! to A = slots of B. So the messages under way are at most the slots that are posted.
//!
//! # Never a deadlock
//! Assume that everything under way has arrived, and that these rules allow neither side to send anything. Write c for
//! free credits, r for the reserved one (1 until FINISH is sent, then 0), o for owed, n for slots; nothing is under
//! way, so c_A + r_A + o_B = n_B and c_B + r_B + o_A = n_A.
//! 1. c_A and c_B are not both 0. FINISH takes r and leaves c as it is, so it is of no interest here. Look at the last
//!    message with which A went from one free credit to none, and the same for B. Each gave the other at least one
//!    credit. B's must have arrived before A sent its own, or A would have a credit now; and A's before B sent its own.
//!    Each before the other cannot be.
//! 2. Say c_A >= 1. If o_A were at least half of n_A, A would send these credits, for that it needs only one credit. So
//!    o_A < n_A / 2 (rounded down), hence c_B >= n_A - r_B - n_A / 2 + 1 >= n_A - n_A / 2, which is 3 or more from 5
//!    slots on: B may send transfers and every control message. And because c_B >= 1 the same holds the other way
//!    round: so may A. With 4 slots it would be 2, and no transfer could follow.
//!
//! So a side that waits for a credit gets it as soon as the peer looks at its messages.
//!
//! # Never credits for ever
//! A message for credits alone takes at least two (half of 5 or more slots, rounded down) off the sum that both sides
//! owe, and adds one, its own slot. So each such message lowers the sum, and at most as many can follow as slots are
//! owed.

use crate::violation::Violation;

/// Free credits that transfers leave to control messages.
const DATA_RESERVE: u16 = 2;

/// Credits that everything else leaves to FINISH.
const FINISH_RESERVE: u16 = 1;

/// # Invariants
/// `known <= remote_slots` and `owed <= local_slots`.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
pub(crate) struct Credit {
    /// Free slots of the peer, as far as this side knows.
    known: u16,
    /// Credits kept for FINISH: [`FINISH_RESERVE`] until it is sent, then 0.
    reserved: u16,
    /// Depth of the peer's receive queue.
    remote_slots: u16,
    /// Slots of this side that are free again and that the peer does not know of yet.
    owed: u16,
    /// Depth of this side's receive queue.
    local_slots: u16,
    /// A defect for the tests, which the model must find: without a reserve both sides run out of credits.
    #[cfg(test)]
    pub without_reserve: bool,
}

impl Credit {
    pub fn new(local_slots: u16, remote_slots: u16) -> Credit {
        Credit {
            known: remote_slots,
            reserved: FINISH_RESERVE,
            remote_slots,
            owed: 0,
            local_slots,
            #[cfg(test)]
            without_reserve: false,
        }
    }

    fn keeps_reserve(&self) -> bool {
        #[cfg(test)]
        return !self.without_reserve;
        #[cfg(not(test))]
        true
    }

    /// Notes an arrived message, whose slot is owed to the peer from now on.
    pub fn handle_message(&mut self) -> Result<(), Violation> {
        let slots = self.local_slots;
        if self.owed == slots {
            return Err(Violation::SlotsOverrun { slots });
        }
        self.owed += 1;
        Ok(())
    }

    /// Notes credits that the peer returns.
    pub fn handle_credits(&mut self, credits: u16) -> Result<(), Violation> {
        let (known, slots) = (self.known, self.remote_slots);
        if credits > slots - known {
            return Err(Violation::CreditExcess { credits, known, slots });
        }
        self.known += credits;
        Ok(())
    }

    /// Credits for anything but FINISH.
    fn free(&self) -> u16 {
        self.known.saturating_sub(self.reserved)
    }

    pub fn allows_transfer(&self) -> bool {
        self.free() > if self.keeps_reserve() { DATA_RESERVE } else { 0 }
    }

    /// For FINISH see [`Self::spend_on_finish`].
    pub fn allows_control(&self) -> bool {
        self.free() >= 2 || (self.free() == 1 && (self.owed > 0 || !self.keeps_reserve()))
    }

    /// True if a message for the owed credits alone is due.
    pub fn is_due(&self) -> bool {
        self.owed >= self.local_slots / 2
    }

    /// Spends a credit on a transfer that [`Self::allows_transfer`] has allowed.
    pub fn spend_on_transfer(&mut self) {
        debug_assert!(self.allows_transfer());
        self.known = self.known.saturating_sub(1);
    }

    /// Spends a credit on a control message that is allowed. Returns the credits that the message must return.
    pub fn spend_on_control(&mut self) -> u16 {
        debug_assert!(self.allows_control());
        self.known = self.known.saturating_sub(1);
        std::mem::take(&mut self.owed)
    }

    /// Spends the reserved credit on FINISH, once. Returns the credits that the message must return.
    pub fn spend_on_finish(&mut self) -> u16 {
        debug_assert!(self.reserved == FINISH_RESERVE && self.known >= self.reserved);
        self.known = self.known.saturating_sub(self.reserved);
        self.reserved = 0;
        std::mem::take(&mut self.owed)
    }
}
