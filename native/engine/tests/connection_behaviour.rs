//! What users of a connection may rely on, one behaviour each, both ends driven by hand.

#[path = "../../assembly/tests/support/contents.rs"]
mod contents;
#[path = "support_connection/message.rs"]
mod message;
#[path = "support_connection/pair.rs"]
mod pair;

use std::sync::Arc;
use std::time::{Duration, Instant};

use inet_rdma_assembly::{Framing, ReadLimit, Received};
use inet_rdma_engine::connection::{Closed, ReadEnd, ZeroCopy};
use inet_rdma_fabric::Fabric;
use inet_rdma_fabric_fault::{FaultFabric, FaultPlan};
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_stream::Mode;
use message::Messages;
use pair::{BOUND, Conn, Side};

const ALL: ReadLimit = ReadLimit {
    bytes: usize::MAX,
    packets: usize::MAX,
    exact: 0,
};

fn connected(side: Side) -> (Arc<Conn>, Arc<Conn>) {
    let (left, right) = pair::connect(&ShmFabric, &side, &side);
    look(&left);
    look(&right);
    (left, right)
}

/// Far from each other.
fn far(side: Side) -> (Arc<Conn>, Arc<Conn>) {
    let plan = FaultPlan {
        distance: Duration::from_millis(2),
        ..FaultPlan::default()
    };
    pair::connect(&FaultFabric::new(ShmFabric, plan), &side, &side)
}

/// One look of a polling thread; whom it would tell.
fn look(socket: &Conn) -> (bool, bool) {
    socket.notifier().take();
    assert!(!socket.connection().attend(false));
    let wakes = socket.notifier().take();
    (wakes.reader, wakes.writer)
}

fn read(socket: &Conn) -> (Vec<Received<Vec<u8>>>, ReadEnd) {
    let mut out = Vec::new();
    loop {
        let end = socket.read(ALL, &mut out);
        if end != ReadEnd::More {
            return (out, end);
        }
    }
}

/// Writes what fits; how far it came.
fn write(socket: &Conn, messages: &Messages, at: usize) -> usize {
    let gather = messages.gather(socket.framing() == Framing::Length4);
    socket.write(&gather, at, usize::MAX).expect("it is up").at
}

/// Writes all, while the peer reads.
fn carry(from: &Conn, to: &Conn, messages: &Messages) -> Vec<Received<Vec<u8>>> {
    let total = messages.gather(from.framing() == Framing::Length4).total();
    let mut out = Vec::new();
    let mut at = 0;
    for _ in 0..10_000 {
        look(from);
        at = write(from, messages, at);
        let (received, end) = read(to);
        assert_eq!(end, ReadEnd::Empty);
        out.extend(received);
        if at == total && contents::packets(&out).len() == messages.bodies().len() {
            return out;
        }
    }
    panic!("wrote {at} of {total}");
}

fn small() -> Side {
    Side {
        ring_bytes: 4_096,
        receive_slots: 8,
        ..Side::default()
    }
}

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
    // Keepalives take what transfers leave; the peer has returned nothing yet.
    for _ in 0..4 {
        left.connection().tick().expect("a connection that is up");
    }
    left.close();
    let (received, end) = read(&right);
    assert_eq!(contents::packets(&received), sent);
    assert_eq!(end, ReadEnd::Closed(Closed::ByPeer));
}

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
        // One at a time, so that room is told bit by bit: enough for the writer to go on, and too early for it to
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
    // What one transfer fills is what counts, not the size of the buffer.
    assert_eq!(advertised_after(&ShmFabric, 65_000), (1 << 20) / 65_004);
    assert_eq!(advertised_after(&ShmFabric, 20_000), (1 << 20) / 20_004);
    let plan = FaultPlan {
        distance: Duration::from_nanos(1),
        ..FaultPlan::default()
    };
    // All but the one in which the last message was handed over.
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
    // 69,632 bytes each, and a ring of 262,144.
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
    // No more bulk: what is advertised is used up and not advertised again.
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
        // The reader is there first: that is when it advertises, if it does.
        assert_eq!(read(&right).1, ReadEnd::Empty);
        let messages = Messages::new(6, &[100, 65_000, 10, 300_000, 0, 30_000]);
        let received = carry(&left, &right, &messages);
        assert_eq!(contents::packets(&received), messages.bodies());
        let sent = left.connection().statistics().stream;
        assert_eq!(sent.direct_bytes_sent > 0, direct, "{mode:?}");
        assert_eq!(sent.indirect_bytes_sent > 0, indirect, "{mode:?}");
    }
}

#[test]
fn a_blocked_writer_is_woken_when_there_is_room() {
    let (left, right) = connected(small());
    let messages = Messages::new(7, &[10_000]);
    let gather = messages.gather(true);
    let written = left.write(&gather, 0, usize::MAX).expect("it is up");
    assert!(written.blocked);
    assert_eq!(written.at, 4_096, "the ring is full");
    assert!(left.arm_writer());
    assert_eq!(look(&left), (false, false), "nobody has read yet");
    assert_eq!(read(&right).1, ReadEnd::Empty);
    assert_eq!(look(&left), (false, true));
    assert_eq!(look(&left), (false, false), "once");
    assert!(left.write(&gather, written.at, usize::MAX).expect("it is up").at > 4_096);
}

/// Some copy with the connection's lock, some without.
#[test]
fn writers_take_turns_and_their_packets_stay_whole() {
    const THREADS: u64 = 16;
    const WRITES: u64 = 50;
    const SIZES: [usize; 5] = [10, 40_000, 2_048, 100, 3_000];
    let side = Side {
        ring_bytes: 1 << 25,
        receive_slots: 4_096,
        ..Side::default()
    };
    let (left, right) = connected(side);
    let of = |seed| Messages::new(seed, &[SIZES[seed as usize % SIZES.len()]]);
    std::thread::scope(|scope| {
        for first in 0..THREADS {
            let left = &left;
            scope.spawn(move || {
                for seed in (first * WRITES..).take(WRITES as usize) {
                    let one = of(seed);
                    assert_eq!(write(left, &one, 0), one.gather(true).total());
                }
            });
        }
    });
    let mut arrived = contents::packets(&read(&right).0);
    let mut sent: Vec<_> = (0..THREADS * WRITES)
        .flat_map(|seed| of(seed).bodies().to_vec())
        .collect();
    arrived.sort_unstable();
    sent.sort_unstable();
    assert!(arrived == sent, "{} packets of {}", arrived.len(), sent.len());
    assert_eq!(left.connection().statistics().packets_sent, THREADS * WRITES);
}

#[test]
fn a_writer_that_finds_room_need_not_wait() {
    let (left, right) = connected(small());
    let messages = Messages::new(8, &[10_000]);
    assert_eq!(write(&left, &messages, 0), 4_096);
    read(&right);
    look(&left);
    left.notifier().take();
    assert!(!left.arm_writer());
    assert!(left.notifier().take().is_empty());
}

#[test]
fn a_waiting_reader_is_woken_once() {
    let (left, right) = connected(Side::default());
    assert_eq!(read(&right).1, ReadEnd::Empty);
    assert!(right.arm_reader());
    assert_eq!(look(&right), (false, false));
    let messages = Messages::new(9, &[1, 2]);
    write(&left, &messages, 0);
    assert_eq!(look(&right), (true, false));
    assert_eq!(look(&right), (false, false), "once");
    assert!(!right.arm_reader(), "there is something to read");
    assert_eq!(contents::packets(&read(&right).0), messages.bodies());
}

#[test]
fn looking_ends_where_nothing_comes_and_finds_what_does() {
    // The one fabric can say without a lock that nothing has come, the other cannot.
    let fabrics: [&dyn Fabric; 2] = [&ShmFabric, &FaultFabric::new(ShmFabric, FaultPlan::default())];
    for fabric in fabrics {
        let (left, right) = pair::connect(fabric, &Side::default(), &Side::default());
        let spin = || right.connection().spin(Duration::from_micros(50));
        assert!(!spin());
        write(&left, &Messages::new(7, &[10]), 0);
        assert!(spin());
        assert_eq!(contents::packets(&read(&right).0).len(), 1);
        assert!(!spin());
    }
}

#[test]
fn a_reader_that_looks_before_it_is_woken_costs_no_wakeup() {
    let (left, right) = connected(Side::default());
    right.connection().set_self_polling();
    assert!(right.arm_reader());
    let sent = left.queue_pair().wakeups_sent();
    assert_eq!(read(&right).1, ReadEnd::Empty);
    let messages = Messages::new(9, &[1, 2]);
    write(&left, &messages, 0);
    assert_eq!(left.queue_pair().wakeups_sent(), sent, "nobody sleeps");
    assert_eq!(look(&right), (false, false), "nobody waits");
    assert_eq!(contents::packets(&read(&right).0), messages.bodies());
    assert!(right.arm_reader());
    write(&left, &messages, 0);
    assert_eq!(look(&right), (true, false), "it waits again");
}

/// A keepalive may be the one message that gives back the credits that a writer waits for.
#[test]
fn credits_that_come_with_a_keepalive_wake_the_writer() {
    let (left, right) = connected(small());
    let mut sent = 0;
    while write(&left, &Messages::new(sent, &[1]), 0) == 5 {
        sent += 1;
    }
    assert!(
        sent > 1 && left.connection().statistics().stream.credit_stalls == 1,
        "out of credits, not of room"
    );
    assert!(left.arm_writer());
    right.connection().tick().expect("it is up");
    assert_eq!(look(&left), (false, true));
}

/// So may the end of the peer's stream.
#[test]
fn credits_that_come_with_a_half_close_wake_the_writer() {
    let (left, right) = connected(small());
    while write(&left, &Messages::new(1, &[1]), 0) == 5 {}
    assert!(left.arm_writer());
    right.finish().expect("it is up");
    look(&right);
    assert!(look(&left).1);
}

#[test]
fn keepalives_pass_a_full_ring_that_nobody_reads() {
    let (left, right) = connected(small());
    assert_eq!(write(&left, &Messages::new(10, &[10_000]), 0), 4_096);
    for number in 1..=20 {
        left.connection().tick().expect("it is up");
        look(&right);
        look(&left);
        assert_eq!(right.connection().packets().0, number);
        assert_eq!(left.connection().packets().1, number);
    }
    assert_eq!(right.connection().statistics().stream.indirect_bytes_received, 4_096);
}

#[test]
fn keepalives_pass_when_transfers_have_spent_their_credits() {
    let (left, right) = connected(small());
    while write(&left, &Messages::new(1, &[1]), 0) == 5 {}
    left.connection().tick().expect("it is up");
    look(&right);
    assert_eq!(right.connection().statistics().stream.ticks_received, 1);
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
fn what_was_written_before_a_close_can_be_read() {
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
fn a_close_wakes_all_who_wait_here() {
    let (left, _right) = connected(small());
    assert_eq!(write(&left, &Messages::new(16, &[10_000]), 0), 4_096);
    assert!(left.arm_writer());
    assert!(left.arm_reader());
    left.close();
    let wakes = left.notifier().take();
    assert!(wakes.reader && wakes.writer);
    left.close();
    assert!(left.notifier().take().is_empty(), "once");
    assert!(
        !left.arm_reader() && !left.arm_writer(),
        "nobody waits for what is over"
    );
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
fn whoever_stops_reading_finds_the_end() {
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
    assert!(matches!(end, ReadEnd::Closed(Closed::PeerMisbehaved(_))), "{end:?}");
    assert!(!left.connection().handle_liveness(), "the peer sees it at once");
    assert_eq!(left.connection().closed(), Some(Closed::PeerGone));
}

#[test]
fn a_raw_reader_gets_just_what_it_asks_for() {
    let side = Side {
        framing: Framing::Raw,
        ..Side::default()
    };
    let (left, right) = connected(side);
    let messages = Messages::new(20, &[100]);
    let ask = |bytes: usize, exact: usize| {
        let mut out = Vec::new();
        let end = right.read(
            ReadLimit {
                bytes,
                packets: 1,
                exact,
            },
            &mut out,
        );
        (contents::packets(&out).concat(), end)
    };
    write(&left, &messages, 0);
    let all = &messages.bodies()[0];
    assert_eq!(ask(usize::MAX, 30), (all[..30].to_vec(), ReadEnd::More));
    assert_eq!(ask(usize::MAX, 200), (vec![], ReadEnd::Empty));
    assert_eq!(ask(usize::MAX, 20), (all[30..50].to_vec(), ReadEnd::More));
    assert_eq!(ask(usize::MAX, 25), (all[50..75].to_vec(), ReadEnd::More));
    assert_eq!(
        ask(usize::MAX, 25),
        (all[75..].to_vec(), ReadEnd::More),
        "just what is left"
    );
    assert_eq!(ask(usize::MAX, 1), (vec![], ReadEnd::Empty));
    write(&left, &messages, 0);
    assert_eq!(ask(40, 0).0, all[..40]);
    assert_eq!(ask(usize::MAX, 61).0, vec![]);
    assert_eq!(ask(40, 0).0, all[40..80], "what the read before left behind");
    assert_eq!(ask(40, 0).0, all[80..]);
}
