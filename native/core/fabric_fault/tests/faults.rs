//! The faults that this fabric injects, and the guarantees that it must keep.

#[path = "../../fabric/tests/support/mod.rs"]
#[allow(dead_code, reason = "shared with the contract suite, which uses all of it")]
mod support;

use std::time::{Duration, Instant};

use inet_rdma_fabric::{Completion, FabricError, QueuePair};
use inet_rdma_fabric_fault::{Delay, FaultFabric, FaultPlan};
use inet_rdma_fabric_shm::ShmFabric;
use support::*;

fn fabric(plan: FaultPlan) -> FaultFabric<ShmFabric> {
    FaultFabric::new(ShmFabric, plan)
}

fn poll(queue_pair: &dyn QueuePair) -> Option<Completion> {
    let mut out = [Completion::Notice(NOTICE)];
    (queue_pair.poll(&mut out).expect("an honest peer") == 1).then_some(out[0])
}

/// Polls until there is a completion. Returns the number of polls without one, too.
fn polls_until(queue_pair: &dyn QueuePair) -> (u32, Completion) {
    for polls in 0..1_000 {
        if let Some(completion) = poll(queue_pair) {
            return (polls, completion);
        }
    }
    panic!("never delivered");
}

#[test]
fn a_delay_of_polls_is_as_long_as_said() {
    let plan = FaultPlan {
        delayed_controls: 1_000,
        delay: Delay::Polls(3..=3),
        ..FaultPlan::default()
    };
    let (client, server) = pair(&fabric(plan));
    for number in 0..10 {
        client.post_control(&numbered(number)).expect("room");
        assert_eq!(polls_until(&*server), (3, Completion::Control(numbered(number))));
    }
}

#[test]
fn only_what_the_plan_names_is_delayed() {
    let plan = FaultPlan {
        delayed_controls: 1_000,
        delay: Delay::Polls(2..=2),
        ..FaultPlan::default()
    };
    let (client, server) = pair(&fabric(plan));
    client
        .post(&[b"x"], server.memory().remote_address(0), notice(1))
        .expect("room");
    assert_eq!(polls_until(&*server), (0, Completion::Notice(notice(1))));
    client.post_control(&numbered(1)).expect("room");
    client
        .post(&[b"x"], server.memory().remote_address(0), notice(2))
        .expect("room");
    assert_eq!(polls_until(&*server), (2, Completion::Control(numbered(1))));
    assert_eq!(
        polls_until(&*server),
        (0, Completion::Notice(notice(2))),
        "it waited for the control"
    );
}

#[test]
fn delays_keep_the_order_of_a_direction() {
    let plan = FaultPlan {
        seed: 11,
        delayed_notices: 300,
        delayed_controls: 500,
        delay: Delay::Polls(1..=5),
        ..FaultPlan::default()
    };
    let (client, server) = pair(&fabric(plan));
    let mut sent = 0;
    let mut idle = 0;
    for got in 0..5_000u64 {
        while sent < got + 20 {
            if sent % 2 == 0 {
                client.post_control(&numbered(sent)).expect("room");
            } else {
                client
                    .post(&[b"x"], server.memory().remote_address(0), notice(sent as usize))
                    .expect("room");
            }
            sent += 1;
        }
        let (polls, completion) = polls_until(&*server);
        idle += polls;
        let expected = if got % 2 == 0 {
            Completion::Control(numbered(got))
        } else {
            Completion::Notice(notice(got as usize))
        };
        assert_eq!(completion, expected);
    }
    assert!(idle > 5_000, "hardly anything was delayed: {idle}");
}

#[test]
fn a_delayed_completion_keeps_its_slot() {
    let plan = FaultPlan {
        delayed_controls: 1_000,
        delay: Delay::Polls(50..=50),
        ..FaultPlan::default()
    };
    let (client, server) = pair(&fabric(plan));
    let slots = u64::from(client.remote_hello().receive_slots);
    (0..slots).for_each(|number| client.post_control(&numbered(number)).expect("room"));
    // One is held back in the wrapper, so one slot is free again, and only one, however often the server polls.
    (0..30).for_each(|_| assert_eq!(poll(&*server), None));
    client.post_control(&numbered(slots)).expect("one slot");
    assert!(matches!(client.post_control(&numbered(0)), Err(FabricError::QueueFull)));
}

#[test]
fn the_same_seed_gives_the_same_delays() {
    let delays = |seed| -> Vec<u32> {
        let delay = Delay::Polls(1..=9);
        let (client, server) = pair(&fabric(FaultPlan {
            seed,
            delayed_controls: 500,
            delay,
            ..FaultPlan::default()
        }));
        let delay_of = |number| {
            client.post_control(&numbered(number)).expect("room");
            polls_until(&*server).0
        };
        (0..100).map(delay_of).collect()
    };
    assert_eq!(delays(5), delays(5));
    assert_ne!(delays(5), delays(6));
}

#[test]
fn a_timed_delay_ends_with_an_event() {
    let time = Duration::from_millis(30);
    let plan = FaultPlan {
        delayed_controls: 1_000,
        delay: Delay::For(time..=time),
        ..FaultPlan::default()
    };
    let (client, server) = pair(&fabric(plan));
    for number in 0..5 {
        let posted = Instant::now();
        client.post_control(&numbered(number)).expect("room");
        assert_eq!(poll(&*server), None);
        assert!(server.arm().expect("an honest peer"), "it is not due yet");
        assert!(readable_within(server.event_fd(), BOUND), "the wake-up is lost");
        assert!(posted.elapsed() >= time);
        server.drain_event();
        assert!(!readable_within(server.event_fd(), Duration::ZERO));
        assert_eq!(poll(&*server), Some(Completion::Control(numbered(number))));
    }
}

#[test]
fn arming_fails_while_a_delay_counts_polls() {
    let plan = FaultPlan {
        delayed_controls: 1_000,
        delay: Delay::Polls(4..=4),
        ..FaultPlan::default()
    };
    let (client, server) = pair(&fabric(plan));
    client.post_control(&numbered(1)).expect("room");
    for _ in 0..4 {
        assert_eq!(poll(&*server), None);
        assert!(
            !server.arm().expect("an honest peer"),
            "who sleeps now never counts to four"
        );
    }
    assert_eq!(poll(&*server), Some(Completion::Control(numbered(1))));
    assert!(server.arm().expect("an honest peer"));
}

#[test]
fn a_stall_stops_all_and_loses_nothing() {
    let fabric = fabric(FaultPlan::default());
    let (client, server) = pair(&fabric);
    client.post_control(&numbered(0)).expect("room");
    fabric.stall().begin();
    client.post_control(&numbered(1)).expect("room");
    assert_eq!(poll(&*server), None);
    assert!(server.arm().expect("an honest peer"), "there is nothing to be had now");
    assert!(!readable_within(server.event_fd(), Duration::ZERO));
    assert!(server.check_alive().is_ok() && client.check_alive().is_ok());
    fabric.stall().end();
    assert!(
        readable_within(server.event_fd(), BOUND),
        "it sleeps through the end of the stall"
    );
    server.drain_event();
    assert!(!readable_within(server.event_fd(), Duration::ZERO));
    assert_eq!(poll(&*server), Some(Completion::Control(numbered(0))));
    assert_eq!(poll(&*server), Some(Completion::Control(numbered(1))));
}

#[test]
fn a_connection_is_dropped_after_its_posts() {
    let plan = FaultPlan {
        drop_after_posts: Some(3),
        ..FaultPlan::default()
    };
    let (client, server) = pair(&fabric(plan));
    (0..3).for_each(|number| client.post_control(&numbered(number)).expect("room"));
    assert!(server.check_alive().is_ok());
    assert!(matches!(client.post_control(&numbered(3)), Err(FabricError::PeerGone)));
    assert!(readable_within(server.liveness_fd(), BOUND));
    assert!(server.check_alive().is_err() && client.check_alive().is_err());
    (0..3).for_each(|number| assert_eq!(poll(&*server), Some(Completion::Control(numbered(number)))));
    assert_eq!(poll(&*server), None);
}

#[test]
fn the_room_to_write_can_be_small() {
    let plan = FaultPlan {
        write_room_max: Some(1_000),
        ..FaultPlan::default()
    };
    let (client, _server) = pair(&fabric(plan));
    assert_eq!(room_bytes(&*client), 1_000);
}

#[test]
fn distant_completions_come_in_order_and_wake_a_sleeping_side() {
    let plan = FaultPlan {
        distance: Duration::from_millis(2),
        ..FaultPlan::default()
    };
    let (client, server) = pair(&fabric(plan));
    let slots = u64::from(client.remote_hello().receive_slots);
    (0..slots).for_each(|number| client.post_control(&numbered(number)).expect("room"));
    let mut came = 0;
    while came < slots {
        match poll(&*server) {
            Some(completion) => {
                assert_eq!(completion, Completion::Control(numbered(came)));
                came += 1;
            }
            None if server.arm().expect("up") => {
                assert!(readable_within(server.event_fd(), BOUND), "the wake-up is lost");
                server.drain_event();
            }
            None => {}
        }
    }
    assert_eq!(poll(&*server), None);
}

#[test]
fn completions_under_way_arrive_before_the_end() {
    let plan = FaultPlan {
        distance: Duration::from_millis(2),
        ..FaultPlan::default()
    };
    let (client, server) = pair(&fabric(plan));
    client.post_control(&numbered(7)).expect("room");
    client.disconnect();
    let deadline = Instant::now() + BOUND;
    let arrived = std::iter::repeat_with(|| poll(&*server)).find(|found| found.is_some() || Instant::now() > deadline);
    assert_eq!(arrived.flatten(), Some(Completion::Control(numbered(7))));
}
