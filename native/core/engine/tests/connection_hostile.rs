//! A peer that breaks the rules ends its connection, with a reason, and nothing else. The hostile peer has a queue pair
//! without a stream: it sends any bytes.

#[path = "support/message.rs"]
mod message;
#[path = "support/pair.rs"]
mod pair;
#[path = "../../fabric/tests/support/post.rs"]
mod post;

use std::sync::Arc;

use inet_rdma_assembly::ReadLimit;
use inet_rdma_engine::connection::{Closed, ReadEnd};
use inet_rdma_fabric::QueuePair;
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_stream::{Advert, Control, ControlBody, Notice, Phase, RemoteAddress, Seq};
use message::Messages;
use pair::signal::Wakes;
use pair::{Conn, Side};
use post::Post;
use proptest::prelude::*;

/// The hostile end and its victim, whose reader waits.
fn attacked() -> (Box<dyn QueuePair>, Arc<Conn>) {
    let side = Side::default();
    let (hostile, qp) = pair::queue_pairs(&ShmFabric, &side, &side);
    let victim = side.connection(qp);
    victim.connection().attend(false);
    assert!(victim.arm_reader());
    (hostile, victim)
}

/// The victim looks, finds the violation and tells its user; the connection is over for both sides.
fn assert_ended(hostile: &dyn QueuePair, victim: &Conn, wakes: Wakes) {
    assert!(wakes.reader, "nobody told the reader");
    assert_over(hostile, victim);
}

fn assert_over(hostile: &dyn QueuePair, victim: &Conn) {
    let closed = victim.connection().closed().expect("it must be over");
    assert!(matches!(closed, Closed::PeerMisbehaved(_)), "{closed:?}");
    assert!(hostile.check_alive().is_err(), "the peer must see it");
    assert_eq!(victim.connection().tick(), Err(closed.clone()));
    // Bytes from before the violation may still be read; then comes the reason.
    let end = loop {
        match victim.read(ReadLimit::bytes(usize::MAX), &mut Vec::new()) {
            ReadEnd::More => {}
            end => break end,
        }
    };
    assert_eq!(end, ReadEnd::Closed(closed));
}

fn control(body: ControlBody, credits: u16) -> [u8; inet_rdma_stream::CONTROL_BYTES] {
    Control { credits, body }.emit()
}

fn advert(address: u64, bytes: u32) -> ControlBody {
    ControlBody::Advert(Advert {
        target: RemoteAddress { key: 1, address },
        bytes,
        fill: false,
        seq: Seq(0),
        phase: Phase(0),
    })
}

/// Writes bytes into the ring, with their notice.
fn write(hostile: &dyn QueuePair, offset: u64, bytes: &[u8]) {
    let mut target = hostile.remote_hello().ring;
    target.address += offset;
    let notice = Notice {
        direct: false,
        bytes: u32::try_from(bytes.len()).expect("a small write"),
    };
    hostile.post(&[bytes], target, notice).expect("room");
}

/// Sends a notice without bytes.
fn announce(hostile: &dyn QueuePair, direct: bool, bytes: u32) {
    let ring = hostile.remote_hello().ring;
    // The fabric may refuse to send it; then nothing happened.
    let _ = hostile.post(&[], ring, Notice { direct, bytes });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn garbage_control_messages(kind: u8, flags: u8, rest: [u8; 32], tail: [u8; 6]) {
        let mut bytes = [0; inet_rdma_stream::CONTROL_BYTES];
        bytes[0] = kind;
        bytes[1] = flags;
        bytes[2..34].copy_from_slice(&rest);
        bytes[34..].copy_from_slice(&tail);
        prop_assume!(Control::parse(&bytes).is_err());
        let (hostile, victim) = attacked();
        hostile.post_control(&bytes).expect("room");
        victim.connection().attend(false);
        let wakes = victim.notifier().take();
        assert_ended(&*hostile, &victim, wakes);
    }

    /// Well-formed messages about events that did not happen.
    #[test]
    fn controls_that_make_no_sense(number in 1u64.., credits: u16, which in 0..5usize) {
        let body = match which {
            0 => ControlBody::Ack { freed: Seq(number) },
            1 => ControlBody::Advert(Advert {
                target: RemoteAddress { key: 1, address: 0 },
                bytes: 10,
                fill: false,
                seq: Seq(number),
                phase: Phase(0),
            }),
            2 => ControlBody::Advert(Advert {
                target: RemoteAddress { key: 1, address: 0 },
                bytes: 10,
                fill: false,
                seq: Seq(0),
                phase: Phase(number),
            }),
            3 => advert(u64::MAX - 5, 10),
            _ => ControlBody::Credit,
        };
        let (hostile, victim) = attacked();
        // No credit was spent: every returned credit is one too many.
        let credits = if which == 4 { credits.max(1) } else { 0 };
        hostile.post_control(&control(body, credits)).expect("room");
        victim.connection().attend(false);
        let wakes = victim.notifier().take();
        assert_ended(&*hostile, &victim, wakes);
    }

    #[test]
    fn wild_notices(bytes in 262_145..u32::MAX, direct: bool) {
        let (hostile, victim) = attacked();
        announce(&*hostile, direct, bytes & !(1 << 31) | (1 << 20));
        victim.connection().attend(false);
        let wakes = victim.notifier().take();
        assert_ended(&*hostile, &victim, wakes);
    }
}

#[test]
fn a_direct_transfer_that_nothing_was_advertised_for() {
    let (hostile, victim) = attacked();
    announce(&*hostile, true, 1);
    victim.connection().attend(false);
    let wakes = victim.notifier().take();
    assert_ended(&*hostile, &victim, wakes);
}

#[test]
fn more_into_the_ring_than_is_free() {
    let (hostile, victim) = attacked();
    write(&*hostile, 0, &[0; 200_000]);
    announce(&*hostile, false, 100_000);
    victim.connection().attend(false);
    let wakes = victim.notifier().take();
    assert_ended(&*hostile, &victim, wakes);
}

#[test]
fn an_end_that_is_no_end() {
    let end = |at: u64| control(ControlBody::Finish { end: Seq(at) }, 0);
    for (first, second) in [(5, 5), (5, 6)] {
        let (hostile, victim) = attacked();
        hostile.post_control(&end(first)).expect("room");
        hostile.post_control(&end(second)).expect("room");
        victim.connection().attend(false);
        let wakes = victim.notifier().take();
        assert_ended(&*hostile, &victim, wakes);
    }
    let (hostile, victim) = attacked();
    hostile.post_control(&end(3)).expect("room");
    write(&*hostile, 0, &[0; 4]);
    victim.connection().attend(false);
    let wakes = victim.notifier().take();
    assert_ended(&*hostile, &victim, wakes);
}

#[test]
fn more_messages_than_credits_allow() {
    let (hostile, victim) = attacked();
    let tick = control(ControlBody::Tick, 0);
    let mut told = false;
    // The hostile peer takes credits and returns none.
    for _ in 0..10_000 {
        if victim.connection().closed().is_some() {
            break;
        }
        while hostile.post_control(&tick).is_ok() {}
        victim.connection().attend(false);
        let wakes = victim.notifier().take();
        told |= wakes.reader;
    }
    assert!(told);
    assert_over(&*hostile, &victim);
}

#[test]
fn a_length_that_no_memory_holds_is_refused() {
    let (hostile, victim) = attacked();
    write(&*hostile, 0, &[0xff; 10]);
    victim.connection().attend(false);
    let wakes = victim.notifier().take();
    assert!(wakes.reader);
    let end = victim.read(ReadLimit::bytes(usize::MAX), &mut Vec::new());
    assert!(matches!(end, ReadEnd::Closed(Closed::ContentsViolated(_))), "{end:?}");
    assert!(matches!(
        victim.connection().closed(),
        Some(Closed::ContentsViolated(_))
    ));
    assert!(hostile.check_alive().is_err());
}

#[test]
fn an_event_without_a_cause_ends_nothing() {
    let (_hostile, victim) = attacked();
    assert!(victim.connection().drain_event());
    victim.connection().attend(false);
    let wakes = victim.notifier().take();
    assert!(wakes.is_empty());
    assert!(victim.connection().handle_liveness());
    assert_eq!(victim.connection().closed(), None);
}

/// The reader is told even if another party finds the violation: here the writer, whose call returns the reason.
#[test]
fn a_writer_that_finds_out_tells_the_reader() {
    let wild = control(advert(1 << 40, 69_632), 0);
    let garbage = [0xee; inet_rdma_stream::CONTROL_BYTES];
    for (what, message, looks_before) in [
        ("a buffer outside of the memory", wild, true),
        ("garbage", garbage, false),
    ] {
        let (hostile, victim) = attacked();
        hostile.post_control(&message).expect("room");
        if looks_before {
            victim.connection().attend(false);
            assert!(
                victim.notifier().take().is_empty(),
                "{what}: it looks good until it is used"
            );
        }
        let packets = Messages::new(1, &[60_000; 20]);
        let gather = packets.gather(true);
        // Without an advertisement the writer looks when the ring is full.
        let closed = victim.write(&gather, 0, usize::MAX).expect_err("the reason");
        assert!(victim.notifier().take().reader, "{what}: nobody told the reader");
        assert!(matches!(closed, Closed::PeerMisbehaved(_)), "{what}: {closed:?}");
        assert_over(&*hostile, &victim);
    }
}
