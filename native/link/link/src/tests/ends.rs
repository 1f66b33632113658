//! Ends of links and of their paths.

use std::time::Duration;

use inet_rdma_paths::Path;
use inet_rdma_session::Violation;

use super::lone::{Lone, PATIENCE, PLAIN, QUEUE};
use crate::{Fault, Loss, Notice, QueueEnd, TcpWritten, Work};

const RESET: Loss = Loss::System(104);
const BROKEN_PIPE: Loss = Loss::System(32);
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_link_that_is_closed_with_bytes_queued_ends_at_the_earliest_of_its_times() {
    let mut lone = Lone::new();
    lone.tcp = TcpWritten::Blocked;
    lone.send();
    let _blocked = lone.work();
    lone.link.end_at(lone.now + 5 * SECOND);
    lone.link.end_at(lone.now + 3 * SECOND);
    lone.link.end_at(lone.now + 4 * SECOND);
    assert!(lone.link.is_ending() && lone.link.is_started() && lone.link.must_poll_queue());
    assert_eq!(lone.link.poll_timeout(), Some(lone.now + 3 * SECOND));
    lone.pass(3 * SECOND - Duration::from_millis(1));
    lone.link.handle_timeout(lone.now);
    assert!(!lone.link.is_over());
    lone.pass(Duration::from_millis(1));
    lone.link.handle_timeout(lone.now);
    assert!(lone.link.is_over() && !lone.link.is_ending());
}

#[test]
fn a_link_that_is_about_to_end_suspects_no_path() {
    let mut lone = Lone::new();
    lone.link.end_at(lone.now + 60 * SECOND);
    lone.send();
    let _written = lone.work();
    lone.link.hold_writes(lone.now);
    assert_eq!(lone.link.poll_timeout(), Some(lone.now + 60 * SECOND));
    lone.pass(10 * PATIENCE);
    lone.link.handle_timeout(lone.now);
    assert_eq!((lone.work(), lone.notices()), (vec![], vec![]));
}

#[test]
fn a_connection_that_takes_nothing_further_is_lost_behind_the_bytes_that_have_arrived() {
    let mut lone = Lone::new();
    lone.tcp = TcpWritten::Failed(RESET);
    lone.send();
    let _failed = lone.work();
    assert!(
        lone.link.has_failed_tcp() && lone.link.has_tcp(),
        "it is read to its end"
    );
    assert!(!lone.link.has_tcp_room() && !lone.link.waits_for_tcp_room());
    lone.link.handle_received(lone.now, false, Ok(()));
    assert!(lone.link.has_tcp(), "more has arrived than this turn takes");
    lone.link.handle_received(lone.now, true, Ok(()));
    assert_eq!(lone.work(), [Work::ResetTcp]);
    assert_eq!(lone.notices(), [Notice::Lost(RESET)]);
    assert!(!lone.link.has_failed_tcp());
}

#[test]
fn a_connection_that_the_peer_has_ended_is_told_as_closed_though_a_write_has_failed() {
    let cases = [
        (BROKEN_PIPE, Loss::Closed, Loss::Closed),
        (BROKEN_PIPE, RESET, BROKEN_PIPE),
        (RESET, Loss::Closed, RESET),
    ];
    for (write, read, told) in cases {
        let mut lone = Lone::new();
        lone.tcp = TcpWritten::Failed(write);
        lone.send();
        let _failed = lone.work();
        lone.lose(read);
        assert_eq!(lone.notices(), [Notice::Lost(told)]);
    }
    let mut lone = Lone::new();
    lone.lose(RESET);
    assert_eq!(lone.notices(), [Notice::Lost(RESET)], "no write has failed");
}

#[test]
fn damage_costs_the_connection_and_much_damage_the_link() {
    let mut lone = Lone::new();
    for number in 1..=8 {
        lone.link.handle_received(lone.now, true, Err(Fault::Damaged(&"a tag")));
        assert_eq!(lone.notices(), [Notice::Lost(Loss::Damaged)]);
        assert_eq!((lone.link.damages(), lone.link.is_over()), (number, false));
        let attempt = lone.link.next_attempt();
        let ours = lone.link.suspend(lone.now, attempt, Ok(())).expect("a newer attempt");
        let theirs = lone.peer.suspend(attempt).expect("a newer attempt");
        let _resumed = (
            lone.link.resume(lone.now, attempt, theirs),
            lone.peer.resume(attempt, ours),
        );
        lone.link.handle_resumed(lone.now, PLAIN);
        let _restored = (lone.work(), lone.notices());
    }
    lone.link.handle_received(lone.now, true, Err(Fault::Damaged(&"a tag")));
    assert_eq!(lone.notices(), [Notice::PeerMisbehaved("a tag".into())]);
    assert!(lone.link.is_over());
}

#[test]
fn a_peer_that_breaks_a_rule_ends_the_link() {
    let faults = [
        (Fault::Violation(Violation::Path), Violation::Path.to_string()),
        (Fault::Misbehaved(&"plain bytes"), "plain bytes".into()),
    ];
    for (fault, text) in faults {
        let mut lone = Lone::new();
        lone.link.handle_received(lone.now, true, Err(fault));
        assert_eq!(lone.notices(), [Notice::PeerMisbehaved(text)]);
        assert!(lone.link.is_over());
    }
}

#[test]
fn an_end_in_order_counts_before_the_loss_of_the_connection_that_brought_it() {
    let mut lone = Lone::new();
    lone.peer.end();
    let frames = lone.frames();
    lone.input(&frames);
    lone.lose(Loss::Closed);
    assert_eq!(lone.notices(), [Notice::PeerClosed]);
    assert!(lone.link.is_over());
    lone.link.handle_timeout(lone.now);
    assert_eq!(lone.notices(), []);
}

#[test]
fn an_end_in_order_may_be_known_behind_the_last_packet_of_the_queue_pair() {
    let mut lone = Lone::on_queue(false);
    lone.peer.append(96, |log| log.copy(&[0; 96]));
    lone.peer.handle_queued(100);
    lone.peer.end();
    lone.read();
    assert!(!lone.link.is_over(), "a packet is still to come");
    lone.link.session_mut().handle_queue_packets(100);
    lone.link.handle_queue_packets(lone.now, 1, false);
    assert!(lone.link.is_over());
    assert_eq!(lone.notices().last(), Some(&Notice::PeerClosed));
}

#[test]
fn a_queue_pair_that_lives_as_long_as_the_peer_ends_the_link_with_it() {
    for (can_be_lost, end) in [
        (false, QueueEnd::Lost),
        (false, QueueEnd::Closed),
        (true, QueueEnd::Closed),
    ] {
        let mut lone = Lone::on_queue(can_be_lost);
        lone.link.handle_queue_end(lone.now, end);
        assert!(lone.link.is_over(), "{end:?}");
        assert_eq!(lone.notices(), []);
    }
}

#[test]
fn a_lost_queue_pair_costs_the_connection_beside_it_and_the_link_goes_on() {
    let mut lone = Lone::on_queue(true);
    lone.link.handle_queue_end(lone.now, QueueEnd::Lost);
    assert!(!lone.link.is_over());
    assert_eq!(lone.work(), [Work::CloseQueue, Work::ResetTcp]);
    assert_eq!(lone.notices(), [Notice::Lost(Loss::QueuePair)]);
    assert!(!lone.link.has_tcp() && !lone.link.reads_queue() && !lone.link.has_writable_queue());
}

#[test]
fn a_queue_pair_that_is_lost_behind_the_connection_is_told_once_more() {
    let mut lone = Lone::on_queue(true);
    lone.lose(RESET);
    let _lost = (lone.work(), lone.notices());
    lone.link.handle_queue_end(lone.now, QueueEnd::Lost);
    assert_eq!(lone.work(), [Work::CloseQueue]);
    assert_eq!(lone.notices(), [Notice::Lost(Loss::QueuePair)]);
}

#[test]
fn a_lost_queue_pair_ends_a_link_that_is_about_to_end() {
    let mut lone = Lone::on_queue(true);
    lone.link.end_at(lone.now + SECOND);
    lone.link.handle_queue_end(lone.now, QueueEnd::Lost);
    assert!(lone.link.is_over());
}

#[test]
fn an_unread_queue_pair_that_ends_costs_the_connection_if_this_side_has_moved() {
    let mut lone = Lone::moved(true);
    lone.link.handle_unread_queue_end(lone.now);
    assert_eq!(lone.work(), [Work::CloseQueue, Work::ResetTcp]);
    assert_eq!(lone.notices(), [Notice::Lost(Loss::QueuePair)]);
}

#[test]
fn an_unread_queue_pair_that_ends_unused_is_dropped_without_a_loss() {
    let mut lone = Lone::new();
    lone.link.add_queue(QUEUE, true);
    lone.link.handle_unread_queue_end(lone.now);
    assert_eq!(lone.work(), [Work::CloseQueue]);
    assert_eq!(lone.notices(), []);
    assert!(lone.link.has_tcp() && !lone.link.is_held(Path::Tcp));
}

#[test]
fn a_guard_that_begins_is_told_the_last_loss_until_a_connection_comes() {
    let mut lone = Lone::new();
    lone.link.watch();
    assert_eq!(lone.notices(), [Notice::Changed]);
    lone.lose(RESET);
    let _lost = lone.notices();
    lone.link.watch();
    assert_eq!(lone.notices(), [Notice::Changed, Notice::Lost(RESET)]);
}
