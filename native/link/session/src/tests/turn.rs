//! The bounds of input: of a turn, and of what a peer may have under way.

use super::packets::Packets;
use super::{Tested, standing};
use crate::frame::{DATA_BYTES_MAX, HEADER_BYTES, Kind};
use crate::{Event, Position, Role, Session, Turn, Violation, WINDOW_BYTES_FIRST};

fn receiver() -> Tested {
    Session::new(Role::Acceptor, 1 << 20)
}

fn frame(kind: Kind, body: &[u8]) -> Vec<u8> {
    super::frame(kind, body.len(), 0, body)
}

/// The packets of a frame: each its length, then its bytes.
fn stream(packets: &[&[u8]]) -> Vec<u8> {
    let each = packets
        .iter()
        .map(|packet| [&(packet.len() as u32).to_be_bytes(), *packet].concat());
    each.collect::<Vec<_>>().concat()
}

/// Takes the bytes by turns of these bounds. Returns what each turn gave: packets, and events.
fn turns(session: &mut Tested, bytes: &[u8], turn: Turn) -> Vec<(Vec<Vec<u8>>, usize)> {
    let mut rest = bytes;
    let mut given = Vec::new();
    while !rest.is_empty() {
        let (mut packets, mut left) = (Packets::default(), turn);
        let taken = session.handle_input(rest, &mut left, &mut packets).expect("no fault");
        assert!(taken > 0 && taken <= turn.bytes);
        assert!(taken == rest.len() || left.is_over());
        rest = &rest[taken..];
        given.push((packets.0, std::iter::from_fn(|| session.poll_event()).count()));
    }
    given
}

#[test]
fn a_turn_ends_behind_its_last_packet_and_the_next_one_goes_on_there() {
    let packets: Vec<Vec<u8>> = (0..100_usize).map(|at| vec![at as u8; at % 5]).collect();
    let all: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
    // Packets that begin in one frame and end in another.
    let bytes = stream(&all);
    let frames: Vec<u8> = bytes.chunks(50).flat_map(|part| frame(Kind::Data, part)).collect();
    let turn = Turn {
        packets: 7,
        ..Turn::unbounded()
    };
    let mut session = receiver();
    let given = turns(&mut session, &frames, turn);
    assert!(given[..14].iter().all(|(packets, _)| packets.len() == 7), "{given:?}");
    let arrived: Vec<Vec<u8>> = given.into_iter().flat_map(|(packets, _)| packets).collect();
    assert_eq!(arrived, packets);
    assert_eq!(session.received(), Position(bytes.len() as u64));
}

#[test]
fn a_turn_takes_no_more_bytes_than_it_allows() {
    let large = vec![9; 50_000];
    let bytes = frame(Kind::Data, &stream(&[&large, b"behind"]));
    let turn = Turn {
        bytes: 1_000,
        ..Turn::unbounded()
    };
    let given = turns(&mut receiver(), &bytes, turn);
    assert_eq!(given.len(), bytes.len().div_ceil(1_000));
    let arrived: Vec<Vec<u8>> = given.into_iter().flat_map(|(packets, _)| packets).collect();
    assert_eq!(arrived, [large, b"behind".to_vec()]);
}

/// A frame of twelve bytes has its price, too: a message for the guard.
#[test]
fn messages_and_signs_of_life_count_as_packets() {
    let number = 7_u64.to_be_bytes();
    let each = [
        frame(Kind::Tick, b""),
        frame(Kind::Control, b""),
        frame(Kind::Control, b"x"),
        frame(Kind::Echo, &number),
        frame(Kind::Echoed, &number),
    ];
    let frames = each.concat().repeat(20);
    let turn = Turn {
        packets: 10,
        ..Turn::unbounded()
    };
    let given = turns(&mut receiver(), &frames, turn);
    assert_eq!(given.len(), 10);
    assert!(given.iter().all(|&(_, events)| events <= 10));
    assert_eq!(given.iter().map(|&(_, events)| events).sum::<usize>(), 60);
}

#[test]
fn nothing_is_left_behind_the_end() {
    let mut session = receiver();
    let bytes = [frame(Kind::End, &[0; 8]), frame(Kind::Tick, b"")].concat();
    let mut turn = Turn {
        packets: 5,
        ..Turn::unbounded()
    };
    let taken = session.handle_input(&bytes, &mut turn, &mut Packets::default());
    assert_eq!(taken, Ok(bytes.len()));
    assert_eq!(session.poll_event(), Some(Event::Ended));
}

/// Frames of empty packets, as many bytes as a frame has.
fn feed(session: &mut Tested, frames: usize) -> Result<usize, Violation> {
    let frame = frame(Kind::Data, &[0; DATA_BYTES_MAX]);
    (0..frames).try_fold(0, |bytes, _| {
        let taken = session.handle_input(&frame, &mut Turn::unbounded(), &mut Packets::default())?;
        Ok(bytes + taken)
    })
}

/// Makes the session write the acknowledgement that is due.
fn acknowledge(session: &mut Tested) {
    while session.poll_transmit() {
        session.handle_transmitted(HEADER_BYTES);
    }
}

const FRAMES: usize = WINDOW_BYTES_FIRST / DATA_BYTES_MAX;

#[test]
fn a_peer_that_sends_beyond_its_window_misbehaves() {
    let mut session = receiver();
    assert!(feed(&mut session, FRAMES).is_ok());
    let bytes = WINDOW_BYTES_FIRST + DATA_BYTES_MAX;
    assert_eq!(feed(&mut session, 1), Err(Violation::Window(bytes)));
}

#[test]
fn each_acknowledgement_opens_the_window_again() {
    let mut session = receiver();
    for _ in 0..5 {
        assert!(feed(&mut session, FRAMES).is_ok());
        acknowledge(&mut session);
    }
}

/// The peer learns from the standing what has arrived: the last acknowledgement may have been lost.
#[test]
fn a_resume_opens_the_window_again() {
    let mut session = receiver();
    for _ in 0..3 {
        assert!(feed(&mut session, FRAMES).is_ok());
        let attempt = session.next_attempt();
        let ours = session.suspend(attempt).expect("newest");
        assert_eq!(session.resume(attempt, standing(0)), Ok(false));
        assert_eq!(ours.received, session.received());
    }
    assert!(feed(&mut session, FRAMES + 1).is_err());
}
