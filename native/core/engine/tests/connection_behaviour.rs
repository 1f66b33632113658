//! Guarantees for users of a connection that is up: when reader and writer are woken, and what a read returns.

#[path = "support/both_ends.rs"]
mod both_ends;
#[path = "../../assembly/tests/support/contents.rs"]
mod contents;
#[path = "support/message.rs"]
mod message;
#[path = "support/pair.rs"]
mod pair;

use std::sync::Arc;
use std::time::Duration;

use both_ends::{ALL, connected, look, read, small, write};
use inet_rdma_assembly::{Framing, ReadLimit};
use inet_rdma_engine::connection::{Closed, ReadEnd};
use inet_rdma_fabric::Fabric;
use inet_rdma_fabric_fault::{FaultFabric, FaultPlan};
use inet_rdma_fabric_shm::ShmFabric;
use message::Messages;
use pair::Side;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

#[test]
fn a_reader_that_waits_is_woken_by_the_bytes_that_another_reader_finds() {
    let (left, right) = connected(Side::default());
    assert!(right.arm_reader());
    write(&left, &Messages::new(6, &[10, 10]), 0);
    assert!(!right.arm_reader(), "the other reader finds something");
    assert!(right.notifier().take().reader, "the first one must look, too");
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

#[test]
fn a_writer_that_waits_is_woken_by_the_room_that_another_writer_finds() {
    let (left, right) = connected(small());
    let messages = Messages::new(7, &[10_000]);
    assert_eq!(write(&left, &messages, 0), 4_096);
    assert!(left.arm_writer());
    read(&right);
    assert!(!left.arm_writer(), "the other writer finds room");
    assert!(left.notifier().take().writer, "the first one must look, too");
}

/// Sizes below and above the bound up to which a copy holds the connection's lock.
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
    // One fabric can tell without a lock that nothing has come, the other cannot.
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

/// A keepalive may bring the credits that a writer waits for.
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

/// The end of the peer's stream may bring the credits that a writer waits for.
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
fn keepalives_pass_a_full_ring_without_a_reader() {
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
    assert_eq!(ask(40, 0).0, all[40..80], "what the read before left");
    assert_eq!(ask(40, 0).0, all[80..]);
}

#[test]
fn a_read_that_arms_does_so_behind_the_last_packet() {
    let side = Side::of_link();
    let (there, here) = pair::queue_pairs(&ShmFabric, &side, &side);
    let [mut left, mut right] = [there, here].map(|qp| side.halves(qp, Arc::new(())));
    right.connection.set_self_polling();
    let messages = Messages::new(9, &[1, 2]);
    let gather = messages.gather(true);
    let mut send = || {
        let written = left.writer.write(&gather, 0, usize::MAX).expect("it is up");
        assert_eq!(written.at, gather.total());
        left.connection.queue_pair().wakeups_sent()
    };
    for wakeups in 1..4 {
        let mut out = Vec::new();
        assert_eq!(right.reader.read_and_arm(ALL, &mut out), (ReadEnd::Empty, true));
        assert!(out.is_empty());
        assert_eq!(send(), wakeups, "it sleeps");
        let one = ReadLimit { packets: 1, ..ALL };
        assert_eq!(right.reader.read_and_arm(one, &mut out), (ReadEnd::More, false));
        assert_eq!(send(), wakeups, "nobody sleeps");
        assert_eq!(right.reader.read_and_arm(ALL, &mut out), (ReadEnd::Empty, true));
        assert_eq!(contents::packets(&out), [messages.bodies(), messages.bodies()].concat());
    }
    left.writer.close();
    let end = right.reader.read_and_arm(ALL, &mut Vec::new());
    assert_eq!(end, (ReadEnd::Closed(Closed::ByPeer), false));
}

/// The peer's reading makes an event for a writer whose connection has no reader yet.
#[test]
fn a_writer_gets_an_event_before_the_reader_begins() {
    let side = small();
    let (left, right) = pair::connect(&ShmFabric, &side, &side);
    let messages = Messages::new(7, &[40_000]);
    let gather = messages.gather(true);
    let mut at = 0;
    loop {
        let written = left.write(&gather, at, usize::MAX).expect("it is up");
        at = written.at;
        if written.blocked && left.arm_writer() {
            break;
        }
    }
    assert!(at < gather.total());
    read(&right);
    let mut fds = [PollFd::from_borrowed_fd(left.queue_pair().event_fd(), PollFlags::IN)];
    let bound = Timespec { tv_sec: 10, tv_nsec: 0 };
    assert_eq!(poll(&mut fds, Some(&bound)), Ok(1));
}
