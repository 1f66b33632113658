//! TCP connections and queue pairs between two links, as their kernels and devices see them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use inet_rdma_paths::{Debt, Look};

use crate::notice::Loss;

/// `ECONNRESET` of Linux.
pub const RESET: Loss = Loss::System(104);
const DUE: Duration = Duration::from_millis(10);

/// One end of a TCP connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    Open,
    /// The other side's host has ended it, for this reason.
    Ended(Loss),
    /// This side has given it up.
    Closed,
}

/// The bytes that one side sends.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Direction {
    /// In the sender's kernel.
    pub sending: VecDeque<u8>,
    /// In the receiver's kernel.
    pub arrived: VecDeque<u8>,
    /// All that were ever written.
    pub written: u64,
    /// The sender's kernel waits for an answer since this time.
    pub owed_since: Option<Instant>,
    /// The last answer to the sender.
    pub answered_at: Instant,
}

/// A TCP connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tcp {
    pub id: u64,
    /// It leads over a third node, whose kernel acknowledges what the peer may never get.
    pub is_detour: bool,
    /// Nothing arrives.
    pub is_cut: bool,
    pub ends: [End; 2],
    /// By the sender.
    pub directions: [Direction; 2],
    /// A side whose kernel was restored from an older state than its peer's has seen: it never gets an answer.
    pub is_out_of_step: bool,
}

impl Tcp {
    pub fn new(id: u64, is_detour: bool, now: Instant) -> Tcp {
        let direction = Direction {
            sending: VecDeque::new(),
            arrived: VecDeque::new(),
            written: 0,
            owed_since: None,
            answered_at: now,
        };
        Tcp {
            id,
            is_detour,
            is_cut: false,
            ends: [End::Open; 2],
            directions: [direction.clone(), direction],
            is_out_of_step: false,
        }
    }

    pub fn passes(&self) -> bool {
        !self.is_cut && !self.is_out_of_step
    }

    /// The network brings up to this many bytes of the side to its peer. True: some.
    pub fn deliver(&mut self, from: usize, bytes: usize, now: Instant) -> bool {
        if !self.passes() {
            return false;
        }
        if self.ends[1 - from] != End::Open {
            return self.deliver_end(1 - from);
        }
        let direction = &mut self.directions[from];
        let bytes = bytes.min(direction.sending.len());
        direction.arrived.extend(direction.sending.drain(..bytes));
        if bytes > 0 {
            direction.answered_at = now;
            direction.owed_since = (!direction.sending.is_empty()).then_some(now);
        }
        bytes > 0
    }

    /// The network tells the peer of a side that has given the connection up. True: it did not know.
    pub fn deliver_end(&mut self, from: usize) -> bool {
        let is_news = self.ends[from] == End::Closed && self.ends[1 - from] == End::Open && self.passes();
        if is_news {
            self.ends[1 - from] = End::Ended(RESET);
        }
        is_news
    }

    pub fn write(&mut self, side: usize, bytes: &[u8], now: Instant) {
        let direction = &mut self.directions[side];
        direction.sending.extend(bytes);
        direction.written += bytes.len() as u64;
        direction.owed_since.get_or_insert(now);
    }

    /// What the kernel of this side says.
    pub fn look(&self, side: usize, now: Instant) -> Look {
        let direction = &self.directions[side];
        let answered = now.saturating_duration_since(direction.answered_at);
        if self.is_detour && !self.is_out_of_step {
            // The neighbour answers at once.
            return Look {
                heard: Duration::ZERO,
                answered: Duration::ZERO,
                debt: Debt::Nothing,
            };
        }
        let debt = match (self.ends[side], direction.owed_since) {
            (End::Ended(_), _) => Debt::Ended,
            (_, Some(since)) => Debt::Owed {
                owed: now.saturating_duration_since(since),
                due: DUE,
            },
            (_, None) => Debt::Nothing,
        };
        // The kernel asks by itself over a connection that is at rest.
        let is_well = self.passes() && self.ends[1 - side] == End::Open;
        let heard = if is_well { Duration::ZERO } else { Duration::MAX };
        Look { heard, answered, debt }
    }
}

/// What a side has of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hold {
    /// The settlement has not given it to the side yet.
    Awaited,
    Had,
    /// The side has given it up or will never get it.
    Gone,
}

/// What one side writes over a queue pair.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Ring {
    pub unread: VecDeque<u8>,
    /// Parts of a packet that the reader has taken.
    pub assembly: VecDeque<u8>,
    pub written: u64,
    pub read: u64,
    /// What the writer knows of `read`.
    pub acknowledged: u64,
    /// The writer waits for room.
    pub is_full: bool,
}

/// A queue pair.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pair {
    pub id: u64,
    pub can_be_lost: bool,
    /// Nothing arrives; the word of room that is said meanwhile is lost.
    pub is_cut: bool,
    /// It has failed.
    pub has_failed: bool,
    pub holds: [Hold; 2],
    /// By the writer.
    pub rings: [Ring; 2],
    /// Of each side's device: since when it owes the answer to a question, and whether the last look has found one.
    pub asked_at: [Option<Instant>; 2],
    pub has_answered: [bool; 2],
}

impl Pair {
    pub fn new(id: u64, can_be_lost: bool) -> Pair {
        Pair {
            id,
            can_be_lost,
            is_cut: false,
            has_failed: false,
            holds: [Hold::Awaited; 2],
            rings: [Ring::default(), Ring::default()],
            asked_at: [None; 2],
            has_answered: [false; 2],
        }
    }

    pub fn room(&self, side: usize, ring_bytes: usize) -> usize {
        let ring = &self.rings[side];
        if self.is_cut {
            return 0;
        }
        ring_bytes - usize::try_from(ring.written - ring.acknowledged).expect("few bytes")
    }

    /// The peer of the writer has read this many bytes. It says so when half of the ring is read, or the writer waits
    /// and a quarter is. True: the writer hears of room.
    pub fn handle_read(&mut self, writer: usize, bytes: usize, ring_bytes: usize) -> bool {
        let ring = &mut self.rings[writer];
        ring.read += bytes as u64;
        let unsaid = usize::try_from(ring.read - ring.acknowledged).expect("few bytes");
        if unsaid * 4 < ring_bytes || self.is_cut {
            return false;
        }
        ring.acknowledged = ring.read;
        std::mem::take(&mut ring.is_full)
    }

    /// What the device of this side says of the peer's, and asks it again.
    pub fn look(&mut self, side: usize, now: Instant) -> Look {
        if self.is_cut {
            let at = *self.asked_at[side].get_or_insert(now);
            self.has_answered[side] = false;
            let waited = now.saturating_duration_since(at);
            return Look {
                heard: waited,
                answered: waited,
                debt: Debt::Owed {
                    owed: waited,
                    due: Duration::ZERO,
                },
            };
        }
        self.asked_at[side] = None;
        self.has_answered[side] = !self.has_answered[side];
        Look {
            heard: Duration::ZERO,
            answered: Duration::ZERO,
            debt: if self.has_answered[side] {
                Debt::Later
            } else {
                Debt::Nothing
            },
        }
    }

    pub fn ask(&mut self, side: usize, now: Instant) {
        self.has_answered[side] = false;
        if self.is_cut {
            self.asked_at[side].get_or_insert(now);
        }
    }
}
