//! Single cases that the explorations do not reach.

use std::time::Duration;

use super::exploration::small;
use super::side::{Known, start};
use super::world::{Action, Setup, World};
use crate::tcp::Tcp;
use crate::{Loss, Notice};

#[test]
fn an_attempt_that_never_ends_is_told_as_a_loss() {
    let setup = small();
    let mut world = World::new(&setup).expect("no promise is broken");
    let link = &mut world.sides[0].link;
    let attempt = link.next_attempt();
    link.suspend(start(), attempt, Ok(())).expect("the first attempt");
    assert!(link.tcp.attempt_until().is_some());
    let until = link.poll_timeout().expect("the attempt has a deadline");
    link.handle_timeout(until - Duration::from_millis(1));
    assert!(link.poll_notice().is_some_and(|(notice, _)| notice == Notice::Changed));
    assert!(link.poll_notice().is_none());
    link.handle_timeout(until);
    let notice = link.poll_notice().map(|(notice, _)| notice);
    assert_eq!(notice, Some(Notice::Lost(Loss::Superseded)));
    assert!(matches!(link.tcp, Tcp::Absent { .. }));
}

#[test]
fn a_decision_on_an_old_standing_does_not_hold() {
    let setup = small();
    let mut world = World::new(&setup).expect("no promise is broken");
    let number = world.sides[0].link.standing().number;
    assert!(world.sides[0].link.is_current(number));
    world
        .step(&setup, Action::Reset { side: 0 })
        .expect("no promise is broken");
    world
        .step(&setup, Action::Read { side: 0 })
        .expect("no promise is broken");
    assert!(!world.sides[0].link.is_current(number));
}

#[test]
fn a_writer_that_waits_for_room_goes_on_asking() {
    let setup = Setup {
        begins_on_queue: true,
        ..small()
    };
    let mut world = World::new(&setup).expect("no promise is broken");
    let (send, timer) = (Action::Send { side: 0 }, Action::Timer { side: 0 });
    for action in [send, send, send, Action::Pass, timer, Action::Pass, timer] {
        assert_eq!(world.step(&setup, action), Ok(true), "{action:?}");
    }
    assert!(world.sides[0].link.unsent_bytes() > 0, "the ring is full");
    assert!(world.sides[0].link.poll_timeout().is_some(), "no event may follow");
    world.step(&setup, Action::CutQueue).expect("no promise is broken");
    assert_eq!(world.end_fairly(&setup, &mut Known::new()), Ok(()));
}

#[test]
fn a_suspected_queue_pair_that_is_dropped_unused_is_told_as_trusted() {
    let setup = small();
    let mut world = World::new(&setup).expect("no promise is broken");
    for action in [
        Action::Settle,
        Action::AddQueue { side: 0 },
        Action::Stop { side: 0 },
        Action::Tick { side: 1 },
        Action::Continue { side: 0 },
        Action::Pass,
        Action::Timer { side: 0 },
    ] {
        assert_eq!(world.step(&setup, action), Ok(true), "{action:?}");
    }
    assert!(world.sides[0].guard.dials, "the queue pair is suspected");
    assert_eq!(world.step(&setup, Action::DropQueue { side: 0 }), Ok(true));
    assert!(!world.sides[0].guard.dials);
}
