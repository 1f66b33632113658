//! The ledger of work requests without a completion yet, and of the staging memory that they read from.
//!
//! Only some work requests are signalled. The completion of one tells that all requests before it are complete, too
//! (section "Completion ordering" of the InfiniBand specification: work requests of one send queue complete in order).
//! Over iWARP each write is signalled ([`crate::sending`] has the reason).

use std::collections::VecDeque;
use std::ops::Range;

#[derive(Debug)]
pub(crate) struct Ledger {
    entries: u64,
    /// False: a request takes bytes of one place.
    gathers: bool,
    /// Numbers of work requests that were posted, and that are known to be complete.
    posted: u64,
    done: u64,
    staging_bytes: u64,
    /// The position of the first staging byte in the present memory: bytes before it are in memory that was replaced.
    staging_base: u64,
    /// Staging bytes that were handed out, that were posted, and that are free again, each counted since the start.
    staged: u64,
    staged_posted: u64,
    staged_done: u64,
    /// Signalled work requests under way: each with its number, and the value of `staged_posted` after it.
    signals: VecDeque<(u64, u64)>,
}

/// A request is signalled when this fraction (1/4) of the queue, or of the staging memory, was used since the last
/// signal.
const SIGNAL_PARTS: u64 = 4;

/// Room is offered only while at least this fraction (1/4) of the staging memory is free.
const STAGING_PARTS: u64 = 4;

/// Room is offered only while more than this fraction (1/4) of the queue is free: the rest is for controls.
const CONTROL_PARTS: u64 = 4;

/// Work requests of one transfer at most: over iWARP the notice is a work request of its own.
const ENTRIES_PER_TRANSFER: u64 = 2;

impl Ledger {
    pub(crate) fn new(entries: u32, staging_bytes: usize, gathers: bool) -> Ledger {
        Ledger {
            entries: entries.into(),
            gathers,
            posted: 0,
            done: 0,
            staging_bytes: staging_bytes as u64,
            staging_base: 0,
            staged: 0,
            staged_posted: 0,
            staged_done: 0,
            signals: VecDeque::with_capacity(2 * SIGNAL_PARTS as usize),
        }
    }

    fn entries_free(&self) -> u64 {
        self.entries - (self.posted - self.done)
    }

    /// Bytes of a transfer that can be staged and posted from now on, whatever controls are posted before it; 0: none.
    pub(crate) fn room(&self) -> usize {
        let has_entries = self.entries_free() > self.entries / CONTROL_PARTS + ENTRIES_PER_TRANSFER;
        // Little room would make many small transfers; more staging memory is free soon.
        let free = self.staging_free();
        let is_enough = |bytes: usize| bytes as u64 * STAGING_PARTS >= self.staging_bytes;
        if !has_entries || !is_enough(free) {
            return 0;
        }
        if self.gathers {
            return free;
        }
        let at_end = self.bytes_to_end();
        if free <= at_end {
            return free;
        }
        // In one piece: at the end of the memory if there is enough, else at its start.
        let room = if is_enough(at_end) { at_end } else { free - at_end };
        if is_enough(room) { room } else { 0 }
    }

    /// Bytes from the place of the next staged byte to the end of the memory.
    fn bytes_to_end(&self) -> usize {
        (self.staging_bytes - (self.staged - self.staging_base) % self.staging_bytes) as usize
    }

    /// Bytes at the end of the memory that a transfer of `bytes` leaves out.
    fn left_out(&self, bytes: usize) -> usize {
        if self.gathers {
            return 0;
        }
        let at_end = self.bytes_to_end();
        if bytes <= at_end { 0 } else { at_end }
    }

    /// Whether the queue and the staging memory take a transfer of `bytes`. True for the room that [`Self::room`] has
    /// offered since the last transfer: controls leave the entries of one transfer free, and take no staging memory.
    pub(crate) fn takes_transfer(&self, bytes: usize) -> bool {
        self.entries_free() >= ENTRIES_PER_TRANSFER && bytes + self.left_out(bytes) <= self.staging_free()
    }

    /// Whether the queue takes a control, beside the transfer that [`Self::room`] may have offered.
    pub(crate) fn takes_control(&self) -> bool {
        self.entries_free() > ENTRIES_PER_TRANSFER
    }

    fn staging_free(&self) -> usize {
        (self.staging_bytes - (self.staged - self.staged_done.max(self.staging_base))) as usize
    }

    /// Other memory, of `bytes`, takes over. Returns the position up to which staged bytes are in the old memory: see
    /// [`Self::is_done_to`].
    pub(crate) fn replace_staging(&mut self, bytes: usize) -> u64 {
        self.staging_bytes = bytes as u64;
        self.staging_base = self.staged;
        self.staging_base
    }

    /// Whether all bytes staged before `position` are sent.
    pub(crate) fn is_done_to(&self, position: u64) -> bool {
        self.staged_done >= position
    }

    /// Whether the work request with this number is known to be done.
    pub(crate) fn is_done(&self, number: u64) -> bool {
        self.done >= number
    }

    /// Number of the last work request that was posted.
    pub(crate) fn posted(&self) -> u64 {
        self.posted
    }

    pub(crate) fn done(&self) -> u64 {
        self.done
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.posted == self.done
    }

    /// True if less than half is free: a look for completions pays.
    pub(crate) fn is_tight(&self) -> bool {
        2 * self.entries_free() < self.entries || 2 * self.staging_free() as u64 <= self.staging_bytes
    }

    /// Hands out staging memory for the next work request: one range, or two round the end if requests gather.
    ///
    /// # Panics
    ///
    /// With more bytes than [`Self::takes_transfer`] allows.
    pub(crate) fn stage(&mut self, bytes: usize) -> [Range<usize>; 2] {
        let left_out = self.left_out(bytes);
        assert!(bytes + left_out <= self.staging_free(), "no more than is free");
        self.staged += left_out as u64;
        let size = self.staging_bytes as usize;
        let start = ((self.staged - self.staging_base) % self.staging_bytes) as usize;
        self.staged += bytes as u64;
        let first = bytes.min(size - start);
        [start..start + first, 0..bytes - first]
    }

    /// Counts a work request that is about to be posted, with all that was staged if it is `with_staged`: its number,
    /// and whether it is to be signalled.
    pub(crate) fn post(&mut self, with_staged: bool, may_signal: bool) -> (u64, bool) {
        self.count(with_staged);
        let (last, last_staged) = self.signals.back().copied().unwrap_or((self.done, self.staged_done));
        let due = (self.posted - last) * SIGNAL_PARTS >= self.entries
            || (self.staged_posted - last_staged) * SIGNAL_PARTS >= self.staging_bytes;
        let signalled = may_signal && due;
        if signalled {
            self.signals.push_back((self.posted, self.staged_posted));
        }
        (self.posted, signalled)
    }

    /// As [`Self::post`], for a request that is always signalled.
    pub(crate) fn post_signalled(&mut self, with_staged: bool) -> u64 {
        self.count(with_staged);
        self.signals.push_back((self.posted, self.staged_posted));
        self.posted
    }

    fn count(&mut self, with_staged: bool) {
        self.posted += 1;
        if with_staged {
            self.staged_posted = self.staged;
        }
    }

    /// Notes that a signalled work request, and so each one before it, is complete.
    pub(crate) fn complete(&mut self, number: u64) {
        while let Some(&(signalled, staged)) = self.signals.front() {
            if signalled > number {
                break;
            }
            self.signals.pop_front();
            self.done = signalled;
            self.staged_done = staged;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::Ledger;

    #[test]
    fn memory_at_the_end_is_cut_in_two() {
        let mut ledger = Ledger::new(8, 100, true);
        assert_eq!(ledger.stage(70), [0..70, 0..0]);
        let (number, signalled) = ledger.post(true, true);
        assert!(signalled, "more than a part of the memory");
        ledger.complete(number);
        assert_eq!(ledger.stage(50), [70..100, 0..20]);
        assert_eq!(ledger.staging_free(), 50);
    }

    #[test]
    fn memory_at_the_end_is_left_out_where_requests_do_not_gather() {
        let mut ledger = Ledger::new(8, 100, false);
        let complete = |ledger: &mut Ledger| {
            let (number, signalled) = ledger.post(true, true);
            assert!(signalled);
            ledger.complete(number);
        };
        assert_eq!(ledger.stage(70), [0..70, 0..0]);
        complete(&mut ledger);
        assert_eq!(ledger.room(), 30, "up to the end");
        assert_eq!(ledger.stage(25), [70..95, 0..0]);
        complete(&mut ledger);
        assert_eq!(ledger.room(), 95, "too little is left at the end");
        assert!(!ledger.takes_transfer(96));
        assert_eq!(ledger.stage(95), [0..95, 0..0]);
        assert_eq!(ledger.staging_free(), 0);
        complete(&mut ledger);
        assert_eq!(ledger.staging_free(), 100, "also what was left out");
    }

    #[test]
    fn a_completion_frees_no_bytes_that_were_staged_after_its_post() {
        let mut ledger = Ledger::new(8, 100, true);
        let _staged = ledger.stage(60);
        let control = ledger.post_signalled(false);
        ledger.complete(control);
        assert_eq!(ledger.staging_free(), 40);
    }

    #[test]
    fn a_request_without_a_signal_is_known_to_be_done_with_the_next_one_that_has_one() {
        let mut ledger = Ledger::new(8, 100, true);
        let (silent, signalled) = ledger.post(false, true);
        assert!(!signalled && !ledger.is_done(silent));
        let signalled = ledger.post_signalled(false);
        let (behind, _) = ledger.post(false, true);
        assert!(!ledger.is_done(silent));
        ledger.complete(signalled);
        assert!(ledger.is_done(silent) && ledger.is_done(signalled) && !ledger.is_done(behind));
    }

    #[test]
    fn memory_that_takes_over_is_free_from_its_start_on() {
        let mut ledger = Ledger::new(8, 100, true);
        assert_eq!(ledger.stage(70), [0..70, 0..0]);
        let (number, signalled) = ledger.post(true, true);
        assert!(signalled);
        let end = ledger.replace_staging(300);
        assert_eq!((ledger.staging_free(), ledger.is_done_to(end)), (300, false));
        assert_eq!(ledger.stage(250), [0..250, 0..0]);
        assert_eq!(ledger.staging_free(), 50);
        ledger.complete(number);
        assert!(ledger.is_done_to(end));
        assert_eq!(ledger.staging_free(), 50, "the old memory frees none of the new");
        let (number, _) = ledger.post(true, true);
        ledger.complete(number);
        assert_eq!(ledger.stage(100), [250..300, 0..50]);
    }

    /// Posts the work requests of one transfer: on iWARP the notice is a work request of its own.
    fn post_transfer(ledger: &mut Ledger, is_iwarp: bool) {
        let _write = ledger.post(true, !is_iwarp);
        if is_iwarp {
            let _notice = ledger.post(false, true);
        }
    }

    proptest! {
        /// A transfer that was offered room finds it, however many controls are posted between the offer and the
        /// staging, and between the staging and the post.
        #[test]
        fn controls_leave_a_transfer_what_it_was_offered(
            entries in 4u32..64,
            is_iwarp: bool,
            gathers: bool,
            bursts in prop::collection::vec((0u8..70, 0u8..70, any::<bool>()), 1..40),
        ) {
            let mut ledger = Ledger::new(entries, 4_096, gathers);
            let burst = |ledger: &mut Ledger, controls: u8| {
                for _ in 0..controls {
                    if ledger.takes_control() {
                        let _control = ledger.post(false, true);
                    }
                }
            };
            for (before_staging, before_post, completes) in bursts {
                let room = ledger.room();
                burst(&mut ledger, before_staging);
                if room > 0 {
                    prop_assert!(ledger.takes_transfer(room));
                    let [first, second] = ledger.stage(room);
                    prop_assert_eq!(first.len() + second.len(), room);
                    prop_assert!(gathers || second.is_empty());
                    burst(&mut ledger, before_post);
                    post_transfer(&mut ledger, is_iwarp);
                }
                prop_assert!(ledger.posted - ledger.done <= u64::from(entries));
                if completes {
                    if let Some(&(number, _)) = ledger.signals.back() {
                        ledger.complete(number);
                    }
                }
            }
        }

        /// For any requests and any order of completions: no byte is lost, and the queue is never full without a
        /// signalled request under way.
        #[test]
        fn all_comes_back(
            entries in 4u32..64,
            staging in 16usize..4_096,
            gathers: bool,
            steps in prop::collection::vec(any::<u16>(), 1..400),
        ) {
            let mut ledger = Ledger::new(entries, staging, gathers);
            let mut under_way = VecDeque::new();
            for step in steps {
                let bytes = usize::from(step) % (staging / 2);
                let left_out = ledger.left_out(bytes);
                if ledger.entries_free() > 0 && bytes + left_out <= ledger.staging_free() && step % 3 != 0 {
                    let [first, second] = ledger.stage(bytes);
                    prop_assert_eq!(first.len() + second.len(), bytes);
                    prop_assert!(gathers || second.is_empty());
                    prop_assert!(first.end <= staging && (second.is_empty() || second.end <= first.start));
                    let (number, signalled) = ledger.post(true, true);
                    if signalled {
                        under_way.push_back(number);
                    }
                } else if let Some(number) = under_way.pop_front() {
                    ledger.complete(number);
                } else {
                    prop_assert!(ledger.entries_free() > 0 && ledger.staging_free() >= staging / 2);
                }
            }
            let last = ledger.post_signalled(false);
            ledger.complete(last);
            prop_assert!(ledger.is_idle());
            prop_assert_eq!(ledger.staging_free(), staging);
        }
    }
}
