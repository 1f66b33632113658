use std::time::{Duration, Instant};

use super::{Mode, PATIENCE, PROMPT, PollPolicy, PollStep};

const MS: Duration = Duration::from_millis(1);
const US: Duration = Duration::from_micros(1);

/// A peer that sends `answer` after its last packet was found. A sleeping port finds `packets` of them, `wake` later.
#[derive(Clone, Copy)]
struct Traffic {
    answer: Duration,
    wake: Duration,
    packets: usize,
    /// The time of a turn: until the next poll.
    turn: Duration,
}

const LONE: Traffic = Traffic {
    answer: Duration::from_micros(4),
    wake: Duration::from_micros(6),
    packets: 1,
    turn: US,
};
const SHARED: Traffic = Traffic { packets: 20, ..LONE };
/// A wake-up on both sides.
const SLOW_WAKE: Duration = Duration::from_micros(106);

/// A port on virtual time.
struct World {
    now: Instant,
    poll_policy: PollPolicy,
    polls: u64,
    sleeps: u64,
}

impl World {
    fn new() -> World {
        let now = Instant::now();
        World {
            now,
            poll_policy: PollPolicy::new(now, false),
            polls: 0,
            sleeps: 0,
        }
    }

    /// Runs for this long.
    fn run(&mut self, time: Duration, traffic: Traffic) {
        let end = self.now + time;
        let mut comes = self.now + traffic.answer;
        let mut found = 0;
        while self.now < end {
            match self.poll_policy.next(self.now, found) {
                PollStep::Poll | PollStep::YieldAndPoll => {
                    self.polls += 1;
                    self.now += traffic.turn;
                    found = usize::from(comes <= self.now);
                }
                PollStep::Arm => {
                    self.sleeps += 1;
                    self.now = self.now.max(comes) + traffic.wake;
                    found = traffic.packets;
                }
            }
            if found > 0 {
                comes = self.now + traffic.answer;
            }
        }
    }

    /// Runs for a second, nearly always this mode.
    fn settles_on(&mut self, mode: Mode, traffic: Traffic) {
        (self.polls, self.sleeps) = (0, 0);
        self.run(1000 * MS, traffic);
        let (this, other) = match mode {
            Mode::Polls => (self.polls, self.sleeps),
            Mode::Sleeps => (self.sleeps, self.polls),
        };
        assert!(other * 20 < this, "{} polls, {} sleeps", self.polls, self.sleeps);
    }
}

#[test]
fn a_port_polls_for_lone_requests_one_after_the_other() {
    let mut world = World::new();
    world.run(50 * MS, LONE);
    world.settles_on(Mode::Polls, LONE);
}

#[test]
fn a_port_sleeps_while_packets_come_in_numbers() {
    let mut world = World::new();
    world.run(50 * MS, SHARED);
    world.settles_on(Mode::Sleeps, SHARED);
}

#[test]
fn a_port_polls_for_lone_requests_if_wake_ups_are_slow() {
    // 9 packets in a millisecond.
    let slow = Traffic {
        wake: SLOW_WAKE,
        ..LONE
    };
    let mut world = World::new();
    world.run(100 * MS, slow);
    world.settles_on(Mode::Polls, slow);
}

#[test]
fn a_port_whose_wake_ups_are_shared_does_not_try_to_poll() {
    let mut world = World::new();
    world.run(
        1000 * MS,
        Traffic {
            wake: SLOW_WAKE,
            ..SHARED
        },
    );
    assert_eq!(world.polls, 0);
}

#[test]
fn little_traffic_is_never_polled_for() {
    let mut world = World::new();
    world.run(10_000 * MS, Traffic { answer: MS, ..LONE });
    assert_eq!(world.polls, 0);
}

#[test]
fn a_scheduler_with_other_work_makes_a_port_sleep() {
    // A whole trial would prefer the polls, as a wake-up takes longer still.
    let busy = Traffic {
        turn: 200 * US,
        wake: 400 * US,
        ..LONE
    };
    let mut world = World::new();
    world.run(100 * MS, busy);
    world.settles_on(Mode::Sleeps, busy);
}

#[test]
fn a_change_of_traffic_changes_the_way() {
    let mut world = World::new();
    world.run(2000 * MS, LONE);
    world.run(2000 * MS, SHARED);
    world.settles_on(Mode::Sleeps, SHARED);
}

#[test]
fn polls_end_when_nothing_comes_or_a_turn_takes_long() {
    let mut world = World::new();
    world.run(40 * MS, LONE);
    let mut now = world.now;
    assert_eq!(world.poll_policy.next(now, 1), PollStep::Poll);
    let end = now + PATIENCE;
    while world.poll_policy.next(now, 0) != PollStep::Arm {
        assert!(now < end, "polls on after {PATIENCE:?}");
        now += US;
    }
    assert_eq!(world.poll_policy.next(now, 1), PollStep::Poll);
    assert_eq!(world.poll_policy.next(now + PROMPT, 0), PollStep::Arm);
}

#[test]
fn a_port_that_never_polls_sleeps_for_all() {
    let mut world = World::new();
    world.poll_policy = PollPolicy::new(world.now, true);
    world.run(100 * MS, LONE);
    assert_eq!(world.polls, 0);
}
