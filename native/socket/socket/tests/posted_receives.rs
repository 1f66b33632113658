//! Posted receives: for each a buffer of its size is advertised. However the peer uses the buffers, every byte is
//! handed over once, in order.

#[path = "support/pair.rs"]
mod pair;

use std::collections::VecDeque;
use std::sync::Arc;

use inet_rdma_assembly::{Framing, Gather, ReadLimit, Received};
use inet_rdma_engine::connection::{Closed, ReadEnd};
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_socket::stream_socket::Bounds;
use pair::signal::{Event, Ticket};
use pair::{Conn, Side};
use proptest::prelude::{Just, Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::test_runner::TestCaseError;

const LANDING_BYTES: u32 = 8192;

const BOUNDS: Bounds = Bounds {
    call_bytes: usize::MAX,
    sends: 0,
    receives: 120,
};

fn side() -> Side {
    Side {
        framing: Framing::Raw,
        ring_bytes: 16_384,
        landing_buffers: 8,
        landing_bytes: LANDING_BYTES,
        ..Side::default()
    }
}

fn connected() -> (Arc<Conn>, Arc<Conn>) {
    let (left, right) = pair::connect_bounded(&ShmFabric, &side(), BOUNDS);
    look(&left);
    look(&right);
    (left, right)
}

/// One look of a polling thread.
fn look(socket: &Conn) {
    assert!(!socket.connection().attend(false));
}

/// The stream's bytes from `at` on: each run of them differs from every other.
fn stream(at: usize, bytes: usize) -> Vec<u8> {
    (at..at + bytes)
        .map(|at| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[6])
        .collect()
}

/// Writes `data` as one packet, as far as there is room.
fn write(socket: &Conn, data: &[u8]) -> usize {
    let mut gather = Gather::with_capacity(1, 1);
    gather.push(data);
    gather.end_packet();
    socket.write(&gather, 0, data.len()).expect("a write").at
}

/// Posts a receive, named by its size.
fn post(socket: &Conn, bytes: usize) {
    socket
        .post_receive(Ticket::of(bytes as u64), bytes)
        .expect("room for it");
}

/// Takes back the first receive of this size.
fn cancel(socket: &Conn, bytes: usize) {
    assert!(socket.cancel(|ticket| ticket.number == bytes as u64));
}

/// The bytes of the first posted receive, and its size. None: it is not complete.
fn completed(socket: &Conn) -> Option<(usize, Received<Vec<u8>>)> {
    look(socket);
    match socket.notifier().event()? {
        Event::Received(size, received) => Some((size as usize, received.expect("it is up"))),
        _ => panic!("only receives are posted"),
    }
}

fn read_posted(socket: &Conn) -> Option<Received<Vec<u8>>> {
    completed(socket).map(|(_, received)| received)
}

/// The bytes that a read without a posted receive gets.
fn read_plain(socket: &Conn) -> Vec<u8> {
    let mut out = Vec::new();
    while socket.read(ReadLimit::bytes(usize::MAX), &mut out) == ReadEnd::More {}
    out.iter().flat_map(bytes).collect()
}

fn bytes(received: &Received<Vec<u8>>) -> Vec<u8> {
    match received {
        Received::Whole(bytes) => bytes.clone(),
        Received::Landed(buffer, range) => {
            let mut bytes = vec![0; range.len()];
            buffer.copy_out(range.start, &mut bytes);
            bytes
        }
        Received::Batch { .. } => panic!("a raw stream has no batches"),
    }
}

fn is_landed(received: &Received<Vec<u8>>) -> bool {
    matches!(received, Received::Landed(..))
}

#[test]
fn a_send_of_the_posted_size_is_one_direct_transfer_and_no_copy() {
    let (left, right) = connected();
    let sizes = [1, 3, 100, 5000, 8192];
    for size in sizes {
        post(&right, size);
    }
    assert!(read_posted(&right).is_none());
    look(&left);
    let mut at = 0;
    for size in sizes {
        assert_eq!(write(&left, &stream(at, size)), size);
        let received = read_posted(&right).expect("what was sent");
        assert!(is_landed(&received), "{size} bytes were copied");
        assert_eq!(bytes(&received), stream(at, size));
        at += size;
    }
    let sent = left.connection().statistics().stream;
    assert_eq!(sent.direct_transfers_sent, sizes.len() as u64);
    assert_eq!(sent.indirect_transfers_sent, 0);
    assert_eq!(right.connection().statistics().landing_used, 0, "all are back");
}

#[test]
fn a_receive_that_is_filled_by_several_sends_still_lands() {
    let (left, right) = connected();
    post(&right, 3000);
    assert!(read_posted(&right).is_none());
    look(&left);
    for part in 0..3 {
        assert_eq!(write(&left, &stream(part * 1000, 1000)), 1000);
        let received = read_posted(&right);
        assert_eq!(received.is_some(), part == 2);
        if let Some(received) = received {
            assert!(is_landed(&received));
            assert_eq!(bytes(&received), stream(0, 3000));
        }
    }
}

#[test]
fn one_that_is_longer_than_a_buffer_comes_directly_and_is_put_together() {
    let (left, right) = connected();
    let size = 3 * LANDING_BYTES as usize + 77;
    post(&right, size);
    assert!(read_posted(&right).is_none());
    look(&left);
    assert_eq!(write(&left, &stream(0, size)), size);
    let received = read_posted(&right).expect("what was sent");
    assert_eq!(bytes(&received), stream(0, size));
    let sent = left.connection().statistics().stream;
    assert_eq!((sent.direct_transfers_sent, sent.indirect_transfers_sent), (4, 0));
}

#[test]
fn behind_bytes_of_the_ring_receives_are_lined_up_again() {
    let (left, right) = connected();
    // These bytes were sent before a receive was posted: they go through the ring.
    assert_eq!(write(&left, &stream(0, 40)), 40);
    post(&right, 100);
    post(&right, 200);
    assert!(read_posted(&right).is_none());
    look(&left);
    assert_eq!(write(&left, &stream(40, 60)), 60);
    assert_eq!(write(&left, &stream(100, 200)), 200);
    let first = read_posted(&right).expect("the first");
    assert_eq!(bytes(&first), stream(0, 100));
    let second = read_posted(&right).expect("the second");
    assert!(is_landed(&second));
    assert_eq!(bytes(&second), stream(100, 200));
    assert_eq!(left.connection().statistics().stream.indirect_bytes_sent, 40);
}

#[test]
fn bytes_of_a_cancelled_receive_go_to_the_next_one() {
    let (left, right) = connected();
    post(&right, 1000);
    assert!(read_posted(&right).is_none());
    look(&left);
    assert_eq!(write(&left, &stream(0, 400)), 400);
    assert!(read_posted(&right).is_none());
    cancel(&right, 1000);
    assert_eq!(read_plain(&right), stream(0, 400));
    // The buffer is still advertised, and reads get the bytes that come there.
    assert_eq!(write(&left, &stream(400, 900)), 900);
    assert_eq!(read_plain(&right), stream(400, 900));
}

#[test]
fn at_the_end_a_read_of_any_size_gets_a_part() {
    let (left, right) = connected();
    post(&right, 1000);
    assert!(read_posted(&right).is_none());
    look(&left);
    assert_eq!(write(&left, &stream(0, 400)), 400);
    left.finish().expect("in order");
    look(&right);
    let Some(Event::Received(1000, Err(Closed::ByPeer))) = right.notifier().event() else {
        panic!("the receive ends with the stream");
    };
    assert_eq!(right.connection().statistics().landing_used, 0);
    let mut out = Vec::new();
    right.read(ReadLimit::bytes(usize::MAX), &mut out);
    assert_eq!(bytes(&out.pop().expect("the part")), stream(0, 400));
}

/// What either side does next.
#[derive(Debug, Clone)]
enum Step {
    Send(usize),
    Post(usize),
    Cancel(usize),
    Read,
    Look,
    /// The user drops the packets that it holds.
    Drop,
}

fn step() -> impl Strategy<Value = Step> {
    let size = || prop_oneof![1..10usize, 1..2000usize, 8000..8400usize, 1..40_000usize];
    prop_oneof![
        4 => size().prop_map(Step::Send),
        3 => size().prop_map(Step::Post),
        1 => Just(Step::Post(0)),
        1 => (0..8usize).prop_map(Step::Cancel),
        4 => Just(Step::Read),
        2 => Just(Step::Look),
        1 => Just(Step::Drop),
    ]
}

/// The receiving side and the expected results.
struct Reader {
    socket: Arc<Conn>,
    /// Number and size of each receive that is posted.
    posted: VecDeque<(u64, usize)>,
    next: u64,
    at: usize,
    held: Vec<(usize, Received<Vec<u8>>)>,
}

impl Reader {
    fn post(&mut self, bytes: usize) {
        self.socket
            .post_receive(Ticket::of(self.next), bytes)
            .expect("room for it");
        self.posted.push_back((self.next, bytes));
        self.next += 1;
    }

    fn cancel(&mut self, index: usize) {
        if let Some((number, _)) = self.posted.remove(index) {
            assert!(self.socket.cancel(|ticket| ticket.number == number));
        }
    }

    /// Checks that completed receives are in order, and of the sizes that were asked for.
    fn complete(&mut self) -> Result<(), TestCaseError> {
        while let Some(event) = self.socket.notifier().event() {
            let Event::Received(number, Ok(received)) = event else {
                return Err(TestCaseError::fail(
                    "only receives are posted, and the connection is up",
                ));
            };
            let Some((due, wanted)) = self.posted.pop_front() else {
                return Err(TestCaseError::fail("nothing is posted"));
            };
            prop_assert_eq!(number, due);
            let data = bytes(&received);
            prop_assert!(wanted == data.len() || wanted == 0 && !data.is_empty());
            prop_assert_eq!(&data, &stream(self.at, data.len()));
            self.held.push((self.at, received));
            self.at += data.len();
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), TestCaseError> {
        look(&self.socket);
        self.complete()?;
        if self.posted.is_empty() {
            let data = read_plain(&self.socket);
            prop_assert_eq!(&data, &stream(self.at, data.len()));
            self.at += data.len();
        }
        Ok(())
    }

    /// What is held stays as it was handed over.
    fn let_go(&mut self) -> Result<(), TestCaseError> {
        for (at, received) in self.held.drain(..) {
            let data = bytes(&received);
            prop_assert_eq!(&data, &stream(at, data.len()));
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn every_byte_comes_once_and_in_order_however_receives_are_posted(
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let (left, right) = connected();
        let mut reader = Reader { socket: right, posted: VecDeque::new(), next: 0, at: 0, held: Vec::new() };
        let mut sent = 0;
        for step in steps {
            match step {
                Step::Send(bytes) => sent += write(&left, &stream(sent, bytes)),
                Step::Post(bytes) => reader.post(bytes),
                Step::Cancel(index) => reader.cancel(index),
                Step::Read => reader.read()?,
                Step::Look => {
                    look(&left);
                    look(&reader.socket);
                }
                Step::Drop => reader.let_go()?,
            }
            reader.complete()?;
        }
        // Without posted receives a read gets all sent bytes.
        while !reader.posted.is_empty() {
            reader.cancel(0);
            reader.complete()?;
        }
        reader.read()?;
        prop_assert_eq!(reader.at, sent);
        reader.let_go()?;
        prop_assert!(left.connection().closed().is_none() && reader.socket.connection().closed().is_none());
    }
}
