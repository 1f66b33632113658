//! Queue pairs that come and go, and returns to the TCP connection.

use std::time::Duration;

use inet_rdma_paths::{CarryingPath, EARNED_PACKETS, Path, State};

use inet_rdma_session::Role;

use super::exploration::small;
use super::lone::{Lone, PLAIN, QUEUE};
use super::world::{Action, Setup, World};
use crate::{Loss, Notice, QueueEnd, Work};

#[test]
fn a_queue_pair_that_lives_as_long_as_the_peer_is_never_suspected() {
    for (can_be_lost, is_suspected) in [(true, true), (false, false)] {
        let mut lone = Lone::on_queue(can_be_lost);
        lone.link.hold_writes(lone.now);
        assert_eq!(lone.link.paths().is_suspected(Path::QueuePair), is_suspected);
        assert_eq!(lone.link.state().path, CarryingPath::QueuePair);
    }
}

#[test]
fn a_begin_on_a_queue_pair_is_one_move_and_earns_no_other() {
    let mut lone = Lone::settling(PLAIN);
    lone.link.add_queue(QUEUE, true);
    lone.link.begin_on_queue();
    lone.link.begin_on_queue();
    assert_eq!(lone.link.changes().moves, 1);
    lone.start();
    lone.link.handle_queue_end(lone.now, QueueEnd::Lost);
    for _ in 0..100 {
        lone.send();
    }
    assert!(
        !lone.notices().contains(&Notice::Earned),
        "the guard's timers begin the next settlement"
    );
}

#[test]
fn a_move_that_is_not_possible_changes_nothing() {
    let mut lone = Lone::new();
    assert!(!lone.link.move_to_queue(), "there is none");
    lone.link.add_queue(QUEUE, true);
    lone.peer.add_path(QUEUE, true);
    assert!(lone.link.move_to_queue());
    assert!(!lone.link.move_to_queue(), "it has moved");
    assert!(lone.link.is_sent_by_queue() && !lone.link.reads_queue());
}

#[test]
fn each_change_of_the_path_counts_up_and_refuses_decisions_on_the_one_before() {
    let mut lone = Lone::new();
    let number = lone.link.standing().number;
    assert_eq!(lone.link.standing().number, number, "nothing has changed");
    lone.link.add_queue(QUEUE, true);
    assert!(lone.link.is_current(number), "it does not carry yet");
    assert!(lone.link.move_to_queue());
    assert!(!lone.link.is_current(number));
    assert_eq!(lone.link.standing().number, number + 1);
    lone.link.hold_writes(lone.now);
    assert_eq!(lone.link.standing().number, number + 2);
}

#[test]
fn a_move_of_the_peer_is_told_and_its_queue_pair_is_read() {
    let mut lone = Lone::new();
    lone.link.add_queue(QUEUE, true);
    lone.peer.add_path(QUEUE, true);
    assert!(lone.peer.move_to_queue());
    assert!(!lone.link.reads_queue());
    lone.read();
    assert_eq!((lone.notices(), lone.link.changes().moves), (vec![Notice::Moved], 1));
    assert!(lone.link.reads_queue() && !lone.link.is_sent_by_queue());
}

#[test]
fn a_queue_pair_is_not_read_before_the_start() {
    let mut lone = Lone::settling(PLAIN);
    lone.link.add_queue(QUEUE, true);
    lone.link.begin_on_queue();
    assert!(!lone.link.reads_queue());
    lone.link.start();
    assert!(lone.link.reads_queue());
}

#[test]
fn a_queue_pair_that_carries_is_not_dropped_as_unused() {
    let mut lone = Lone::on_queue(true);
    lone.link.drop_unused_queue(lone.now);
    assert_eq!((lone.work(), lone.notices()), (vec![], vec![]));
    assert!(lone.link.has_writable_queue());
}

#[test]
fn a_drop_of_the_queue_pair_to_which_the_peer_has_moved_costs_the_connection() {
    let mut lone = Lone::new();
    lone.link.add_queue(QUEUE, true);
    lone.peer.add_path(QUEUE, true);
    assert!(lone.peer.move_to_queue());
    lone.read();
    let _moved = (lone.work(), lone.notices());
    lone.link.drop_unused_queue(lone.now);
    assert_eq!(lone.work(), [Work::CloseQueue, Work::ResetTcp]);
    assert_eq!(lone.notices(), [Notice::Lost(Loss::QueuePair)]);
}

#[test]
fn a_settlement_that_ends_after_the_loss_of_the_queue_pair_that_carried_tells_it_again() {
    let mut lone = Lone::on_queue(true);
    lone.link.handle_queue_end(lone.now, QueueEnd::Lost);
    let _lost = (lone.work(), lone.notices());
    lone.link.drop_unused_queue(lone.now);
    assert_eq!(lone.work(), []);
    assert_eq!(lone.notices(), [Notice::Lost(Loss::QueuePair)]);
}

#[test]
fn a_suspected_queue_pair_that_is_dropped_while_tcp_is_suspected_too_is_not_told_as_trusted() {
    let mut lone = Lone::new();
    lone.link.add_queue(QUEUE, true);
    lone.link.hold_writes(lone.now);
    let _suspected = lone.notices();
    lone.link.drop_unused_queue(lone.now);
    assert_eq!(lone.work(), [Work::CloseQueue]);
    assert_eq!(lone.notices(), [], "TCP is suspected still");
}

#[test]
fn an_unsuspected_queue_pair_is_dropped_without_a_notice() {
    let mut lone = Lone::new();
    lone.link.add_queue(QUEUE, true);
    lone.link.drop_unused_queue(lone.now);
    assert_eq!(lone.work(), [Work::CloseQueue]);
    assert_eq!(lone.notices(), []);
}

#[test]
fn a_suspected_queue_pair_that_is_dropped_without_a_connection_is_not_told_as_trusted() {
    let mut lone = Lone::new();
    lone.link.add_queue(QUEUE, true);
    lone.link.hold_writes(lone.now);
    lone.lose(Loss::Closed);
    let _lost = (lone.work(), lone.notices());
    lone.link.drop_unused_queue(lone.now);
    assert_eq!((lone.work(), lone.notices()), (vec![Work::CloseQueue], vec![]));
}

#[test]
fn a_link_that_a_queue_pair_carries_is_not_suspended_without_a_connection() {
    for (mut lone, suspended) in [
        (Lone::on_queue(true), Duration::ZERO),
        (Lone::new(), Duration::from_secs(1)),
    ] {
        lone.link.add_queue(QUEUE, true);
        lone.lose(Loss::Closed);
        lone.pass(Duration::from_secs(1));
        assert_eq!(lone.link.suspended(lone.now), suspended);
    }
}

#[test]
fn a_return_is_told_when_the_peer_has_returned_too() {
    let mut lone = Lone::on_queue(true);
    assert!(lone.link.return_to_tcp());
    assert_eq!(lone.work(), [Work::Transmit(Path::Tcp)]);
    assert_eq!(
        lone.notices(),
        [Notice::Changed],
        "the peer still sends over the queue pair"
    );
    assert!(lone.peer.return_to_tcp());
    lone.read();
    assert_eq!(lone.notices(), [Notice::Returned]);
    assert_eq!(lone.work()[0], Work::CloseQueue);
}

#[test]
fn the_acceptor_follows_the_initiator_back_and_waits_for_it_to_close_the_queue_pair() {
    let mut lone = Lone::on_queue_of_role(Role::Acceptor, true);
    assert!(lone.peer.return_to_tcp());
    lone.read();
    assert_eq!(lone.notices(), [], "it has not followed yet");
    assert!(lone.link.has_output());
    let work = lone.work();
    assert!(
        !lone.link.is_sent_by_queue() && !work.contains(&Work::CloseQueue),
        "{work:?}"
    );
    assert_eq!(lone.notices(), [Notice::Returned]);
    lone.link.handle_queue_end(lone.now, QueueEnd::Closed);
    assert_eq!((lone.work(), lone.notices()), (vec![Work::CloseQueue], vec![]));
    assert!(!lone.link.is_over(), "the initiator has closed it in order");
}

#[test]
fn the_acceptor_follows_only_over_a_connection() {
    let mut lone = Lone::on_queue_of_role(Role::Acceptor, true);
    assert!(lone.peer.return_to_tcp());
    lone.read();
    lone.lose(Loss::Closed);
    assert_eq!(lone.work(), [Work::ResetTcp]);
    assert!(lone.link.is_sent_by_queue());
    let _lost = lone.notices();
    assert!(!lone.link.has_output());
}

/// Both sides on a queue pair, on which nothing is under way and all is acknowledged over TCP.
fn acknowledged(can_be_lost: bool) -> (Setup, World) {
    let setup = Setup {
        begins_on_queue: true,
        can_be_lost,
        ring_bytes: 100_000,
        ..small()
    };
    let mut world = World::new(&setup).expect("no promise is broken");
    both(&mut world, &setup, |side| Action::Send { side });
    both(&mut world, &setup, |side| Action::ReadQueue { side });
    both(&mut world, &setup, |side| Action::Tick { side });
    exchange(&mut world, &setup);
    (setup, world)
}

fn both(world: &mut World, setup: &Setup, action: impl Fn(usize) -> Action) {
    for side in 0..2 {
        world.step(setup, action(side)).expect("no promise is broken");
    }
}

/// All that is on its way over TCP arrives.
fn exchange(world: &mut World, setup: &Setup) {
    for _ in 0..3 {
        both(world, setup, |from| Action::Deliver { from, bytes: 100_000 });
        both(world, setup, |side| Action::Read { side });
    }
}

#[test]
fn a_return_moves_both_sides_and_closes_the_queue_pair_without_a_loss() {
    for can_be_lost in [false, true] {
        let (setup, mut world) = acknowledged(can_be_lost);
        assert_eq!(
            world.step(&setup, Action::Return { side: 1 }),
            Ok(false),
            "the initiator begins"
        );
        assert_eq!(world.step(&setup, Action::Return { side: 0 }), Ok(true));
        exchange(&mut world, &setup);
        both(&mut world, &setup, |side| Action::Tick { side });
        exchange(&mut world, &setup);
        both(&mut world, &setup, |side| Action::ReadQueue { side });
        for side in &world.sides {
            let state = side.link.state();
            assert_eq!((state.state, state.path), (State::Carried, CarryingPath::Tcp));
            assert_eq!((side.queue, side.link.changes().losses), (None, 0));
        }
    }
}

#[test]
fn a_link_that_has_returned_earns_its_next_queue_pair_by_later_traffic() {
    let (setup, mut world) = acknowledged(true);
    assert_eq!(world.step(&setup, Action::Return { side: 0 }), Ok(true));
    exchange(&mut world, &setup);
    both(&mut world, &setup, |side| Action::Tick { side });
    exchange(&mut world, &setup);
    let link = &mut world.sides[0].link;
    let earned = |link: &mut crate::Link<_, _>| {
        let notices = std::iter::from_fn(|| link.poll_notice());
        notices.filter(|(notice, _)| *notice == Notice::Earned).count()
    };
    for _ in 1..EARNED_PACKETS {
        let _waits = link.append_for_tcp(0, |_log| {});
    }
    assert_eq!(earned(link), 0);
    let _waits = link.append_for_tcp(0, |_log| {});
    assert_eq!(earned(link), 1);
}

#[test]
fn a_return_waits_for_the_peers_word_that_all_has_arrived() {
    let mut lone = Lone::on_queue(true);
    lone.send_by_queue();
    let _written = lone.work();
    assert!(!lone.link.return_to_tcp());
    lone.lose(Loss::Closed);
    lone.link.handle_queue_read(1000);
    assert!(!lone.link.return_to_tcp(), "there is no connection to go back to");
    lone.pass(Duration::from_secs(1));
}
