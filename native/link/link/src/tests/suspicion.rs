//! Paths that owe answers, and what the link does over them meanwhile.

use std::time::Duration;

use inet_rdma_paths::{Debt, Look, Path, State};

use super::lone::{ANSWERED, Lone, PATIENCE, PLAIN, QUEUE};
use crate::{Connection, Loss, Notice, Work};

const TO_TCP: Work = Work::Transmit(Path::Tcp);
const LOOK: Work = Work::Look(Path::Tcp);
const MILLISECOND: Duration = Duration::from_millis(1);

fn owed(time: Duration) -> Look {
    Look {
        heard: time,
        answered: time,
        debt: Debt::Owed {
            owed: time,
            due: Duration::ZERO,
        },
    }
}

/// The time of the next timer comes.
fn wait(lone: &mut Lone) {
    lone.now = lone.link.poll_timeout().expect("a timer");
    lone.link.handle_timeout(lone.now);
}

#[test]
fn a_write_without_an_answer_is_suspected_in_time_and_trusted_when_one_comes() {
    let mut lone = Lone::new();
    lone.send();
    let _written = lone.work();
    lone.pass(PATIENCE - MILLISECOND);
    lone.link.handle_timeout(lone.now);
    assert_eq!(lone.work(), [], "too early");
    lone.pass(MILLISECOND);
    lone.look = Some(owed(PATIENCE));
    lone.link.handle_timeout(lone.now);
    assert_eq!(lone.work(), [LOOK]);
    assert_eq!(lone.notices(), [Notice::Suspected]);
    assert_eq!(lone.link.state().state, State::Suspected);
    assert!(lone.link.has_writable_tcp(), "it is not held");
    lone.look = Some(ANSWERED);
    lone.read();
    assert_eq!(lone.work(), [LOOK], "something has come");
    assert_eq!(lone.notices(), [Notice::Trusted]);
}

#[test]
fn a_link_without_patience_looks_at_nothing() {
    let mut lone = Lone::new();
    lone.link.set_patience(None);
    lone.send();
    let _written = lone.work();
    assert_eq!(lone.link.poll_timeout(), None);
    lone.link.handle_packets(lone.now);
    assert_eq!(lone.link.poll_timeout(), None);
}

#[test]
fn before_the_start_no_path_is_suspected() {
    let mut lone = Lone::settling(PLAIN);
    lone.link.hold_writes(lone.now);
    assert!(!lone.link.is_held(Path::Tcp));
    assert_eq!(lone.notices(), [Notice::Changed], "the guard's first");
}

#[test]
fn a_node_that_stood_still_writes_nothing_until_the_path_has_answered() {
    let mut lone = Lone::new();
    lone.link.hold_writes(lone.now);
    assert_eq!(lone.notices(), [Notice::Suspected]);
    assert!(lone.link.is_held(Path::Tcp) && !lone.link.has_writable_tcp() && lone.link.has_tcp());
    lone.send();
    lone.link.request_transmission();
    assert_eq!(lone.work(), []);
    lone.pass(PATIENCE);
    lone.link.handle_timeout(lone.now);
    assert_eq!(lone.work(), [LOOK, TO_TCP]);
    assert_eq!(lone.notices(), [Notice::Trusted]);
    assert_eq!((lone.delivered, lone.link.has_writable_tcp()), (1, true));
}

#[test]
fn a_sealed_connection_that_was_held_is_replaced_though_it_answers() {
    let mut lone = Lone::settling(Connection {
        is_sealed: true,
        ..PLAIN
    });
    lone.start();
    lone.link.hold_writes(lone.now);
    let _suspected = lone.notices();
    lone.pass(PATIENCE);
    lone.link.handle_timeout(lone.now);
    assert_eq!(lone.work(), [LOOK, Work::ResetTcp]);
    assert_eq!(lone.notices(), [Notice::Lost(Loss::Woke)], "and no word of trust");
}

#[test]
fn a_sealed_connection_that_was_not_held_is_kept() {
    let mut lone = Lone::settling(Connection {
        is_sealed: true,
        ..PLAIN
    });
    lone.start();
    lone.send();
    let _written = lone.work();
    lone.look = Some(owed(PATIENCE));
    wait(&mut lone);
    let _suspected = (lone.work(), lone.notices());
    lone.look = Some(ANSWERED);
    wait(&mut lone);
    assert_eq!(lone.work(), [LOOK]);
    assert_eq!(lone.notices(), [Notice::Trusted]);
}

#[test]
fn a_side_that_only_reads_asks_once_when_the_peer_falls_silent() {
    let mut lone = Lone::new();
    lone.link.handle_packets(lone.now);
    let at = lone.link.poll_timeout().expect("a window");
    assert_eq!(at, lone.now + PATIENCE);
    lone.link.handle_timeout(at - MILLISECOND);
    assert_eq!(lone.work(), []);
    lone.now = at;
    lone.link.handle_timeout(at);
    assert_eq!(lone.work(), [TO_TCP]);
    assert_eq!(lone.peer.counts().ticks, 1);
    assert_eq!(lone.link.poll_timeout(), Some(at + PATIENCE), "an answer is owed");
    lone.look = Some(owed(PATIENCE));
    wait(&mut lone);
    assert_eq!(lone.work(), [LOOK]);
    assert_eq!(lone.notices(), [Notice::Suspected]);
    wait(&mut lone);
    assert_eq!((lone.work(), lone.peer.counts().ticks), (vec![LOOK], 1), "once");
}

#[test]
fn a_peer_that_goes_on_sending_is_not_asked() {
    let mut lone = Lone::new();
    lone.link.handle_packets(lone.now);
    lone.link.handle_packets(lone.now);
    wait(&mut lone);
    assert_eq!(lone.work(), []);
    assert_eq!(lone.link.poll_timeout(), Some(lone.now + PATIENCE), "the next window");
}

#[test]
fn a_silent_peer_is_not_asked_while_an_answer_is_owed_or_a_queue_pair_carries() {
    let mut lone = Lone::new();
    lone.link.handle_packets(lone.now);
    lone.send();
    let _written = lone.work();
    lone.look = Some(owed(Duration::ZERO));
    wait(&mut lone);
    assert_eq!(lone.work(), [LOOK]);
    assert_eq!(lone.peer.counts().ticks, 0);
    let mut lone = Lone::on_queue(true);
    lone.link.handle_packets(lone.now);
    wait(&mut lone);
    assert_eq!(lone.work(), []);
}

#[test]
fn a_link_that_is_about_to_end_does_not_ask_a_silent_peer() {
    let mut lone = Lone::new();
    lone.link.handle_packets(lone.now);
    lone.link.end_at(lone.now + 60 * PATIENCE);
    lone.pass(PATIENCE);
    lone.link.handle_timeout(lone.now);
    assert_eq!(lone.work(), []);
}

#[test]
fn a_write_behind_a_tick_looks_first_at_what_the_tick_found() {
    let mut lone = Lone::new();
    lone.link.tick(lone.now);
    assert_eq!(lone.work(), [TO_TCP]);
    lone.look = Some(owed(PATIENCE));
    lone.send();
    assert_eq!(lone.work(), [LOOK, TO_TCP]);
    assert_eq!(lone.notices(), [Notice::Suspected]);
}

#[test]
fn a_look_that_finds_the_end_of_the_connection_is_not_repeated_before_the_write() {
    let mut lone = Lone::new();
    lone.link.tick(lone.now);
    let _ticked = lone.work();
    lone.look = Some(Look {
        debt: Debt::Ended,
        ..ANSWERED
    });
    lone.send();
    assert_eq!(lone.work(), [LOOK, TO_TCP], "the write finds the end");
}

#[test]
fn a_tick_behind_a_tick_looks_first() {
    let mut lone = Lone::on_queue(true);
    lone.link.tick(lone.now);
    let _ticked = lone.work();
    lone.link.look_before_tick();
    assert_eq!(lone.work(), [LOOK, Work::Look(Path::QueuePair)]);
    lone.link.look_before_tick();
    assert_eq!(lone.work(), [], "both have answered");
}

#[test]
fn a_write_to_a_queue_pair_asks_its_device_once_until_it_has_answered() {
    let mut lone = Lone::on_queue(true);
    lone.look = None;
    assert!(lone.link.wants_data_written(Path::QueuePair));
    lone.send_by_queue();
    assert!(lone.work().contains(&Work::Ask));
    assert!(!lone.link.wants_data_written(Path::QueuePair));
    lone.send_by_queue();
    assert!(!lone.work().contains(&Work::Ask), "an answer is owed already");
    let mut exempt = Lone::on_queue(false);
    exempt.send_by_queue();
    assert!(!exempt.work().contains(&Work::Ask));
}

#[test]
fn a_writer_that_waits_for_room_has_its_queue_pair_looked_at_again() {
    let mut lone = Lone::on_queue(true);
    lone.queue_room = 10;
    lone.send_by_queue();
    let _blocked = lone.work();
    wait(&mut lone);
    assert_eq!(lone.work(), [Work::Look(Path::QueuePair), Work::Ask]);
    assert!(
        lone.link.poll_timeout().is_some(),
        "the peer's word of room may be lost"
    );
    lone.queue_room = usize::MAX;
    lone.link.handle_queue_packets(lone.now, 0, true);
    let _written = lone.work();
    wait(&mut lone);
    assert_eq!(lone.work(), [Work::Look(Path::QueuePair)]);
    assert_eq!(lone.link.poll_timeout(), None, "nothing waits");
}

#[test]
fn packets_of_a_suspected_queue_pair_lead_to_a_look() {
    let mut lone = Lone::on_queue(true);
    lone.send_by_queue();
    let _written = lone.work();
    lone.look = Some(owed(PATIENCE));
    wait(&mut lone);
    assert_eq!(lone.work(), [Work::Look(Path::QueuePair)]);
    assert_eq!(lone.notices(), [Notice::Suspected]);
    lone.link.handle_queue_packets(lone.now, 0, false);
    assert_eq!(lone.work(), [], "no packet has come");
    lone.look = Some(ANSWERED);
    lone.link.handle_queue_packets(lone.now, 1, false);
    assert_eq!(lone.work(), [Work::Look(Path::QueuePair)]);
    assert_eq!(lone.notices(), [Notice::Trusted]);
}

#[test]
fn over_a_detour_the_peers_answers_decide() {
    let mut lone = Lone::new();
    lone.link.let_questions_decide(true);
    lone.send();
    assert_eq!(lone.work(), [TO_TCP]);
    wait(&mut lone);
    assert_eq!(lone.work(), [], "the caller has nothing to look at");
    assert_eq!(lone.notices(), [Notice::Suspected], "the peer's port has not answered");
    // A question more or less does not matter.
    lone.link.let_questions_decide(true);
    lone.read();
    let _looked = lone.work();
    assert_eq!(lone.notices(), [Notice::Trusted]);
    lone.link.let_questions_decide(false);
    lone.send();
    let _written = lone.work();
    wait(&mut lone);
    assert_eq!(lone.work(), [LOOK], "the kernel's word counts again");
}

#[test]
fn a_detour_asks_beside_a_write_and_goes_on_until_an_answer_to_it_has_come() {
    let mut lone = Lone::new();
    lone.link.let_questions_decide(true);
    lone.send();
    let _written = lone.work();
    lone.read();
    assert!(lone.link.take_round_trip().is_some());
    let mut looks = 0;
    while lone.link.poll_timeout().is_some() {
        wait(&mut lone);
        let _asked = lone.work();
        lone.read();
        looks += 1;
        assert!(looks < 10, "questions without end");
    }
    assert_eq!(looks, 2, "the first answer may be older than a write");
    assert_eq!(lone.notices(), []);
}

#[test]
fn a_write_between_two_answers_over_a_detour_needs_another_answer() {
    let mut lone = Lone::new();
    lone.link.let_questions_decide(true);
    lone.send();
    let _written = lone.work();
    lone.read();
    let mut looks = 0;
    while lone.link.poll_timeout().is_some() {
        wait(&mut lone);
        let _asked = lone.work();
        lone.read();
        if looks == 0 {
            lone.send();
            let _written = lone.work();
        }
        looks += 1;
        assert!(looks < 10, "questions without end");
    }
    assert_eq!(looks, 3);
}

#[test]
fn a_message_over_a_detour_is_a_question_too() {
    for (is_detour, trip) in [(true, Some(MILLISECOND)), (false, None)] {
        let mut lone = Lone::new();
        lone.link.let_questions_decide(is_detour);
        assert!(lone.link.control(lone.now, &[1]));
        let _written = lone.work();
        lone.pass(MILLISECOND);
        lone.read();
        assert_eq!(lone.link.take_round_trip(), trip);
    }
}

#[test]
fn an_answer_over_a_detour_may_take_four_round_trips() {
    let mut lone = Lone::new();
    lone.link.let_questions_decide(true);
    lone.send();
    let _written = lone.work();
    lone.pass(PATIENCE / 2);
    lone.read();
    assert_eq!(lone.link.take_round_trip(), Some(PATIENCE / 2));
    wait(&mut lone);
    let _asked = lone.work();
    let asked_at = lone.now;
    while lone.notices().is_empty() {
        wait(&mut lone);
        assert_eq!(lone.work(), [], "the link looks by itself");
    }
    assert!(lone.now >= asked_at + 2 * PATIENCE - 10 * MILLISECOND);
    assert!(lone.link.paths().is_suspected(Path::Tcp));
}

#[test]
fn a_look_at_a_queue_pair_that_does_not_carry_asks_nothing() {
    let mut lone = Lone::new();
    lone.link.add_queue(QUEUE, true);
    lone.tcp = crate::TcpWritten::Blocked;
    lone.send();
    let _blocked = lone.work();
    lone.link.handle_look(Path::QueuePair, lone.now, ANSWERED);
    assert_eq!(lone.work(), []);
}

#[test]
fn a_tick_over_a_detour_asks_the_peer_itself() {
    let mut lone = Lone::new();
    lone.link.let_questions_decide(true);
    lone.link.tick(lone.now);
    assert_eq!(lone.work(), [TO_TCP]);
    assert_eq!(lone.link.poll_timeout(), Some(lone.now + PATIENCE));
    let mut direct = Lone::new();
    direct.link.tick(direct.now);
    let _ticked = direct.work();
    assert_eq!(direct.link.poll_timeout(), None, "the next tick looks");
}

#[test]
fn nothing_is_asked_over_a_detour_that_is_held() {
    let mut lone = Lone::new();
    lone.link.let_questions_decide(true);
    lone.link.hold_writes(lone.now);
    let _suspected = lone.notices();
    wait(&mut lone);
    lone.look = Some(owed(PATIENCE));
    assert_eq!(lone.work(), [LOOK], "the kernel's word alone");
    assert_eq!(lone.link.take_round_trip(), None);
    assert_eq!(lone.peer.counts().packets_received, 0);
}

#[test]
fn a_loss_forgets_the_question_under_way() {
    let mut lone = Lone::new();
    lone.link.tick(lone.now);
    let _asked = lone.work();
    let answer = lone.frames();
    lone.lose(Loss::Closed);
    lone.input(&answer);
    lone.link.handle_received(lone.now, true, Ok(()));
    assert_eq!(lone.link.take_round_trip(), None);
}

#[test]
fn a_look_at_a_queue_pair_that_is_gone_needs_no_caller() {
    let mut lone = Lone::new();
    lone.link.add_queue(QUEUE, true);
    lone.link.hold_writes(lone.now);
    wait(&mut lone);
    lone.link.drop_unused_queue(lone.now);
    assert_eq!(lone.work(), [Work::CloseQueue, LOOK, TO_TCP]);
}
