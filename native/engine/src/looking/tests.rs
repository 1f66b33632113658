use std::time::{Duration, Instant};

use super::{Looking, Next, PATIENCE, PROMPT};

/// A port on virtual time, whose peer sends the next packet so long after the last was found.
struct World {
    now: Instant,
    looking: Looking,
    looks: u64,
    sleeps: u64,
}

impl World {
    fn new() -> World {
        let now = Instant::now();
        World {
            now,
            looking: Looking::new(now, false),
            looks: 0,
            sleeps: 0,
        }
    }

    /// Runs for this long. A look takes `turn`; a packet comes `answer` after the last one was found, and is found `wake`
    /// later if the port sleeps, `packets` of them at a time then.
    fn run(&mut self, time: Duration, turn: Duration, answer: Duration, wake: Duration, packets: usize) {
        let end = self.now + time;
        let mut comes = self.now + answer;
        let mut found = 0;
        while self.now < end {
            match self.looking.next(self.now, found) {
                Next::Look | Next::YieldAndLook => {
                    self.looks += 1;
                    self.now += turn;
                    found = usize::from(comes <= self.now);
                }
                Next::Arm => {
                    self.sleeps += 1;
                    self.now = self.now.max(comes) + wake;
                    found = packets;
                }
            }
            if found > 0 {
                comes = self.now + answer;
            }
        }
    }
}

const MS: Duration = Duration::from_millis(1);
const US: Duration = Duration::from_micros(1);

#[test]
fn a_lone_request_after_the_other_is_looked_for() {
    let mut world = World::new();
    world.run(50 * MS, US, 4 * US, 6 * US, 1);
    (world.looks, world.sleeps) = (0, 0);
    world.run(1000 * MS, US, 4 * US, 6 * US, 1);
    assert!(
        world.sleeps * 20 < world.looks,
        "{} looks, {} sleeps",
        world.looks,
        world.sleeps
    );
}

#[test]
fn what_comes_in_numbers_is_slept_for() {
    let mut world = World::new();
    world.run(50 * MS, US, 4 * US, 6 * US, 20);
    (world.looks, world.sleeps) = (0, 0);
    world.run(1000 * MS, US, 4 * US, 6 * US, 20);
    assert!(
        world.looks * 20 < world.sleeps,
        "{} looks, {} sleeps",
        world.looks,
        world.sleeps
    );
}

#[test]
fn a_lone_request_is_looked_for_where_wake_ups_are_slow() {
    let mut world = World::new();
    // A wake-up on both sides: 9 packets in a millisecond.
    world.run(100 * MS, US, 4 * US, 106 * US, 1);
    (world.looks, world.sleeps) = (0, 0);
    world.run(1000 * MS, US, 4 * US, 106 * US, 1);
    assert!(
        world.sleeps * 20 < world.looks,
        "{} looks, {} sleeps",
        world.looks,
        world.sleeps
    );
}

#[test]
fn a_port_whose_wake_ups_are_shared_does_not_try_to_look() {
    let mut world = World::new();
    world.run(1000 * MS, US, 4 * US, 106 * US, 20);
    assert_eq!(world.looks, 0);
}

#[test]
fn little_traffic_is_never_looked_for() {
    let mut world = World::new();
    world.run(10_000 * MS, US, MS, 6 * US, 1);
    assert_eq!(world.looks, 0);
}

#[test]
fn a_change_of_traffic_changes_the_way() {
    let mut world = World::new();
    world.run(2000 * MS, US, 4 * US, 6 * US, 1);
    world.run(2000 * MS, US, 4 * US, 6 * US, 20);
    (world.looks, world.sleeps) = (0, 0);
    world.run(500 * MS, US, 4 * US, 6 * US, 20);
    assert!(
        world.looks * 20 < world.sleeps,
        "{} looks, {} sleeps",
        world.looks,
        world.sleeps
    );
}

#[test]
fn looks_end_when_nothing_comes_or_a_turn_takes_long() {
    let mut world = World::new();
    world.run(40 * MS, US, 4 * US, 6 * US, 1);
    let mut now = world.now;
    assert_eq!(world.looking.next(now, 1), Next::Look);
    let end = now + PATIENCE;
    while world.looking.next(now, 0) != Next::Arm {
        assert!(now < end, "looks on after {PATIENCE:?}");
        now += US;
    }
    assert_eq!(world.looking.next(now, 1), Next::Look);
    assert_eq!(world.looking.next(now + PROMPT, 0), Next::Arm);
}

#[test]
fn a_port_that_never_looks_sleeps_for_all() {
    let mut world = World::new();
    world.looking = Looking::new(world.now, true);
    world.run(100 * MS, US, 4 * US, 6 * US, 1);
    assert_eq!(world.looks, 0);
}
