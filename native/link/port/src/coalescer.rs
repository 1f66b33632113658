//! Decides whether small packets of a queue pair share a transfer.
//!
//! A packet that goes at once is the fastest answer, and costs an entry of the queue. Where a post is costly small
//! packets always wait for others, until the timer of 0 ms at most. Over shared memory they wait where that delays
//! nothing: this side sends ahead, and the peer has entries to take.

/// A side that has sent this number of packets since the last one came sends ahead: it waits for no answer. Requests
/// and answers of many processes pass this number rarely; to share theirs cost an rpc of 100 processes 5 %.
const AHEAD_PACKETS: u32 = 64;

/// The peer is behind with this number of entries to take: it has work until the timer. 8 are sometimes taken before
/// it; with 64 a single sender of 1 KB rarely shares.
const BEHIND_ENTRIES: u32 = 32;

/// The decision for one queue pair.
pub struct Coalescer {
    /// A post is costly.
    always: bool,
    /// Packets that this side has sent since the last one came.
    ahead: u32,
}

impl Coalescer {
    /// For a queue pair that has sent nothing. `always`: a post is costly.
    pub fn new(always: bool) -> Coalescer {
        Coalescer { always, ahead: 0 }
    }

    /// This number of packets came.
    pub fn handle_received(&mut self, packets: usize) {
        if packets > 0 {
            self.ahead = 0;
        }
    }

    /// Whether the next packet, if it is small, waits for others. Call it once for each packet. `is_behind` tells
    /// whether the peer has this number of entries to take.
    pub fn next(&mut self, is_behind: impl FnOnce(u32) -> bool) -> bool {
        self.ahead = self.ahead.saturating_add(1);
        self.always || self.ahead > AHEAD_PACKETS && is_behind(BEHIND_ENTRIES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_share_ahead_of_a_peer_that_is_behind() {
        let mut coalescer = Coalescer::new(false);
        for _ in 0..AHEAD_PACKETS {
            assert!(!coalescer.next(|_| true), "an answer may be awaited");
        }
        assert!(coalescer.next(|_| true));
        assert!(!coalescer.next(|_| false), "the peer waits for packets");
        coalescer.handle_received(0);
        assert!(coalescer.next(|_| true));
        coalescer.handle_received(1);
        assert!(!coalescer.next(|_| true), "an answer came");
    }

    #[test]
    fn packets_always_share_where_a_post_is_costly() {
        assert!(Coalescer::new(true).next(|_| false));
    }
}
