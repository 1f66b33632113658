//! Attempts to resume, in orders and with ends that a model of two honest nodes does not have.

use std::time::Duration;

use inet_rdma_paths::{Debt, Look, Path, State};
use inet_rdma_session::{Position, Standing, Violation};

use super::lone::{Lone, PLAIN, QUEUE};
use crate::{Connection, Fault, Loss, Notice, Reach, Resume, Work};

/// The time that an attempt has.
const ATTEMPT: Duration = Duration::from_secs(10);
const RESET: Loss = Loss::System(104);

/// The peer's standing in this attempt.
fn standing_of_peer(lone: &mut Lone, attempt: u64) -> Standing {
    lone.peer.suspend(attempt).expect("a newer attempt")
}

fn suspend(lone: &mut Lone, attempt: u64) -> Standing {
    lone.link.suspend(lone.now, attempt, Ok(())).expect("a newer attempt")
}

/// This side's attempt, up to the peer's standing.
fn attempt(lone: &mut Lone) -> (u64, Standing) {
    let number = lone.link.next_attempt();
    let _ours = suspend(lone, number);
    (number, standing_of_peer(lone, number))
}

#[test]
fn an_attempt_leads_to_another_connection_over_which_all_arrives() {
    let mut lone = Lone::new();
    lone.tcp = crate::TcpWritten::Blocked;
    lone.send();
    let _blocked = lone.work();
    lone.lose(RESET);
    assert_eq!(lone.work(), [Work::ResetTcp]);
    assert_eq!(lone.notices(), [Notice::Lost(RESET)]);
    lone.pass(Duration::from_secs(2));
    let (number, theirs) = attempt(&mut lone);
    assert_eq!(lone.link.resume(lone.now, number, theirs), Resume::Connects);
    lone.peer
        .resume(number, standing_after(&lone))
        .expect("the peer resumes");
    lone.tcp = crate::TcpWritten::All;
    lone.link.handle_resumed(lone.now, PLAIN);
    assert!(lone.work().contains(&Work::Transmit(Path::Tcp)));
    assert_eq!(lone.notices(), [Notice::Restored]);
    assert_eq!(lone.delivered, 1);
    let changes = lone.link.changes();
    assert_eq!((changes.losses, changes.resumes), (1, 1));
    assert_eq!(lone.link.suspended(lone.now), Duration::from_secs(2));
    lone.pass(Duration::from_secs(2));
    assert_eq!(
        lone.link.suspended(lone.now),
        Duration::from_secs(2),
        "a path carries it"
    );
}

/// What this side told in its attempt: nothing has arrived.
fn standing_after(lone: &Lone) -> Standing {
    Standing {
        received: lone.link.session().received(),
        path: None,
    }
}

#[test]
fn an_attempt_keeps_the_connection_that_it_gives_up_until_it_ends() {
    let mut lone = Lone::new();
    let (number, theirs) = attempt(&mut lone);
    assert_eq!(lone.work(), [], "the connection is neither reset nor closed");
    assert!(!lone.link.has_tcp());
    assert_eq!(lone.link.resume(lone.now, number, theirs), Resume::Connects);
    assert_eq!(lone.work(), [Work::DropSuperseded]);
}

#[test]
fn an_attempt_with_an_older_number_changes_nothing() {
    let mut lone = Lone::new();
    let (number, theirs) = attempt(&mut lone);
    assert!(!lone.link.is_newer(number));
    assert_eq!(lone.link.suspend(lone.now, number, Ok(())), None);
    assert_eq!(lone.link.resume(lone.now, number - 1, theirs), Resume::Outdated);
    assert_eq!(lone.link.resume(lone.now, number, theirs), Resume::Connects);
    assert_eq!(
        lone.link.resume(lone.now, number, theirs),
        Resume::Outdated,
        "it has resumed"
    );
}

#[test]
fn attempts_of_the_peer_are_accepted_and_own_ones_are_not() {
    let mut lone = Lone::new();
    let own = lone.link.next_attempt();
    let theirs = lone.peer.next_attempt();
    assert!(lone.link.accepts(theirs) && !lone.link.accepts(own));
    let _ours = suspend(&mut lone, theirs);
    assert!(!lone.link.accepts(theirs), "it has come");
}

#[test]
fn a_failed_attempt_is_told_as_the_loss_that_was_before_it() {
    let mut lone = Lone::new();
    lone.lose(RESET);
    let (number, _theirs) = attempt(&mut lone);
    let _lost = (lone.work(), lone.notices());
    lone.link.abandon(number);
    assert_eq!(lone.work(), [Work::DropSuperseded]);
    assert_eq!(lone.notices(), [Notice::Lost(RESET)]);
    lone.link.abandon(number);
    assert_eq!(lone.work(), [], "it has failed already");
}

#[test]
fn a_failed_attempt_is_not_told_while_a_newer_one_is_under_way() {
    let mut lone = Lone::new();
    let first = lone.peer.next_attempt();
    let _ours = suspend(&mut lone, first);
    let second = lone.link.next_attempt();
    let _ours = suspend(&mut lone, second);
    let _changed = lone.notices();
    lone.link.abandon(first);
    assert_eq!((lone.work(), lone.notices()), (vec![], vec![]));
    lone.link.abandon(second);
    assert_eq!(lone.notices(), [Notice::Lost(Loss::Superseded)]);
}

#[test]
fn a_guard_that_ends_its_attempts_abandons_its_own_alone() {
    let mut lone = Lone::new();
    lone.link.abandon_own();
    assert_eq!(lone.notices(), [], "there is no attempt");
    let theirs = lone.peer.next_attempt();
    let _ours = suspend(&mut lone, theirs);
    let _changed = lone.notices();
    lone.link.abandon_own();
    assert_eq!(lone.notices(), [], "it is the peer's");
    let own = lone.link.next_attempt();
    let _ours = suspend(&mut lone, own);
    let _changed = lone.notices();
    lone.link.abandon_own();
    assert_eq!(lone.notices(), [Notice::Lost(Loss::Superseded)]);
}

#[test]
fn an_attempt_has_a_time_from_its_begin_and_none_behind_its_end() {
    let mut lone = Lone::new();
    let (number, theirs) = attempt(&mut lone);
    assert_eq!(lone.link.poll_timeout(), Some(lone.now + ATTEMPT));
    assert_eq!(lone.link.resume(lone.now, number, theirs), Resume::Connects);
    assert_eq!(lone.link.poll_timeout(), None);
    let _dropped = (lone.work(), lone.notices());
    lone.pass(ATTEMPT);
    lone.link.handle_timeout(lone.now);
    assert_eq!(lone.notices(), []);
}

#[test]
fn what_the_given_up_connection_has_brought_is_not_sent_again() {
    let mut lone = Lone::new();
    lone.peer_sends(1);
    let frames = lone.frames();
    lone.input(&frames);
    let number = lone.link.next_attempt();
    let ours = suspend(&mut lone, number);
    assert_eq!((lone.received, ours.received), (1, lone.link.session().received()));
    assert_ne!(ours.received, Position(0));
}

#[test]
fn messages_in_the_last_read_are_told_and_an_end_ends_the_link_behind_the_attempt() {
    let mut lone = Lone::new();
    lone.peer.control(vec![1, 2]);
    lone.peer.end();
    let frames = lone.frames();
    lone.input(&frames);
    let number = lone.link.next_attempt();
    let _ours = suspend(&mut lone, number);
    assert_eq!(lone.notices()[..2], [Notice::Message(vec![1, 2]), Notice::PeerClosed]);
    assert!(
        !lone.link.is_over() && lone.link.is_ending(),
        "the caller has the attempt in its hands"
    );
    assert!(lone.link.is_started());
    lone.link.handle_timeout(lone.now);
    assert!(lone.link.is_over());
}

#[test]
fn a_last_read_that_breaks_a_rule_ends_the_link_behind_the_attempt() {
    let faults = [
        (
            Fault::Violation(Violation::Move),
            Notice::PeerMisbehaved(Violation::Move.to_string()),
        ),
        (
            Fault::Misbehaved(&"plain bytes"),
            Notice::PeerMisbehaved("plain bytes".into()),
        ),
    ];
    for (fault, notice) in faults {
        let mut lone = Lone::new();
        let number = lone.link.next_attempt();
        assert!(lone.link.suspend(lone.now, number, Err(fault)).is_some());
        assert_eq!(lone.notices()[0], notice);
        assert!(!lone.link.is_over());
        lone.link.handle_timeout(lone.now);
        assert!(lone.link.is_over());
    }
}

#[test]
fn damage_in_the_last_read_is_counted_and_bytes_that_were_lost_with_it_are_not_told() {
    for (fault, damages) in [(Fault::Damaged(&"a tag"), 1), (Fault::Lost(RESET), 0)] {
        let mut lone = Lone::new();
        let number = lone.link.next_attempt();
        assert!(lone.link.suspend(lone.now, number, Err(fault)).is_some());
        assert_eq!(lone.link.damages(), damages);
        assert_eq!(lone.notices(), [Notice::Changed]);
        assert!(!lone.link.is_ending());
    }
}

#[test]
fn a_queue_pair_that_both_sides_name_carries_on() {
    let mut lone = Lone::on_queue(true);
    let number = lone.link.next_attempt();
    assert_eq!(suspend(&mut lone, number).path, Some(QUEUE));
    let theirs = standing_of_peer(&mut lone, number);
    assert_eq!(lone.link.resume(lone.now, number, theirs), Resume::Connects);
    lone.link.handle_resumed(lone.now, PLAIN);
    assert!(!lone.work().contains(&Work::CloseQueue));
    assert!(lone.link.is_sent_by_queue() && lone.link.reads_queue());
}

#[test]
fn a_suspected_queue_pair_is_given_up_with_the_connection() {
    let mut lone = Lone::on_queue(true);
    lone.link.hold_writes(lone.now);
    let number = lone.link.next_attempt();
    assert_eq!(suspend(&mut lone, number).path, None);
    assert!(!lone.link.reads_queue(), "the attempt gives it up");
}

#[test]
fn a_used_queue_pair_is_kept_until_the_peer_has_resumed_without_it() {
    let mut lone = Lone::on_queue(true);
    let number = lone.link.next_attempt();
    let _ours = suspend(&mut lone, number);
    let theirs = Standing {
        path: None,
        ..standing_of_peer(&mut lone, number)
    };
    assert_eq!(lone.link.resume(lone.now, number, theirs), Resume::Connects);
    lone.peer
        .resume(number, standing_after(&lone))
        .expect("the peer resumes");
    lone.link.handle_resumed(lone.now, PLAIN);
    let work = lone.work();
    assert!(work.contains(&Work::RetireQueue), "{work:?}");
    assert!(
        !work.contains(&Work::CloseRetired) && !work.contains(&Work::CloseQueue),
        "{work:?}"
    );
    lone.read();
    assert_eq!(lone.work()[0], Work::CloseRetired);
    lone.read();
    assert!(!lone.work().contains(&Work::CloseRetired), "once");
}

#[test]
fn a_queue_pair_that_one_side_alone_uses_is_kept_for_the_attempt_too() {
    let peer_moved = || {
        let mut lone = Lone::new();
        lone.link.add_queue(QUEUE, true);
        lone.peer.add_path(QUEUE, true);
        assert!(lone.peer.move_to_queue());
        lone.read();
        lone
    };
    for mut lone in [Lone::moved(true), peer_moved()] {
        let (number, theirs) = attempt(&mut lone);
        let _none = lone.work();
        let theirs = Standing { path: None, ..theirs };
        assert_eq!(lone.link.resume(lone.now, number, theirs), Resume::Connects);
        assert_eq!(lone.work(), [Work::DropSuperseded, Work::RetireQueue]);
    }
}

#[test]
fn an_unused_queue_pair_that_the_peer_lacks_is_closed_at_once() {
    let mut lone = Lone::new();
    lone.link.add_queue(QUEUE, true);
    let (number, theirs) = attempt(&mut lone);
    let _none = lone.work();
    assert_eq!(lone.link.resume(lone.now, number, theirs), Resume::Connects);
    assert_eq!(lone.work(), [Work::DropSuperseded, Work::CloseQueue]);
    lone.link.handle_resumed(lone.now, PLAIN);
    lone.read();
    assert!(!lone.work().contains(&Work::CloseRetired), "none was kept");
}

#[test]
fn a_queue_pair_that_is_lost_or_suspected_during_the_attempt_needs_another_attempt() {
    for is_lost in [true, false] {
        let mut lone = Lone::on_queue(true);
        let (number, theirs) = attempt(&mut lone);
        if is_lost {
            lone.link.handle_queue_end(lone.now, crate::QueueEnd::Lost);
        } else {
            lone.link.hold_writes(lone.now);
        }
        let _lost = (lone.work(), lone.notices());
        assert_eq!(lone.link.resume(lone.now, number, theirs), Resume::Reset);
        let kept = if is_lost { None } else { Some(Work::RetireQueue) };
        let work = [Some(Work::DropSuperseded), kept];
        assert_eq!(lone.work(), work.into_iter().flatten().collect::<Vec<_>>());
        assert_eq!(lone.notices(), [Notice::Lost(Loss::QueuePair)]);
        assert!(!lone.link.has_tcp());
    }
}

#[test]
fn positions_that_contradict_each_other_end_the_link() {
    let mut lone = Lone::new();
    let (number, theirs) = attempt(&mut lone);
    let theirs = Standing {
        received: Position(1),
        ..theirs
    };
    let _changed = lone.notices();
    assert_eq!(lone.link.resume(lone.now, number, theirs), Resume::Refused);
    assert!(matches!(lone.notices()[..], [Notice::RolledBack(_)]));
    assert!(lone.link.is_over());
    assert!(lone.link.session_mut().poll_transmit(), "the peer is told");
}

#[test]
fn a_connection_that_this_side_cannot_have_is_told_as_its_loss() {
    let mut lone = Lone::new();
    let (number, theirs) = attempt(&mut lone);
    let _changed = lone.notices();
    assert_eq!(lone.link.resume(lone.now, number, theirs), Resume::Connects);
    lone.link.handle_not_resumed(Loss::SystemLimit);
    assert_eq!(lone.notices(), [Notice::Lost(Loss::SystemLimit)]);
    let number = lone.link.standing().number;
    assert_eq!(lone.link.state().state, State::Suspended);
    // A guard that begins afterwards is told the same.
    lone.link.watch();
    assert!(lone.notices().contains(&Notice::Lost(Loss::SystemLimit)));
    assert!(
        !lone.link.is_current(number),
        "nothing holds that was decided before a loss is told"
    );
}

#[test]
fn a_connection_within_one_host_or_rack_has_a_smaller_window() {
    for (reach, window) in [
        (Reach::Loopback, 640 << 10),
        (Reach::Near, 1 << 20),
        (Reach::Far, 4 << 20),
    ] {
        let mut lone = Lone::settling(Connection { reach, ..PLAIN });
        lone.sizes = vec![1 << 20];
        lone.start();
        (0..5).for_each(|_| lone.send());
        let _written = lone.work();
        let left = 5 * ((1 << 20) + 4) - lone.link.session().tcp_bytes();
        assert_eq!(left, window);
    }
}

#[test]
fn an_answer_to_a_look_at_a_path_that_is_gone_changes_nothing() {
    let mut lone = Lone::new();
    lone.lose(RESET);
    let _lost = (lone.work(), lone.notices());
    let owed = Debt::Owed {
        owed: Duration::from_secs(60),
        due: Duration::ZERO,
    };
    let look = Look {
        debt: owed,
        ..super::lone::ANSWERED
    };
    lone.link.handle_look(Path::Tcp, lone.now, look);
    assert_eq!(lone.notices(), []);
}
