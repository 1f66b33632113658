//! Decides when a port that has left packets unread takes its next turn.
//!
//! The VM runs a port and a process by turns. In a flood of small messages each turn of the port gives packets, while
//! their receiver shares the time slices in between with other processes, and takes only as many messages in one as
//! their handling allows: its mailbox grows without a bound. OTP's driver reads as soon as its scheduler is idle, and
//! else whenever processes have used two time slices. A port has no word for either, but it sees the time between two
//! of its callbacks: short if no process has run.
//!
//! So in a flood a port gives up its turns, one time slice after the other, until no process runs in between; then the
//! receivers have emptied their mailboxes, or run on other schedulers. Where a scheduler is never idle the next turn
//! comes after [`WAITS_MAX`] time slices.

use std::time::{Duration, Instant};

/// A flood begins after this number of turns in a row that have left packets.
const FLOOD_TURNS: u32 = 4;
/// The packets of a turn in a flood: the mailbox of a receiver has hardly more. Each turn costs the VM some
/// microseconds: with 32 packets, messages of 1 KB take a fifth more CPU.
const FLOOD_PACKETS: usize = 64;
/// A turn with fewer packets is ended by its bytes, and is no part of a flood: large messages take their time anyway.
const MANY_PACKETS: u64 = FLOOD_PACKETS as u64 / 2;

/// If two callbacks are closer than this no process has run in between. Measured with `+S 1` on a loaded machine:
/// without a process 128 to 512 ns, with one 1 to 30 us.
const IDLE: Duration = Duration::from_micros(1);
/// The turns that are given up at most. 64 packets in six time slices are as many as OTP's driver gives where they are
/// small: it reads 1,460 bytes, 24 packets of 10 bytes, after each two.
const WAITS_MAX: u32 = 6;
/// The time between two turns that are not [`IDLE`] at least: many processes that run shortly are no time slices.
const TURN_MIN: Duration = Duration::from_micros(100);

/// The pace of the turns of one path.
#[derive(Debug, Default)]
pub struct Pacer {
    /// Turns in a row that have left packets.
    full_turns: u32,
    /// The last turn, and the turns given up since. Only in a flood.
    waiting: Option<Waiting>,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    turn_at: Instant,
    called_at: Instant,
    waits: u32,
}

impl Pacer {
    /// True in a flood: the timer of 0 ms brings the next turn, and events do not.
    pub fn is_flood(&self) -> bool {
        self.waiting.is_some()
    }

    /// The packets that the next turn gives at most; `most` outside of a flood.
    pub fn packets_max(&self, most: usize) -> usize {
        if self.is_flood() { FLOOD_PACKETS.min(most) } else { most }
    }

    /// Called by the timer of 0 ms. False: the port gives up this turn, ends its time slice, and sets the timer again.
    pub fn is_time(&mut self, clock: impl Fn() -> Instant) -> bool {
        let Some(waiting) = &mut self.waiting else {
            return true;
        };
        let now = clock();
        if now.duration_since(waiting.called_at) < IDLE {
            return true;
        }
        if waiting.waits >= WAITS_MAX && now.duration_since(waiting.turn_at) >= TURN_MIN {
            return true;
        }
        waiting.waits += 1;
        waiting.called_at = clock();
        false
    }

    /// Notes a turn that has given this number of packets. `is_more`: it has left some.
    pub fn handle_turn(&mut self, packets: u64, is_more: bool, clock: impl Fn() -> Instant) {
        self.full_turns = if is_more && packets >= MANY_PACKETS {
            self.full_turns.saturating_add(1)
        } else {
            0
        };
        self.waiting = (self.full_turns >= FLOOD_TURNS).then(|| {
            let now = clock();
            Waiting {
                turn_at: now,
                called_at: now,
                waits: 0,
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Time that passes only when a test says so.
    struct Clock(Cell<Instant>);

    impl Clock {
        fn new() -> Clock {
            Clock(Cell::new(Instant::now()))
        }

        fn pass(&self, time: Duration) {
            self.0.set(self.0.get() + time);
        }

        fn now(&self) -> impl Fn() -> Instant + '_ {
            || self.0.get()
        }
    }

    const MOST: usize = 256;
    const SLICE: Duration = Duration::from_micros(20);

    fn flood(clock: &Clock) -> Pacer {
        let mut pacer = Pacer::default();
        for _ in 0..FLOOD_TURNS {
            assert!(pacer.is_time(clock.now()));
            pacer.handle_turn(MOST as u64, true, clock.now());
        }
        pacer
    }

    #[test]
    fn turns_follow_each_other_outside_of_a_flood() {
        let clock = Clock::new();
        let mut pacer = Pacer::default();
        for _ in 1..FLOOD_TURNS {
            assert_eq!(pacer.packets_max(MOST), MOST);
            pacer.handle_turn(MOST as u64, true, clock.now());
            clock.pass(SLICE);
            assert!(pacer.is_time(clock.now()));
        }
        pacer.handle_turn(MOST as u64, false, clock.now());
        assert!(!pacer.is_flood());
    }

    #[test]
    fn large_packets_are_no_flood() {
        let clock = Clock::new();
        let mut pacer = Pacer::default();
        for _ in 0..100 {
            pacer.handle_turn(4, true, clock.now());
            clock.pass(SLICE);
            assert!(pacer.is_time(clock.now()));
        }
    }

    #[test]
    fn a_turn_of_a_flood_gives_few_packets_and_waits_for_an_idle_scheduler() {
        let clock = Clock::new();
        let mut pacer = flood(&clock);
        assert_eq!(pacer.packets_max(MOST), FLOOD_PACKETS);
        for _ in 0..3 {
            clock.pass(SLICE);
            assert!(!pacer.is_time(clock.now()), "a process has run");
        }
        clock.pass(IDLE / 2);
        assert!(pacer.is_time(clock.now()));
    }

    #[test]
    fn a_scheduler_that_is_never_idle_delays_a_turn_by_a_bound() {
        let clock = Clock::new();
        let mut pacer = flood(&clock);
        for slice in [Duration::from_micros(2), SLICE, Duration::from_millis(1)] {
            let begun = clock.now()();
            let mut waits = 0;
            clock.pass(slice);
            while !pacer.is_time(clock.now()) {
                waits += 1;
                clock.pass(slice);
            }
            assert!(waits >= WAITS_MAX, "{waits} of {slice:?}");
            assert!(waits == WAITS_MAX || clock.now()() < begun + TURN_MIN + slice);
            assert!(clock.now()() >= begun + TURN_MIN);
            pacer.handle_turn(FLOOD_PACKETS as u64, true, clock.now());
        }
    }

    #[test]
    fn a_flood_is_over_with_a_turn_that_leaves_nothing() {
        let clock = Clock::new();
        let mut pacer = flood(&clock);
        pacer.handle_turn(10, false, clock.now());
        clock.pass(SLICE);
        assert!(pacer.is_time(clock.now()));
        assert_eq!(pacer.packets_max(MOST), MOST);
    }
}
