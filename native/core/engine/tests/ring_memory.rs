//! Rings that a fabric must pin: small at first, large while the peer fills them, small again later.

#[path = "../../assembly/tests/support/contents.rs"]
mod contents;
#[path = "support/message.rs"]
mod message;
#[path = "support/pair.rs"]
mod pair;

use std::sync::Arc;
use std::time::Instant;

use inet_rdma_assembly::ReadLimit;
use inet_rdma_engine::connection::ReadEnd;
use inet_rdma_fabric::{Completion, FIRST_RING_BYTES};
use inet_rdma_fabric_fault::{Delay, Exposing, FaultFabric, FaultPlan, Grants};
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_records::Cipher;
use inet_rdma_stream::{Control, ControlBody, Mode, NewRing, Notice};
use message::Messages;
use pair::{BOUND, Conn, Keys, Side};

const UNLIMITED: u64 = u64::MAX;

const ALL: ReadLimit = ReadLimit {
    bytes: usize::MAX,
    packets: usize::MAX,
    exact: 0,
};

/// The settings of a link: no landing buffers.
fn side() -> Side {
    Side {
        mode: Mode::Dynamic,
        landing_buffers: 0,
        ..Side::default()
    }
}

fn sealed() -> [Side; 2] {
    Keys::pair(Cipher::Aes256Gcm).map(|keys| Side {
        keys: Some(keys),
        ..side()
    })
}

/// Two ends over a fabric that pins within `grants`, and delays by `seed`.
fn pinning(side: Side, grants: &Arc<Grants>, seed: Option<u64>) -> (Arc<Conn>, Arc<Conn>) {
    pinning_pair([side; 2], grants, seed)
}

/// As [`pinning`]. The connecting side comes first.
fn pinning_pair(sides: [Side; 2], grants: &Arc<Grants>, seed: Option<u64>) -> (Arc<Conn>, Arc<Conn>) {
    let often = if seed.is_some() { 300 } else { 0 };
    let plan = FaultPlan {
        seed: seed.unwrap_or(0),
        delayed_notices: often,
        delayed_controls: often,
        delay: Delay::Polls(1..=20),
        exposing: Exposing::Pinning(Arc::clone(grants)),
        ..FaultPlan::default()
    };
    pair::connect(&FaultFabric::new(ShmFabric, plan), &sides[0], &sides[1])
}

/// Writes all messages. The reader reads when the writer is blocked.
fn carry(from: &Conn, to: &Conn, messages: &Messages) {
    let gather = messages.gather(true);
    let (mut at, mut received) = (0, Vec::new());
    let end = Instant::now() + BOUND;
    while contents::packets(&received).len() < messages.bodies().len() {
        assert!(Instant::now() < end, "{at} of {} written", gather.total());
        loop {
            let written = from.write(&gather, at, usize::MAX).expect("the peer reads");
            at = written.at;
            if written.blocked || at == gather.total() {
                break;
            }
        }
        while to.read(ALL, &mut received) == ReadEnd::More {}
        from.connection().attend(false);
    }
    assert_eq!(contents::packets(&received), messages.bodies());
}

fn carry_until(what: &str, [from, to]: [&Conn; 2], mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + BOUND;
    for seed in 0.. {
        if condition() {
            return;
        }
        assert!(Instant::now() < end, "still not so: {what}");
        carry(from, to, &Messages::new(seed, &[9_000; 60]));
    }
}

fn eventually<const N: usize>(what: &str, ends: [&Conn; N], mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + BOUND;
    while !condition() {
        assert!(Instant::now() < end, "still not so: {what}");
        for socket in ends {
            socket.connection().attend(false);
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_ring_that_is_filled_grows_and_shrinks_when_it_is_not() {
    grows_and_shrinks([side(); 2], None);
}

#[test]
fn records_end_where_each_ring_ends() {
    grows_and_shrinks(sealed(), Some(1));
}

fn grows_and_shrinks(sides: [Side; 2], seed: Option<u64>) {
    let grants = Grants::new(UNLIMITED);
    let (left, right) = pinning_pair(sides, &grants, seed);
    let ring_bytes = || right.connection().statistics().ring_size_bytes;
    for seed in 0..50 {
        carry(&left, &right, &Messages::new(seed, &[100; 20]));
    }
    assert_eq!((ring_bytes(), grants.pinned()), (FIRST_RING_BYTES, 0));
    for _ in 0..2 {
        carry_until("the ring grows", [&left, &right], || ring_bytes() == side().ring_bytes);
        assert_eq!(grants.pinned(), u64::from(side().ring_bytes));
        carry(&left, &right, &Messages::new(7, &[40_000; 100]));
        eventually("the ring shrinks", [&left, &right], || grants.pinned() == 0);
        assert_eq!(ring_bytes(), FIRST_RING_BYTES);
        carry(&left, &right, &Messages::new(8, &[100; 20]));
    }
}

#[test]
fn a_ring_that_has_shrunk_goes_when_it_is_read() {
    goes_when_it_is_read([side(); 2]);
}

#[test]
fn a_ring_of_records_that_has_shrunk_goes_when_it_is_read() {
    goes_when_it_is_read(sealed());
}

fn goes_when_it_is_read(sides: [Side; 2]) {
    let grants = Grants::new(UNLIMITED);
    let (left, right) = pinning_pair(sides, &grants, None);
    let ring_bytes = || right.connection().statistics().ring_size_bytes;
    for seed in 0..2 {
        carry_until("the ring grows", [&left, &right], || ring_bytes() == side().ring_bytes);
        let unread = Messages::new(seed, &[9_000; 2]);
        let written = left.write(&unread.gather(true), 0, usize::MAX).expect("it is up");
        assert!(!written.blocked);
        eventually("the ring shrinks", [&left, &right], || ring_bytes() == FIRST_RING_BYTES);
        assert_eq!(grants.pinned(), u64::from(side().ring_bytes), "it holds bytes");
        let mut received = Vec::new();
        while right.read(ALL, &mut received) == ReadEnd::More {}
        assert_eq!(contents::packets(&received), unread.bodies());
        eventually("the large ring goes", [&left, &right], || grants.pinned() == 0);
    }
}

#[test]
fn as_much_can_be_written_before_anything_is_read_as_the_large_ring_holds() {
    let grants = Grants::new(0);
    let (left, right) = pinning(side(), &grants, None);
    let messages = Messages::new(3, &[9_000; 20]);
    let gather = messages.gather(true);
    assert!(gather.total() > 2 * FIRST_RING_BYTES as usize);
    let mut at = 0;
    let mut write = |what: &str, until: &mut dyn FnMut(usize) -> bool| {
        eventually(what, [&left, &right], || {
            at = left.write(&gather, at, usize::MAX).expect("it is up").at;
            until(at)
        });
    };
    write("the small ring is full", &mut |at| at == FIRST_RING_BYTES as usize);
    // Refused memory is asked for again after a while.
    grants.set_limit(UNLIMITED);
    write("all is written", &mut |at| at == gather.total());
    let mut received = Vec::new();
    while right.read(ALL, &mut received) == ReadEnd::More {}
    assert_eq!(contents::packets(&received), messages.bodies());
}

#[test]
fn a_ring_that_cannot_grow_carries_all_the_same() {
    let grants = Grants::new(0);
    let (left, right) = pinning(side(), &grants, None);
    for seed in 0..50 {
        carry(&left, &right, &Messages::new(seed, &[9_000; 60]));
    }
    assert_eq!(right.connection().statistics().ring_size_bytes, FIRST_RING_BYTES);
}

#[test]
fn memory_to_send_from_that_was_refused_is_asked_for_again() {
    let ring_bytes = side().ring_bytes;
    // As many bytes as the large ring takes.
    let grants = Grants::new(ring_bytes.into());
    let (left, right) = pinning(side(), &grants, None);
    let room = || left.queue_pair().write_room().map_or(0, |room| room.bytes());
    carry_until("the ring grows", [&left, &right], || {
        right.connection().statistics().ring_size_bytes == ring_bytes
    });
    eventually("memory to send from is refused", [&left, &right], || {
        grants.staging_refusals() > 0
    });
    assert_eq!(room(), FIRST_RING_BYTES as usize);
    grants.set_limit(UNLIMITED);
    eventually("it is there", [&left, &right], || room() == ring_bytes as usize);
}

/// A peer that announces rings of two sizes in turn has this side replace its staging memory each time.
#[test]
fn a_peer_that_alternates_its_ring_pins_no_more_than_two_stagings() {
    let side = side();
    let grants = Grants::new(UNLIMITED);
    let plan = FaultPlan {
        exposing: Exposing::Pinning(Arc::clone(&grants)),
        ..FaultPlan::default()
    };
    let (hostile, qp) = pair::queue_pairs(&FaultFabric::new(ShmFabric, plan), &side, &side);
    let victim = side.connection(qp);
    let target = hostile.memory().remote_address(0);
    let room = || victim.queue_pair().write_room().map_or(0, |room| room.bytes() as u32);
    for round in 0..40 {
        let bytes = FIRST_RING_BYTES / (1 + round % 2);
        let ring = ControlBody::Ring(NewRing { target, bytes });
        // Question and mark took a slot each, and both slots are returned.
        let credits = u16::from(round > 0);
        let message = Control { credits, body: ring }.emit();
        hostile.post_control(&message).expect("room");
        let mut marks = 0;
        eventually("the mark comes", [&victim], || {
            let mut batch = [Completion::Notice(Notice::MARK); 8];
            let taken = hostile.poll(&mut batch).expect("it is up");
            marks += batch[..taken]
                .iter()
                .filter(|completion| matches!(completion, Completion::Notice(notice) if *notice == Notice::MARK))
                .count();
            marks > 0
        });
        // The thread of memory has looked at most of the claims before the next one comes.
        for _ in 0..100 {
            if room() == bytes {
                break;
            }
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        assert!(
            victim.connection().closed().is_none(),
            "{:?}",
            victim.connection().closed()
        );
        assert!(
            grants.staging() <= 2 * u64::from(side.ring_bytes.min(FIRST_RING_BYTES)),
            "{} bytes after {round} rings",
            grants.staging()
        );
    }
    // A sweep serves the last claim.
    eventually("it follows the peer's ring", [&victim], || {
        room() == FIRST_RING_BYTES / 2
    });
    eventually("what was replaced goes", [&victim], || {
        grants.staging() == u64::from(FIRST_RING_BYTES / 2)
    });
}

/// Delays each question, mark and transfer separately, in both directions, with landing buffers beside the ring.
#[test]
fn rings_are_replaced_however_late_messages_are() {
    for seed in 0..20 {
        let grants = Grants::new(UNLIMITED);
        let (left, right) = pinning(Side::default(), &grants, Some(seed));
        let is_grown = |end: &Conn| end.connection().statistics().ring_size_bytes == Side::default().ring_bytes;
        carry_until("one ring grows", [&left, &right], || is_grown(&right));
        carry_until("the other one grows", [&right, &left], || is_grown(&left));
        carry(&left, &right, &Messages::new(seed, &[30_000; 50]));
    }
}
