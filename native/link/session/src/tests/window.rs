//! Windows that the sides tell each other, step by step.

use super::packets::Packets;
use super::resume::{append, carry, input, pair, resume, transmitted};
use super::{Tested, frame};
use crate::frame::{DATA_BYTES_MAX, Kind};
use crate::{Role, Session, Turn, Violation, WINDOW_BYTES_FIRST};

const MIB: usize = 1 << 20;
/// Bytes of a packet with its length.
const PACKET: usize = 64 * 1024;

/// Two sides that tell these windows, and whose own windows are as large as can be.
fn telling(told: [usize; 2]) -> [Tested; 2] {
    let mut sides = pair();
    for (side, told) in sides.iter_mut().zip(told) {
        side.tell_window(told);
        side.set_window(usize::MAX);
    }
    sides
}

/// Appends packets of `bytes` bytes in all, each with its own first bytes. Returns their number.
fn append_bytes(session: &mut Tested, bytes: usize) -> usize {
    for number in 0..bytes / PACKET {
        let mut packet = vec![number as u8; PACKET - 4];
        packet[..8].copy_from_slice(&(number as u64).to_be_bytes());
        session.append(packet.len(), |log| log.hold(packet));
    }
    bytes / PACKET
}

/// Whether these are the packets from that number on.
fn are_from(packets: &[Vec<u8>], first: usize) -> bool {
    let numbers = packets.iter().map(|packet| packet.first_chunk::<8>().copied());
    numbers.eq((first..first + packets.len()).map(|number| Some((number as u64).to_be_bytes())))
}

fn under_way(session: &Tested) -> usize {
    session.logged_bytes() - session.unsent_bytes()
}

fn violation(session: &mut Tested, bytes: &[u8]) -> Result<usize, Violation> {
    session.handle_input(bytes, &mut Turn::unbounded(), &mut Packets::default())
}

#[test]
fn a_sender_has_the_first_window_until_the_peer_tells_its_own() {
    let [mut sender, mut receiver] = telling([64 * MIB, 8 * MIB]);
    let packets = append_bytes(&mut sender, 20 * MIB);
    let mut bytes = transmitted(&mut sender);
    assert_eq!(under_way(&sender), WINDOW_BYTES_FIRST);
    let told = transmitted(&mut receiver);
    input(&mut sender, &told);
    assert_eq!(sender.window_bytes(), 8 * MIB);
    bytes.extend(transmitted(&mut sender));
    assert_eq!(under_way(&sender), 8 * MIB);
    let mut arrived = input(&mut receiver, &bytes);
    while arrived.len() < packets {
        carry(&mut receiver, &mut sender);
        arrived.extend(carry(&mut sender, &mut receiver));
    }
    assert!(are_from(&arrived, 0));
}

#[test]
fn sides_that_tell_none_agree_on_the_first_window() {
    let [mut sender, mut receiver] = pair();
    sender.set_window(usize::MAX);
    append_bytes(&mut sender, 6 * MIB);
    let bytes = transmitted(&mut sender);
    assert_eq!(under_way(&sender), WINDOW_BYTES_FIRST);
    input(&mut receiver, &bytes);
}

#[test]
fn a_window_of_a_peer_that_was_told_none_and_one_below_the_first_are_refused() {
    let window = |bytes: usize| frame(Kind::Window, 8, 0, &(bytes as u64).to_be_bytes());
    let mut untold: Tested = Session::new(Role::Acceptor, 1 << 20);
    assert_eq!(violation(&mut untold, &window(8 * MIB)), Err(Violation::Frame));
    let [mut side, _] = telling([8 * MIB; 2]);
    assert_eq!(
        violation(&mut side, &window(WINDOW_BYTES_FIRST - 1)),
        Err(Violation::Frame)
    );
    let [mut side, _] = telling([8 * MIB; 2]);
    assert!(violation(&mut side, &window(usize::MAX)).is_ok());
    assert_eq!(side.window_bytes(), usize::MAX);
}

#[test]
fn a_side_takes_the_window_that_it_tells_and_no_more() {
    let [mut receiver, _] = telling([8 * MIB; 2]);
    let full = frame(Kind::Data, DATA_BYTES_MAX, 0, &[0; DATA_BYTES_MAX]);
    for _ in 0..8 * MIB / DATA_BYTES_MAX {
        assert!(violation(&mut receiver, &full).is_ok());
    }
    let bytes = 8 * MIB + DATA_BYTES_MAX;
    assert_eq!(violation(&mut receiver, &full), Err(Violation::Window(bytes)));
}

/// Bytes that are under way arrive; others follow when enough of them are acknowledged.
#[test]
fn a_window_that_shrinks_below_what_is_under_way_waits_for_acknowledgements() {
    let [mut sender, mut receiver] = telling([64 * MIB; 2]);
    carry(&mut receiver, &mut sender);
    append_bytes(&mut sender, 20 * MIB);
    sender.set_window(16 * MIB);
    let bytes = transmitted(&mut sender);
    assert_eq!((under_way(&sender), sender.take_window_peak()), (16 * MIB, 16 * MIB));
    assert!(sender.take_window_full());
    sender.set_window(5 * MIB);
    assert!(transmitted(&mut sender).is_empty());
    let (first, rest) = bytes.split_at(10 * MIB);
    input(&mut receiver, first);
    carry(&mut receiver, &mut sender);
    assert!(transmitted(&mut sender).is_empty());
    input(&mut receiver, rest);
    carry(&mut receiver, &mut sender);
    assert!(sender.take_window_full());
    let left = carry(&mut sender, &mut receiver);
    assert!(are_from(&left, 16 * MIB / PACKET));
    assert!(!sender.take_window_full());
}

/// The connection is lost at any byte of what is under way: the peer has some of it, and it comes again without a pause
/// once the peer has told its window.
#[test]
fn sixty_mebibytes_that_are_not_acknowledged_outlive_a_cut() {
    for arrived_bytes in [0, 1, 13, 4 * MIB + 7, 33_333_333, 60 * MIB] {
        let [mut sender, mut receiver] = telling([64 * MIB; 2]);
        carry(&mut receiver, &mut sender);
        let packets = append_bytes(&mut sender, 60 * MIB);
        let bytes = transmitted(&mut sender);
        assert_eq!(under_way(&sender), 60 * MIB);
        let mut arrived = input(&mut receiver, &bytes[..arrived_bytes.min(bytes.len())]);
        let received = usize::try_from(receiver.received().0).expect("few bytes");
        resume(&mut sender, &mut receiver);
        assert_eq!(sender.logged_bytes(), 60 * MIB - received);
        carry(&mut receiver, &mut sender);
        assert_eq!(sender.window_bytes(), 64 * MIB);
        arrived.extend(carry(&mut sender, &mut receiver));
        assert_eq!(arrived.len(), packets, "{arrived_bytes} bytes had arrived");
        assert!(are_from(&arrived, 0));
        carry(&mut receiver, &mut sender);
        append(&mut sender, b"behind them");
        assert_eq!(carry(&mut sender, &mut receiver), [b"behind them"]);
        receiver.acknowledge();
        carry(&mut receiver, &mut sender);
        assert_eq!(sender.logged_bytes(), 0);
    }
}

/// The peer may tell another window over another connection, and its first one may be lost.
#[test]
fn each_connection_begins_with_the_first_window_and_is_told_again() {
    let [mut sender, mut receiver] = telling([64 * MIB; 2]);
    resume(&mut sender, &mut receiver);
    assert_eq!(sender.window_bytes(), WINDOW_BYTES_FIRST);
    carry(&mut receiver, &mut sender);
    assert_eq!(sender.window_bytes(), 64 * MIB);
    resume(&mut receiver, &mut sender);
    assert_eq!(sender.window_bytes(), WINDOW_BYTES_FIRST);
    carry(&mut receiver, &mut sender);
    assert_eq!(sender.window_bytes(), 64 * MIB);
}
