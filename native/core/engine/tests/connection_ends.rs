//! Ends of a connection, in order and by death: the bytes that can still be read, and the parties that are woken.

#[path = "support/both_ends.rs"]
mod both_ends;
#[path = "../../assembly/tests/support/contents.rs"]
mod contents;
#[path = "support/message.rs"]
mod message;
#[path = "support/pair.rs"]
mod pair;

use both_ends::{carry, connected, read, small, write};
use inet_rdma_engine::connection::{Closed, ContentsViolation, ReadEnd};
use inet_rdma_fabric_fault::{FaultFabric, FaultPlan};
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_records::Cipher;
use message::Messages;
use pair::{Keys, Side};

#[test]
fn a_close_without_credits_is_an_orderly_end() {
    let (left, right) = connected(small());
    let mut sent = Vec::new();
    for number in 0.. {
        let message = Messages::new(number, &[3]);
        if write(&left, &message, 0) == 0 {
            break;
        }
        sent.extend(message.bodies().iter().cloned());
    }
    // Keepalives take the credits that transfers leave; the peer has returned none yet.
    for _ in 0..4 {
        left.connection().tick().expect("a connection that is up");
    }
    left.close();
    let (received, end) = read(&right);
    assert_eq!(contents::packets(&received), sent);
    assert_eq!(end, ReadEnd::Closed(Closed::ByPeer));
}

#[test]
fn a_half_close_lets_the_other_direction_go_on() {
    let (left, right) = connected(Side::default());
    let there = Messages::new(11, &[1, 70_000, 3]);
    let back = Messages::new(12, &[5, 100_000, 0]);
    assert_eq!(contents::packets(&carry(&left, &right, &there)), there.bodies());
    write(&left, &Messages::new(13, &[7]), 0);
    left.finish().expect("it is up");
    let (received, end) = read(&right);
    assert_eq!(contents::packets(&received), Messages::new(13, &[7]).bodies());
    assert_eq!(end, ReadEnd::Closed(Closed::ByPeer));
    assert!(right.connection().is_end() && right.connection().closed().is_none());
    assert_eq!(contents::packets(&carry(&right, &left, &back)), back.bodies());
}

#[test]
fn bytes_written_before_a_close_can_be_read() {
    let (left, right) = connected(Side::default());
    let messages = Messages::new(14, &[1, 2, 50_000]);
    assert!(right.arm_reader());
    write(&left, &messages, 0);
    left.close();
    assert_eq!(left.connection().closed(), Some(Closed::Here));
    assert!(!right.connection().handle_liveness());
    assert!(right.notifier().take().reader);
    let (received, end) = read(&right);
    assert_eq!(contents::packets(&received), messages.bodies());
    assert_eq!(end, ReadEnd::Closed(Closed::ByPeer));
    assert_eq!(right.connection().closed(), Some(Closed::ByPeer));
}

#[test]
fn a_peer_that_died_is_gone_after_its_last_byte() {
    let (left, right) = connected(Side::default());
    let messages = Messages::new(15, &[1, 2, 50_000]);
    write(&left, &messages, 0);
    drop(left);
    assert!(!right.connection().handle_liveness());
    let (received, end) = read(&right);
    assert_eq!(contents::packets(&received), messages.bodies());
    assert_eq!(end, ReadEnd::Closed(Closed::PeerGone));
    assert_eq!(right.connection().tick(), Err(Closed::PeerGone));
    let gather = messages.gather(true);
    assert_eq!(right.write(&gather, 0, usize::MAX), Err(Closed::PeerGone));
}

#[test]
fn a_close_wakes_the_waiting_reader_and_writer() {
    let (left, _right) = connected(small());
    assert_eq!(write(&left, &Messages::new(16, &[10_000]), 0), 4_096);
    assert!(left.arm_writer());
    assert!(left.arm_reader());
    left.close();
    let wakes = left.notifier().take();
    assert!(wakes.reader && wakes.writer);
    left.close();
    assert!(left.notifier().take().is_empty(), "once");
    assert!(!left.arm_reader() && !left.arm_writer(), "no party waits after the end");
    assert_eq!(read(&left).1, ReadEnd::Closed(Closed::Here));
}

#[test]
fn the_end_of_the_peer_wakes_a_blocked_writer() {
    let (left, right) = connected(small());
    assert_eq!(write(&left, &Messages::new(17, &[10_000]), 0), 4_096);
    assert!(left.arm_writer());
    drop(right);
    left.notifier().take();
    assert!(!left.connection().handle_liveness());
    let wakes = left.notifier().take();
    assert!(wakes.writer && !wakes.reader);
}

#[test]
fn a_read_after_stop_reading_finds_the_end() {
    let (left, right) = connected(Side::default());
    assert!(right.arm_reader());
    right.connection().stop_reading();
    assert!(right.notifier().take().reader);
    write(&left, &Messages::new(18, &[100]), 0);
    let (received, end) = read(&right);
    assert!(received.is_empty());
    assert_eq!(end, ReadEnd::Closed(Closed::Here));
    assert_eq!(right.connection().closed(), None, "writing goes on");
}

#[test]
fn a_packet_over_the_limit_ends_the_connection() {
    let side = Side {
        packet_max_bytes: 1_000,
        ..Side::default()
    };
    let (left, right) = connected(side);
    write(&left, &Messages::new(19, &[1_000, 1_001, 5]), 0);
    let (_, end) = read(&right);
    let why = ContentsViolation::PacketTooLarge {
        bytes: 1_001,
        max: 1_000,
    };
    assert_eq!(end, ReadEnd::Closed(Closed::ContentsViolated(why)));
    assert!(!left.connection().handle_liveness(), "the peer sees it at once");
    assert_eq!(left.connection().closed(), Some(Closed::PeerGone));
}

/// The peer may have the bytes of the first transfer, so the writer must count them.
#[test]
fn a_write_whose_second_transfer_fails_tells_of_the_first() {
    let keys = Keys::pair(Cipher::Aes256Gcm).map(Some);
    for [left_keys, right_keys] in [[None, None], keys] {
        let plan = FaultPlan {
            drop_after_posts: Some(1),
            write_room_max: Some(1_000),
            ..FaultPlan::default()
        };
        let side = |keys| Side {
            keys,
            ..Side::of_link()
        };
        let (left, right) = pair::connect(&FaultFabric::new(ShmFabric, plan), &side(left_keys), &side(right_keys));
        let messages = Messages::new(20, &[3_000]);
        let gather = messages.gather(true);
        let first = left.write(&gather, 0, usize::MAX).expect("one transfer is sent");
        assert!((900..=1_000).contains(&first.at), "{first:?}");
        assert!(!first.blocked);
        assert_eq!(left.write(&gather, first.at, usize::MAX), Err(Closed::PeerGone));
        let (received, _) = read(&right);
        assert!(received.is_empty(), "the packet is not complete");
        let notices = right.connection().statistics().stream;
        assert_eq!(notices.indirect_transfers_received, 1);
    }
}
