//! Resumes of two sessions, one step after the other: what the exploration has found, and what it cannot reach.

use super::packets::Packets;
use super::{Tested, frame, queued, standing, transmission};
use crate::frame::Kind;
use crate::{Event, Older, Position, Role, Session, Standing, Turn, Violation};

/// A queue pair.
const PATH: u64 = 7;

pub(super) fn pair() -> [Tested; 2] {
    [Role::Initiator, Role::Acceptor].map(|role| Session::new(role, 1 << 20))
}

/// Both have the queue pair, and the first one has moved there.
fn pair_on_queue(can_be_lost: bool) -> [Tested; 2] {
    let [mut sender, mut receiver] = pair();
    sender.add_path(PATH, can_be_lost);
    receiver.add_path(PATH, can_be_lost);
    assert!(sender.move_to_queue());
    carry(&mut sender, &mut receiver);
    assert!(receiver.reads_queue(PATH));
    [sender, receiver]
}

#[test]
fn a_side_accepts_the_newer_attempts_of_its_peer_alone() {
    let [mut initiator, acceptor] = pair();
    let (own, peers) = (initiator.next_attempt(), acceptor.next_attempt());
    assert_eq!([initiator.accepts(own), initiator.accepts(peers)], [false, true]);
    assert_eq!([acceptor.accepts(own), acceptor.accepts(peers)], [true, false]);
    initiator.suspend(own).expect("the first attempt");
    assert!(!initiator.accepts(peers), "an older attempt");
}

pub(super) fn append(session: &mut Tested, packet: &[u8]) {
    session.append(packet.len(), |log| log.copy(packet));
}

/// What the connection takes of all that there is.
pub(super) fn transmitted(session: &mut Tested) -> Vec<u8> {
    let mut bytes = Vec::new();
    while session.poll_transmit() {
        let next = transmission(session);
        assert!(!next.is_empty(), "something is to be written, and nothing is there");
        session.handle_transmitted(next.len());
        bytes.extend(next);
    }
    bytes
}

/// The first bytes of what there is to write.
fn transmitted_bytes(session: &mut Tested, bytes: usize) -> Vec<u8> {
    let mut taken = Vec::new();
    while taken.len() < bytes && session.poll_transmit() {
        let mut next = transmission(session);
        next.truncate(bytes - taken.len());
        session.handle_transmitted(next.len());
        taken.extend(next);
    }
    taken
}

pub(super) fn input(session: &mut Tested, bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut packets = Packets::default();
    let taken = session.handle_input(bytes, &mut Turn::unbounded(), &mut packets);
    assert_eq!(taken, Ok(bytes.len()));
    packets.0
}

/// Over TCP; the packets that arrive.
pub(super) fn carry(from: &mut Tested, to: &mut Tested) -> Vec<Vec<u8>> {
    let bytes = transmitted(from);
    input(to, &bytes)
}

/// One attempt of the first begins: its number, and both standings.
pub(super) fn suspend(dialer: &mut Tested, other: &mut Tested) -> (u64, Standing, Standing) {
    let attempt = dialer.next_attempt();
    let ours = dialer.suspend(attempt).expect("newer");
    (attempt, ours, other.suspend(attempt).expect("newer"))
}

/// One attempt of the first, from its beginning to its end; whether the queue pair carries on.
pub(super) fn resume(dialer: &mut Tested, other: &mut Tested) -> bool {
    let (attempt, ours, theirs) = suspend(dialer, other);
    let keeps_path = other.resume(attempt, ours).expect("the attempt is the newest");
    assert_eq!(dialer.resume(attempt, theirs), Ok(keeps_path));
    keeps_path
}

#[test]
fn bytes_under_way_in_shared_memory_do_not_hinder_a_resume() {
    let [mut sender, mut receiver] = pair_on_queue(false);
    assert!(receiver.move_to_queue());
    carry(&mut receiver, &mut sender);
    assert!(sender.passes());
    sender.handle_passed(5, 5);
    assert_eq!(sender.logged_bytes(), 0);

    let (attempt, theirs, ours) = suspend(&mut receiver, &mut sender);
    assert_eq!(sender.resume(attempt, theirs), Ok(true));
    receiver.handle_queue_packets(5);
    assert_eq!(receiver.resume(attempt, ours), Ok(true));
    assert!(sender.passes());
}

#[test]
fn a_queue_pair_that_comes_behind_the_standing_is_given_up() {
    let [mut sender, mut receiver] = pair();
    sender.add_path(PATH, false);
    assert!(sender.move_to_queue());
    carry(&mut sender, &mut receiver);
    let (attempt, ours, theirs) = suspend(&mut sender, &mut receiver);
    receiver.add_path(PATH, false);
    assert!(receiver.reads_queue(PATH) && receiver.is_given_up(PATH));
    assert!(!sender.is_given_up(PATH));
    assert_eq!(sender.resume(attempt, theirs), Ok(false));
    assert_eq!(receiver.resume(attempt, ours), Ok(false));
    assert_eq!(receiver.path(), None);

    // An attempt that fails gives up nothing for the next one.
    let [sender, mut receiver] = pair_on_queue(false);
    receiver.lose_path();
    receiver.suspend(sender.next_attempt()).expect("newer");
    receiver.add_path(PATH, false);
    assert!(receiver.is_given_up(PATH));
    receiver.suspend(receiver.next_attempt()).expect("newer");
    assert!(!receiver.is_given_up(PATH));
}

#[test]
fn a_packet_that_is_read_while_the_standing_is_under_way_does_not_hinder_a_resume() {
    let [mut sender, mut receiver] = pair_on_queue(true);
    append(&mut sender, b"a");
    let bytes = queued(&mut sender, usize::MAX).len();
    let attempt = receiver.next_attempt();
    let theirs = receiver.suspend(attempt).expect("newer");
    receiver.handle_queue_packets(bytes);
    sender.handle_queue_read(bytes as u64);
    assert_eq!(sender.logged_bytes(), 0);
    sender.suspend(attempt).expect("newer");
    assert_eq!(sender.resume(attempt, theirs), Ok(true));
}

#[test]
fn a_standing_before_what_was_acknowledged_over_tcp_is_a_violation() {
    let [mut sender, mut receiver] = pair();
    append(&mut sender, b"a");
    carry(&mut sender, &mut receiver);
    receiver.tick();
    carry(&mut receiver, &mut sender);
    sender.add_path(PATH, false);
    sender.move_to_queue();
    sender.suspend(2).expect("newer");
    let behind = Standing {
        received: Position(4),
        path: Some(PATH),
    };
    assert_eq!(sender.resume(2, behind), Err(Some(Violation::RolledBack(Older::Peer))));
}

#[test]
fn a_queue_pair_that_is_lost_during_an_attempt_is_given_up_by_the_next_one() {
    let [mut sender, mut receiver] = pair_on_queue(true);
    let (attempt, ours, theirs) = suspend(&mut sender, &mut receiver);
    sender.lose_path();
    assert_eq!(receiver.resume(attempt, ours), Ok(true));
    assert_eq!(sender.resume(attempt, theirs), Ok(true));
    append(&mut sender, b"a");
    assert_eq!(carry(&mut sender, &mut receiver), Vec::<Vec<u8>>::new());

    assert!(!resume(&mut sender, &mut receiver));
    assert_eq!(carry(&mut sender, &mut receiver), [b"a"]);
}

#[test]
fn a_queue_pair_that_is_added_during_an_attempt_is_given_up_by_it() {
    let [mut sender, mut receiver] = pair();
    receiver.add_path(PATH, false);
    let (attempt, ours, theirs) = suspend(&mut sender, &mut receiver);
    assert_eq!(receiver.resume(attempt, ours), Ok(false));
    sender.add_path(PATH, false);
    assert_eq!(sender.resume(attempt, theirs), Ok(false));
    assert_eq!(sender.path(), None);
}

/// The receiver has moved to a queue pair that is ready here only after this side has said that it has none.
#[test]
fn the_log_keeps_what_a_queue_pair_takes_that_is_being_given_up() {
    let [mut sender, mut receiver] = pair();
    receiver.add_path(PATH, false);
    receiver.move_to_queue();
    carry(&mut receiver, &mut sender);
    let attempt = sender.next_attempt();
    let ours = sender.suspend(attempt).expect("newer");
    sender.add_path(PATH, false);
    sender.move_to_queue();
    assert!(!sender.passes());
    append(&mut sender, b"a");
    queued(&mut sender, usize::MAX);
    let theirs = receiver.suspend(attempt).expect("newer");
    assert_eq!(receiver.resume(attempt, ours), Ok(false));
    assert_eq!(sender.resume(attempt, theirs), Ok(false));
    assert_eq!(carry(&mut sender, &mut receiver), [b"a"]);
}

#[test]
fn a_queue_pair_that_takes_the_place_of_a_lost_one_does_not_carry_on() {
    let [mut sender, mut receiver] = pair_on_queue(true);
    append(&mut sender, b"a");
    queued(&mut sender, usize::MAX);
    sender.lose_path();
    receiver.lose_path();
    sender.add_path(PATH + 1, true);
    receiver.add_path(PATH + 1, true);
    assert!(!resume(&mut sender, &mut receiver));
    assert_eq!(carry(&mut sender, &mut receiver), [b"a"]);
}

#[test]
fn an_attempt_leads_to_one_resume() {
    let [mut session, _] = pair();
    let theirs = standing(0);
    assert_eq!(session.resume(0, theirs), Err(None));
    session.suspend(3).expect("newer");
    assert_eq!(session.resume(3, theirs), Ok(false));
    assert_eq!(session.resume(3, theirs), Err(None));
}

/// The receiver reads `before` packets from the queue pair, tells its standing, and reads `after` more. The sender
/// hears of all of that or of nothing, and loses the queue pair.
fn read_on_during_an_attempt(before: usize, after: usize, hears: bool) {
    let [mut sender, mut receiver] = pair_on_queue(true);
    for packet in 0..4 {
        append(&mut sender, &[packet]);
    }
    queued(&mut sender, usize::MAX);
    receiver.handle_queue_packets(5 * before);
    let attempt = receiver.next_attempt();
    let theirs = receiver.suspend(attempt).expect("newer");
    receiver.handle_queue_packets(5 * after);
    if hears {
        sender.handle_queue_read(5 * (before + after) as u64);
    }
    sender.lose_path();
    let ours = sender.suspend(attempt).expect("newer");
    assert_eq!(sender.resume(attempt, theirs), Ok(false));
    assert_eq!(receiver.resume(attempt, ours), Ok(false));
    let rest: Vec<Vec<u8>> = (before + after..4).map(|packet| vec![packet as u8]).collect();
    assert_eq!(carry(&mut sender, &mut receiver), rest);
    receiver.tick();
    carry(&mut receiver, &mut sender);
    assert_eq!(sender.logged_bytes(), 0);
}

#[test]
fn packets_that_a_queue_pair_brings_during_an_attempt_arrive_once() {
    for hears in [false, true] {
        for before in 0..=4 {
            for after in 0..=4 - before {
                read_on_during_an_attempt(before, after, hears);
            }
        }
    }
}

#[test]
fn bytes_that_are_sent_again_are_acknowledged_at_every_moment() {
    for sent in 0..=18 {
        let [mut sender, mut receiver] = pair_on_queue(true);
        append(&mut sender, b"ab");
        append(&mut sender, b"cd");
        let bytes = queued(&mut sender, usize::MAX).len();
        let attempt = receiver.next_attempt();
        let theirs = receiver.suspend(attempt).expect("newer");
        receiver.handle_queue_packets(bytes);
        sender.lose_path();
        let ours = sender.suspend(attempt).expect("newer");
        assert_eq!(sender.resume(attempt, theirs), Ok(false));
        assert_eq!(receiver.resume(attempt, ours), Ok(false));
        receiver.tick();
        let acknowledgement = transmitted(&mut receiver);

        let mut first = transmitted_bytes(&mut sender, sent);
        input(&mut sender, &acknowledgement);
        append(&mut sender, b"ef");
        first.extend(transmitted(&mut sender));
        assert_eq!(input(&mut receiver, &first), [b"ef"], "{sent}");
    }
}

/// The peer has acknowledged the bytes before they are sent again, and more than a window of them.
#[test]
fn bytes_that_are_sent_again_leave_the_window_to_those_behind_them() {
    let [mut sender, mut receiver] = pair_on_queue(true);
    sender.set_window(0);
    append(&mut sender, &[7; 1 << 19]);
    let bytes = queued(&mut sender, usize::MAX).len();
    let attempt = receiver.next_attempt();
    let theirs = receiver.suspend(attempt).expect("newer");
    receiver.handle_queue_packets(bytes);
    receiver.lose_path();
    sender.lose_path();
    let ours = sender.suspend(attempt).expect("newer");
    assert_eq!(receiver.resume(attempt, ours), Ok(false));
    assert_eq!(sender.resume(attempt, theirs), Ok(false));
    carry(&mut receiver, &mut sender);
    append(&mut sender, b"behind them");
    assert_eq!(carry(&mut sender, &mut receiver), [b"behind them"]);
}

#[test]
fn a_connection_cannot_carry_on_where_it_did_not_stop() {
    for (received, mark) in [(5, 6), (5, u64::MAX), (7, 6), (7, 8), (7, 0)] {
        let [mut sender, mut receiver] = pair();
        append(&mut sender, b"a");
        append(&mut sender, b"bcd");
        let bytes = transmitted_bytes(&mut sender, 12 + received);
        input(&mut receiver, &bytes);
        let attempt = receiver.next_attempt();
        let ours = receiver.suspend(attempt).expect("newer");
        assert_eq!(ours.received, Position(received as u64));
        assert_eq!(receiver.resume(attempt, standing(0)), Ok(false));
        let moved = frame(Kind::Move, 16, 0, &[[0; 8], mark.to_be_bytes()].concat());
        let broken = receiver.handle_input(&moved, &mut Turn::unbounded(), &mut Packets::default());
        assert_eq!(broken, Err(Violation::Move), "{mark} instead of {received}");
    }
}

#[test]
fn the_end_waits_for_packets_in_a_queue_pair() {
    let [mut sender, mut receiver] = pair_on_queue(true);
    assert_eq!(receiver.poll_event(), Some(Event::Moved));
    append(&mut sender, b"a");
    let bytes = queued(&mut sender, usize::MAX).len();
    sender.end();
    carry(&mut sender, &mut receiver);
    assert_eq!(receiver.poll_event(), None);
    receiver.handle_queue_packets(bytes);
    assert_eq!(receiver.poll_event(), Some(Event::Ended));
}

/// Over shared memory nothing else releases them: the peer acknowledges no bytes that come over a queue pair.
#[test]
fn bytes_that_a_queue_pair_has_taken_leave_the_log_when_the_peer_moves_or_acknowledges_the_mark() {
    let [mut sender, mut receiver] = pair_on_queue(false);
    append(&mut sender, b"before the peer moves");
    queued(&mut sender, usize::MAX);
    assert!(receiver.move_to_queue());
    carry(&mut receiver, &mut sender);
    assert_eq!(sender.logged_bytes(), 0);

    let [mut sender, mut receiver] = pair();
    sender.add_path(PATH, false);
    receiver.add_path(PATH, false);
    assert!(receiver.move_to_queue());
    carry(&mut receiver, &mut sender);
    append(&mut sender, b"over TCP");
    assert!(sender.move_to_queue());
    carry(&mut sender, &mut receiver);
    append(&mut sender, b"before the acknowledgement");
    queued(&mut sender, usize::MAX);
    assert!(sender.logged_bytes() > 0);
    carry(&mut receiver, &mut sender);
    assert_eq!(sender.logged_bytes(), 0);
}

#[test]
fn an_end_that_is_lost_with_its_connection_is_said_again() {
    let [mut sender, mut receiver] = pair();
    sender.end();
    transmitted(&mut sender);
    resume(&mut receiver, &mut sender);
    carry(&mut sender, &mut receiver);
    assert_eq!(receiver.poll_event(), Some(Event::Ended));
}

#[test]
fn an_empty_control_message_arrives() {
    let [mut sender, mut receiver] = pair();
    assert!(sender.control(Vec::new()));
    carry(&mut sender, &mut receiver);
    assert_eq!(receiver.poll_event(), Some(Event::Control(Vec::new())));
}

#[test]
fn a_connection_begins_with_a_frame_whatever_was_prepared_without_one() {
    let [mut sender, mut receiver] = pair();
    append(&mut sender, b"a");
    append(&mut sender, b"b");
    transmitted_bytes(&mut sender, 12 + 5);
    let attempt = sender.next_attempt();
    let ours = sender.suspend(attempt).expect("newer");
    receiver.suspend(attempt).expect("newer");
    assert!(sender.poll_transmit());
    receiver.handle_queue_packets(5);
    assert_eq!(receiver.resume(attempt, ours), Ok(false));
    assert_eq!(sender.resume(attempt, standing(5)), Ok(false));
    assert_eq!(carry(&mut sender, &mut receiver), [b"b"]);
}
