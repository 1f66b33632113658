//! A landing buffer is handed over without a copy once its window is closed, so that the peer cannot write there.

#[path = "../../assembly/tests/support/contents.rs"]
mod contents;
#[path = "support/message.rs"]
mod message;
#[path = "support/pair.rs"]
mod pair;
#[path = "../../fabric/tests/support/post.rs"]
mod post;

use std::sync::Arc;
use std::time::Instant;

use inet_rdma_assembly::{ReadLimit, Received};
use inet_rdma_engine::connection::{Closed, ReadEnd, ZeroCopy};
use inet_rdma_fabric::{FabricError, WindowState};
use inet_rdma_fabric_fault::{Exposing, FaultFabric, FaultPlan, Windows};
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_stream::{Notice, RemoteAddress};
use message::Messages;
use pair::{BOUND, Conn, Side};
use post::Post;

/// Two ends, and the windows of both.
fn windowed(side: Side, plan: FaultPlan) -> (Arc<Conn>, Arc<Conn>, Arc<Windows>) {
    let windows = Arc::<Windows>::default();
    let plan = FaultPlan {
        exposing: Exposing::Windows(Arc::clone(&windows)),
        ..plan
    };
    let (left, right) = pair::connect(&FaultFabric::new(ShmFabric, plan), &side, &side);
    (left, right, windows)
}

const ALL: ReadLimit = ReadLimit {
    bytes: usize::MAX,
    packets: usize::MAX,
    exact: 0,
};

fn read(to: &Conn) -> (Vec<Received<Vec<u8>>>, ReadEnd) {
    let mut received = Vec::new();
    loop {
        match to.read(ALL, &mut received) {
            ReadEnd::More => {}
            end => return (received, end),
        }
    }
}

/// Sends the messages while the other side reads. Returns the received packets.
fn carry(from: &Conn, to: &Conn, messages: &Messages) -> Vec<Received<Vec<u8>>> {
    let gather = messages.gather(true);
    let (mut at, mut received) = (0, Vec::new());
    let end = Instant::now() + BOUND;
    while at < gather.total() || contents::packets(&received).len() < messages.bodies().len() {
        assert!(Instant::now() < end, "{at} of {} written", gather.total());
        at = from.write(&gather, at, usize::MAX).expect("the peer reads").at;
        received.extend(read(to).0);
    }
    assert_eq!(contents::packets(&received), messages.bodies());
    received
}

/// Writes all messages without a read: the peer has buffers for them.
fn send(from: &Conn, messages: &Messages) {
    let gather = messages.gather(true);
    let written = from.write(&gather, 0, usize::MAX).expect("the peer is there");
    assert_eq!(written.at, gather.total());
}

fn bulk(seed: u64) -> Messages {
    Messages::new(seed, &[65_000; 4])
}

fn landed(received: &[Received<Vec<u8>>]) -> usize {
    let is_landed = |part: &&Received<Vec<u8>>| matches!(part, Received::Landed(..));
    received.iter().filter(is_landed).count()
}

/// Makes the peer advertise, and drops the packets that land meanwhile.
fn warm_up(left: &Conn, right: &Conn) {
    let received = carry(left, right, &bulk(1));
    drop(received);
    assert_eq!(read(right).1, ReadEnd::Empty);
}

/// Plays a peer that breaks the protocol: writes to addresses of earlier advertisements. Returns how many writes
/// succeeded.
fn write_again(left: &Conn, targets: &[RemoteAddress]) -> usize {
    let notice = Notice { direct: true, bytes: 8 };
    let writes = targets.iter().map(|target| {
        let inside = RemoteAddress {
            address: target.address + 64,
            ..*target
        };
        left.queue_pair().post(&[b"!!!!!!!!"], inside, notice)
    });
    let refused = |result: &Result<(), FabricError>| matches!(result, Err(FabricError::PeerMisbehaved(_)));
    let (refused, through): (Vec<_>, Vec<_>) = writes.partition(refused);
    through.iter().for_each(|result| assert!(result.is_ok()));
    assert_eq!(refused.len() + through.len(), targets.len());
    through.len()
}

#[test]
fn a_landed_packet_is_handed_over_when_its_window_is_closed() {
    let (left, right, windows) = windowed(Side::default(), FaultPlan::default());
    warm_up(&left, &right);
    windows.hold(true);
    let messages = bulk(2);
    send(&left, &messages);
    assert_eq!(left.connection().statistics().stream.indirect_bytes_received, 0);
    for _ in 0..3 {
        let (received, end) = read(&right);
        assert_eq!((received.len(), end), (0, ReadEnd::Empty), "the peer could write it");
    }
    assert!(right.arm_reader(), "nothing to read wakes nobody");
    assert_eq!(windows.count(WindowState::Closing), 4);
    windows.hold(false);
    right.connection().attend(false);
    let (received, _) = read(&right);
    assert_eq!(landed(&received), 4);
    assert_eq!(contents::packets(&received), messages.bodies());
    assert_eq!(right.connection().statistics().zero_copy_packets, 4);
}

#[test]
fn the_peer_cannot_change_what_was_handed_over() {
    let (left, right, windows) = windowed(Side::default(), FaultPlan::default());
    warm_up(&left, &right);
    // The buffers of the next transfers.
    let told = windows.targets();
    let messages = bulk(2);
    send(&left, &messages);
    // This look finds the transfers and begins to close their windows; the next one finds them closed.
    right.connection().attend(false);
    let (received, _) = read(&right);
    assert_eq!(landed(&received), 4);
    let open = windows.count(WindowState::Open);
    let through = write_again(&left, &told);
    assert!(through <= open && through < told.len(), "{through} of {}", told.len());
    assert_eq!(contents::packets(&received), messages.bodies());
}

/// Shows that the test above can fail: without windows the writes succeed.
#[test]
fn a_peer_that_is_trusted_could_change_what_was_handed_over() {
    let side = Side {
        zero_copy: ZeroCopy::Always,
        ..Side::default()
    };
    let (left, right, windows) = windowed(side, FaultPlan::default());
    warm_up(&left, &right);
    assert!(windows.targets().is_empty());
    let messages = bulk(2);
    send(&left, &messages);
    let (received, _) = read(&right);
    assert_eq!(landed(&received), 4);
    // The landing area of a memory file has key 2.
    let target = |index| RemoteAddress {
        key: 2,
        address: index * u64::from(side.landing_bytes),
    };
    let all: Vec<RemoteAddress> = (0..u64::from(side.landing_buffers)).map(target).collect();
    assert_eq!(write_again(&left, &all), all.len());
    assert_ne!(contents::packets(&received), messages.bodies());
}

#[test]
fn nothing_overtakes_what_waits_for_its_window() {
    let (left, right, windows) = windowed(Side::default(), FaultPlan::default());
    warm_up(&left, &right);
    windows.hold(true);
    let (large, small) = (bulk(2), Messages::new(3, &[100; 10]));
    send(&left, &large);
    send(&left, &small);
    let (received, end) = read(&right);
    assert_eq!((received.len(), end), (0, ReadEnd::Empty));
    left.finish().expect("it is up");
    let (received, end) = read(&right);
    assert_eq!((received.len(), end), (0, ReadEnd::Empty), "the end follows it, too");
    assert!(!right.connection().is_end());
    windows.hold(false);
    let (received, end) = read(&right);
    assert_eq!(end, ReadEnd::Closed(Closed::ByPeer));
    assert!(right.connection().is_end());
    assert_eq!(landed(&received), 4);
    assert_eq!(contents::packets(&received), [large.bodies(), small.bodies()].concat());
}

#[test]
fn a_packet_whose_window_is_open_at_the_end_is_copied_out() {
    let (left, right, windows) = windowed(Side::default(), FaultPlan::default());
    warm_up(&left, &right);
    windows.hold(true);
    let messages = bulk(2);
    send(&left, &messages);
    left.close();
    let end = Instant::now() + BOUND;
    while right.connection().handle_liveness() {
        assert!(Instant::now() < end, "the end does not show");
    }
    let (received, end) = read(&right);
    assert_eq!(end, ReadEnd::Closed(Closed::ByPeer));
    assert_eq!(landed(&received), 0);
    assert_eq!(contents::packets(&received), messages.bodies());
}

#[test]
fn a_window_that_cannot_be_opened_leaves_the_ring() {
    let (left, right, windows) = windowed(Side::default(), FaultPlan::default());
    windows.refuse_open();
    for seed in 0..10 {
        assert_eq!(landed(&carry(&left, &right, &bulk(seed))), 0);
    }
    assert_eq!(left.connection().statistics().stream.direct_transfers_sent, 0);
}

#[test]
fn a_window_that_cannot_be_closed_leaves_a_copy() {
    let (left, right, windows) = windowed(Side::default(), FaultPlan::default());
    warm_up(&left, &right);
    windows.refuse_close();
    for seed in 0..10 {
        carry(&left, &right, &bulk(seed));
    }
    assert_eq!(landed(&carry(&left, &right, &bulk(10))), 0);
    let sent = left.connection().statistics().stream;
    assert!(sent.direct_bytes_sent > sent.indirect_bytes_sent, "{sent:?}");
}

#[test]
fn small_transfers_do_not_wait() {
    let side = Side {
        direct_bytes: 65_000,
        ..Side::default()
    };
    let (left, right, windows) = windowed(side, FaultPlan::default());
    warm_up(&left, &right);
    windows.hold(true);
    // These packets land in advertised buffers, and are too small to be handed over without a copy.
    let messages = Messages::new(2, &[40_000; 4]);
    carry(&left, &right, &messages);
    assert_eq!(windows.count(WindowState::Closing), 0);
}

#[test]
fn packets_of_all_sizes_arrive_however_late_things_are() {
    for seed in 0..20 {
        let plan = FaultPlan {
            seed,
            delayed_notices: 300,
            delayed_controls: 300,
            ..FaultPlan::default()
        };
        let (left, right, _windows) = windowed(Side::default(), plan);
        let mut random = fastrand::Rng::with_seed(seed);
        let sizes: Vec<usize> = (0..60)
            .map(|_| match random.u8(0..3) {
                0 => random.usize(1..200),
                1 => random.usize(10_000..70_000),
                _ => random.usize(60_000..300_000),
            })
            .collect();
        carry(&left, &right, &Messages::new(seed, &sizes));
    }
}
