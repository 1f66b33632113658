//! The choice between ring and landing buffers, and the use of landing buffers.

#[path = "support/both_ends.rs"]
mod both_ends;
#[path = "../../assembly/tests/support/contents.rs"]
mod contents;
#[path = "support/message.rs"]
mod message;
#[path = "support/pair.rs"]
mod pair;

use std::time::{Duration, Instant};

use both_ends::{ALL, carry, connected, far, look, read, write};
use inet_rdma_assembly::{ReadLimit, Received};
use inet_rdma_engine::connection::{ReadEnd, ZeroCopy};
use inet_rdma_fabric::Fabric;
use inet_rdma_fabric_fault::{FaultFabric, FaultPlan};
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_stream::Mode;
use message::Messages;
use pair::{BOUND, Conn, Side};

#[test]
fn small_packets_share_one_transfer_and_one_buffer() {
    let (left, right) = connected(Side::default());
    let messages = Messages::new(1, &[50; 200]);
    assert_eq!(write(&left, &messages, 0), 200 * 54);
    let (received, end) = read(&right);
    assert_eq!(end, ReadEnd::Empty);
    assert!(matches!(received.as_slice(), [Received::Batch { .. }]));
    assert_eq!(contents::packets(&received), messages.bodies());
    let sent = left.connection().statistics();
    assert_eq!(sent.stream.indirect_transfers_sent, 1);
    assert_eq!(sent.stream.direct_transfers_sent, 0);
    assert_eq!(sent.packets_sent, 200);
    assert_eq!(right.connection().statistics().packets_received, 200);
}

#[test]
fn bulk_of_a_peer_that_is_not_trusted_is_copied_out() {
    let (left, right) = connected(Side {
        zero_copy: ZeroCopy::Never,
        ..Side::default()
    });
    let messages = Messages::new(2, &[65_000; 40]);
    for body in messages.bodies() {
        let one = Messages::of(vec![body.clone()]);
        let received = carry(&left, &right, &one);
        assert_eq!(contents::packets(&received), one.bodies());
        assert!(!received.iter().any(|part| matches!(part, Received::Landed(..))));
    }
    let sent = left.connection().statistics().stream;
    assert!(sent.direct_bytes_sent > 9 * sent.indirect_bytes_sent, "{sent:?}");
}

#[test]
fn a_write_is_bounded_whatever_buffers_the_peer_advertises() {
    const MIB: usize = 1 << 20;
    let side = Side {
        landing_buffers: 4,
        landing_bytes: 8 << 20,
        ..Side::default()
    };
    let (left, right) = connected(side);
    // Bulk through the ring makes the peer advertise.
    let first = Messages::new(1, &[65_000]);
    assert_eq!(carry(&left, &right, &first).len(), 1);
    look(&left);
    let large = Messages::new(2, &[4 * MIB]);
    let written = left
        .write(&large.gather(true), 0, 4_096)
        .expect("a connection that is up");
    assert!(
        left.connection().statistics().stream.direct_bytes_sent > 0,
        "{written:?}"
    );
    assert!(written.at <= MIB, "{written:?}");
}

#[test]
fn bulk_goes_directly_and_lands_without_a_copy() {
    let (left, right) = connected(Side::default());
    let messages = Messages::new(2, &[65_000; 40]);
    let mut landed = 0;
    for body in messages.bodies() {
        let one = Messages::of(vec![body.clone()]);
        let received = carry(&left, &right, &one);
        assert_eq!(contents::packets(&received), one.bodies());
        landed += received
            .iter()
            .filter(|part| matches!(part, Received::Landed(..)))
            .count();
    }
    let sent = left.connection().statistics().stream;
    assert!(sent.direct_bytes_sent > 9 * sent.indirect_bytes_sent, "{sent:?}");
    assert!(landed >= 36, "{landed} of 40 landed");
    let received = right.connection().statistics().stream;
    assert_eq!(received.direct_bytes_received, sent.direct_bytes_sent);
    assert_eq!(received.indirect_bytes_received, sent.indirect_bytes_sent);
}

/// One packet, or nothing.
fn read_one(socket: &Conn) -> usize {
    let mut out = Vec::new();
    socket.read(ReadLimit { packets: 1, ..ALL }, &mut out);
    contents::packets(&out).len()
}

#[test]
fn bulk_that_never_pauses_leaves_the_ring_over_a_distance() {
    let (left, right) = far(Side::default());
    let messages = Messages::new(31, &[65_000; 400]);
    let total = messages.gather(true).total();
    let (mut at, mut packets, mut half) = (0, 0, None);
    let end = Instant::now() + BOUND;
    while packets < messages.bodies().len() {
        assert!(Instant::now() < end, "{at} of {total}");
        at = write(&left, &messages, at);
        // Read one packet at a time, so that the writer learns of room in small steps: enough to go on, too early to
        // pause.
        packets += read_one(&right);
        if at > total / 2 {
            half.get_or_insert_with(|| left.connection().statistics().stream);
        }
    }
    let (half, all) = (
        half.expect("half of it was sent"),
        left.connection().statistics().stream,
    );
    assert!(half.indirect_transfers_sent > 0, "nothing was advertised at first");
    let direct = all.direct_bytes_sent - half.direct_bytes_sent;
    let indirect = all.indirect_bytes_sent - half.indirect_bytes_sent;
    assert!(direct > 9 * indirect, "{direct} bytes direct, {indirect} indirect");
}

#[test]
fn near_by_no_more_is_advertised_than_stays_in_a_cache() {
    let side = Side {
        landing_buffers: 64,
        ..Side::default()
    };
    let advertised_after = |fabric: &dyn Fabric, bytes| {
        let (left, right) = pair::connect(fabric, &side, &side);
        for _ in 0..100 {
            drop(carry(&left, &right, &Messages::new(5, &[bytes])));
        }
        usize::from(right.connection().statistics().landing_used)
    };
    // The window depends on the bytes of a transfer, not on the size of the buffer.
    assert_eq!(advertised_after(&ShmFabric, 65_000), (1 << 20) / 65_004);
    assert_eq!(advertised_after(&ShmFabric, 20_000), (1 << 20) / 20_004);
    let plan = FaultPlan {
        distance: Duration::from_nanos(1),
        ..FaultPlan::default()
    };
    // All buffers except for the one in which the last message was handed over.
    assert_eq!(advertised_after(&FaultFabric::new(ShmFabric, plan), 65_000), 64 - 1);
}

#[test]
fn bulk_keeps_to_a_ring_that_holds_far_more_than_the_landing_buffers() {
    let direct = |landing_buffers| {
        let side = Side {
            landing_buffers,
            ..Side::default()
        };
        let (left, right) = connected(side);
        for _ in 0..20 {
            carry(&left, &right, &Messages::new(6, &[65_000]));
        }
        left.connection().statistics().stream.direct_transfers_sent
    };
    // Landing buffers of 69,632 bytes each, and a ring of 262,144.
    assert_eq!(direct(1), 0);
    assert!(direct(2) > 0);
}

#[test]
fn landing_buffers_come_back() {
    let (left, right) = connected(Side::default());
    let received = carry(&left, &right, &Messages::new(3, &[65_000; 60]));
    let held = received
        .iter()
        .filter(|part| matches!(part, Received::Landed(..)))
        .count();
    assert!(held > 0);
    let used = usize::from(right.connection().statistics().landing_used);
    assert!(used >= held, "{held} held, {used} used");
    drop(received);
    let advertised = usize::from(right.connection().statistics().landing_used);
    assert_eq!(advertised, used - held, "all that the user gave back are free");
    // The bulk has ended: advertised buffers are used up, and none is advertised again.
    for _ in 0..100 {
        carry(&left, &right, &Messages::new(4, &[10]));
    }
    assert_eq!(right.connection().statistics().landing_used, 0);
}

#[test]
fn landing_buffers_outlive_their_connection() {
    let (left, right) = connected(Side::default());
    let messages = Messages::new(5, &[65_000; 10]);
    let received = carry(&left, &right, &messages);
    assert!(received.iter().any(|part| matches!(part, Received::Landed(..))));
    right.close();
    drop((left, right));
    assert_eq!(contents::packets(&received), messages.bodies());
}

#[test]
fn modes_are_kept_to() {
    for (mode, direct, indirect) in [(Mode::DirectOnly, true, false), (Mode::IndirectOnly, false, true)] {
        let (left, right) = connected(Side {
            mode,
            ..Side::default()
        });
        // The reader reads first: if it advertises, it does so here.
        assert_eq!(read(&right).1, ReadEnd::Empty);
        let messages = Messages::new(6, &[100, 65_000, 10, 300_000, 0, 30_000]);
        let received = carry(&left, &right, &messages);
        assert_eq!(contents::packets(&received), messages.bodies());
        let sent = left.connection().statistics().stream;
        assert_eq!(sent.direct_bytes_sent > 0, direct, "{mode:?}");
        assert_eq!(sent.indirect_bytes_sent > 0, indirect, "{mode:?}");
    }
}
