//! Posted sends, and the order of writers: the bytes of one send go as a whole before those of the next.

#[path = "support/pair.rs"]
mod pair;

use std::sync::Arc;

use inet_rdma_assembly::{Framing, Gather, ReadLimit, Received};
use inet_rdma_engine::connection::{Closed, ReadEnd};
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_socket::stream_socket::{Bounds, Holder, Refused};
use pair::signal::{Event, Ticket};
use pair::{Conn, Side};

const RING_BYTES: usize = 4096;

fn connected() -> (Arc<Conn>, Arc<Conn>) {
    let side = Side {
        framing: Framing::Raw,
        ring_bytes: RING_BYTES as u32,
        landing_buffers: 1,
        landing_bytes: 4096,
        ..Side::default()
    };
    let bounds = Bounds {
        call_bytes: 3000,
        sends: 4,
        receives: 4,
    };
    let (left, right) = pair::connect_bounded(&ShmFabric, &side, bounds);
    look(&left);
    look(&right);
    (left, right)
}

/// One look of a polling thread.
fn look(socket: &Conn) {
    assert!(!socket.connection().attend(false));
}

fn read(socket: &Conn) -> Vec<u8> {
    let mut out = Vec::new();
    while socket.read(ReadLimit::bytes(usize::MAX), &mut out) == ReadEnd::More {}
    let bytes = |received: &Received<Vec<u8>>| match received {
        Received::Whole(bytes) => bytes.clone(),
        Received::Landed(buffer, range) => {
            let mut bytes = vec![0; range.len()];
            buffer.copy_out(range.start, &mut bytes);
            bytes
        }
        Received::Batch { .. } => panic!("a raw stream has no batches"),
    };
    out.iter().flat_map(bytes).collect()
}

/// Lets both sides look until nothing moves. Returns the arrived bytes.
fn run(from: &Conn, to: &Conn) -> Vec<u8> {
    let mut all = Vec::new();
    for _ in 0..1000 {
        look(from);
        let some = read(to);
        if some.is_empty() {
            return all;
        }
        all.extend(some);
        look(to);
    }
    panic!("no end");
}

fn sent(socket: &Conn) -> Option<(u64, Result<usize, Closed>)> {
    match socket.notifier().event()? {
        Event::Sent(number, result) => Some((number, result)),
        _ => panic!("only sends are posted"),
    }
}

fn gather(bytes: &[u8]) -> Gather<'_> {
    let mut gather = Gather::with_capacity(1, 1);
    gather.push(bytes);
    gather.end_packet();
    gather
}

fn post(socket: &Conn, number: u64, bytes: usize) -> Result<Option<u32>, Refused> {
    socket.post_send(Ticket::send(number, vec![number as u8; bytes]))
}

/// Writes as `writer` as far as there is room. The send stays unfinished.
fn begin(socket: &Conn, writer: u32, bytes: &[u8]) -> usize {
    let mut lock = socket.send_lock(writer).expect("nobody else writes");
    let gather = gather(bytes);
    let written = lock.write(&gather, 0, usize::MAX).expect("it is up");
    assert!(written.blocked);
    written.at
}

#[test]
fn posted_sends_go_in_order_and_complete_in_order() {
    let (left, right) = connected();
    let sizes = [10_000, 0, 5, 7000];
    for (number, size) in (1..).zip(sizes) {
        assert_eq!(post(&left, number, size), Ok(None));
    }
    assert_eq!(post(&left, 5, 1), Err(Refused::Full));
    let expected: Vec<u8> = (1u8..).zip(sizes).flat_map(|(byte, size)| vec![byte; size]).collect();
    assert!(run(&left, &right) == expected);
    for (number, size) in (1..).zip(sizes) {
        assert_eq!(sent(&left), Some((number, Ok(size))));
    }
    assert_eq!(sent(&left), None);
    assert_eq!(left.posted().sends, 0);
}

#[test]
fn one_turn_moves_about_call_bytes_and_calls_the_thread_back() {
    let (left, right) = connected();
    assert_eq!(post(&left, 1, 4000), Ok(None));
    assert_eq!(left.posted().send_bytes, 1000, "3000 went at once");
    look(&left);
    assert_eq!(left.posted().send_bytes, 0);
    assert_eq!(read(&right).len(), 4000);
}

#[test]
fn a_send_is_taken_back_until_its_first_byte_has_gone() {
    let (left, right) = connected();
    assert_eq!(post(&left, 1, 10_000), Ok(None));
    assert_eq!(post(&left, 2, 10), Ok(None));
    assert_eq!(post(&left, 3, 10), Ok(None));
    assert!(!left.cancel(|ticket| ticket.number == 1), "it has begun");
    assert!(left.cancel(|ticket| ticket.number == 2));
    assert!(!left.cancel(|ticket| ticket.number == 2), "once");
    assert_eq!(run(&left, &right).len(), 10_010);
    assert_eq!(sent(&left), Some((1, Ok(10_000))));
    assert_eq!(sent(&left), Some((3, Ok(10))));
    assert_eq!(sent(&left), None);
}

#[test]
fn a_posted_send_waits_for_an_unfinished_send_and_goes_before_the_next() {
    let (left, right) = connected();
    let first = vec![b'a'; 6000];
    let at = begin(&left, 7, &first);
    assert_eq!(at, RING_BYTES);
    assert_eq!(post(&left, 1, 100), Ok(Some(7)), "that writer is to be watched");
    assert_eq!(left.send_lock(8).err(), Some(Holder::Writer(7)));
    assert!(left.arm_writer_in_turn(8));
    let mut all = read(&right);
    look(&right);
    look(&left);
    assert_eq!(sent(&left), None);
    left.notifier().take();
    let mut lock = left.send_lock(7).expect("it is its own");
    assert_eq!(lock.write(&gather(&first), at, usize::MAX).expect("room").at, 6000);
    lock.release();
    assert_eq!(sent(&left), Some((1, Ok(100))));
    assert!(left.notifier().take().writer, "the writer that asked may begin");
    assert!(left.send_lock(8).is_ok());
    all.extend(read(&right));
    assert!(all == [vec![b'a'; 6000], vec![1; 100]].concat());
}

#[test]
fn a_writer_that_asks_while_sends_are_posted_is_told_when_the_last_has_gone() {
    let (left, right) = connected();
    assert_eq!(post(&left, 1, 6000), Ok(None));
    assert_eq!(left.send_lock(8).err(), Some(Holder::Posted));
    left.notifier().take();
    assert_eq!(run(&left, &right).len(), 6000);
    assert!(left.notifier().take().writer);
    left.send_lock(8).expect("nobody is in the middle").release();
}

#[test]
fn the_rest_of_a_send_that_is_given_up_goes_by_itself_before_what_is_posted() {
    let (left, right) = connected();
    let bytes = vec![b'a'; 6000];
    let at = begin(&left, 7, &bytes);
    assert_eq!(post(&left, 1, 100), Ok(Some(7)));
    let rest = Ticket::send(9, bytes);
    left.leave(8, None).expect("another's is left alone");
    left.leave(7, Some((rest, at))).expect("it fits");
    assert!(run(&left, &right) == [vec![b'a'; 6000], vec![1; 100]].concat());
    assert_eq!(sent(&left), Some((9, Ok(6000))));
    assert_eq!(sent(&left), Some((1, Ok(100))));
}

#[test]
fn a_writer_that_dies_in_the_middle_of_a_send_ends_the_connection() {
    let (left, _right) = connected();
    begin(&left, 7, &[0; 6000]);
    assert_eq!(post(&left, 1, 100), Ok(Some(7)));
    left.writer_died(8);
    assert_eq!(left.connection().closed(), None, "it was not in the middle of anything");
    left.notifier().take();
    left.writer_died(7);
    let half_sent = Closed::HalfSent;
    assert_eq!(left.connection().closed(), Some(half_sent.clone()));
    assert_eq!(sent(&left), Some((1, Err(half_sent.clone()))));
    assert!(left.notifier().take().writer, "others find out");
    assert_eq!(post(&left, 2, 1), Err(Refused::Closed(half_sent)));
}

#[test]
fn a_close_ends_all_that_is_posted_once() {
    let (left, right) = connected();
    assert_eq!(post(&left, 1, 6000), Ok(None));
    assert_eq!(post(&left, 2, 10), Ok(None));
    right.post_receive(Ticket::of(3), 50_000).expect("room for it");
    left.close();
    left.close();
    assert_eq!(sent(&left), Some((1, Err(Closed::Here))));
    assert_eq!(sent(&left), Some((2, Err(Closed::Here))));
    assert_eq!(sent(&left), None);
    assert!(!right.connection().handle_liveness());
    assert!(matches!(
        right.notifier().event(),
        Some(Event::Received(3, Err(Closed::ByPeer)))
    ));
    assert!(right.notifier().event().is_none());
}

#[test]
fn the_end_of_this_sides_stream_ends_what_is_posted() {
    let (left, _right) = connected();
    assert_eq!(post(&left, 1, 6000), Ok(None));
    look(&left);
    left.finish().expect("it is up");
    assert_eq!(sent(&left), Some((1, Err(Closed::Here))));
    assert_eq!(left.connection().closed(), None, "reading goes on");
    assert_eq!(post(&left, 2, 6000), Ok(None));
    assert_eq!(sent(&left), Some((2, Err(Closed::Here))));
}

#[test]
fn the_end_of_the_peer_ends_what_is_posted() {
    let (left, right) = connected();
    assert_eq!(post(&left, 1, 6000), Ok(None));
    look(&left);
    drop(right);
    assert!(!left.connection().handle_liveness());
    assert_eq!(sent(&left), Some((1, Err(Closed::PeerGone))));
}

/// A packet that is cut by a full ring is one packet for the peer, whatever framing its sender sets meanwhile.
#[test]
fn a_send_that_has_begun_keeps_its_framing() {
    let body = vec![7; 3 * RING_BYTES];
    for next in [Framing::Raw, Framing::Length1, Framing::Length2] {
        let (left, right) = connected();
        assert!(left.reframe(Framing::Length4, usize::MAX));
        let packet = |framing: Framing| {
            let header = framing.header(body.len()).expect("its length fits");
            [header.as_slice(), &body].concat()
        };
        let expected = packet(Framing::Length4);
        let mut arrived = Vec::new();
        let mut at = 0;
        while at < expected.len() {
            let mut lock = left.send_lock(1).expect("no other writer");
            let bytes = packet(lock.framing());
            let mut gather = Gather::with_capacity(1, 1);
            gather.push(&bytes);
            gather.end_packet();
            at = lock.write(&gather, at, 3_000).expect("it is up").at;
            if at == expected.len() {
                lock.release();
            } else {
                drop(lock);
                assert!(left.reframe(next, usize::MAX));
            }
            arrived.extend(run(&left, &right));
        }
        assert_eq!(arrived, expected);
        assert_eq!(left.send_lock(1).expect("no other writer").framing(), next);
    }
}
