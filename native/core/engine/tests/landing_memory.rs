//! Landing memory that a fabric must pin: it comes with bulk and goes without bulk, and no bytes are lost by that.

#[path = "../../assembly/tests/support/contents.rs"]
mod contents;
#[path = "support/message.rs"]
mod message;
#[path = "support/pair.rs"]
mod pair;

use std::sync::Arc;
use std::time::Instant;

use inet_rdma_assembly::{ReadLimit, Received};
use inet_rdma_engine::connection::{Closed, LandingState, ReadEnd};
use inet_rdma_fabric::{FIRST_RING_BYTES, FabricError};
use inet_rdma_fabric_fault::{Exposing, FaultFabric, FaultPlan, Grants};
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_stream::Mode;
use message::Messages;
use pair::{BOUND, Conn, Side};

const UNLIMITED: u64 = u64::MAX;

/// Two ends over a fabric that pins within `grants`.
fn pinning(side: Side, grants: &Arc<Grants>) -> (Arc<Conn>, Arc<Conn>) {
    let plan = FaultPlan {
        exposing: Exposing::Pinning(Arc::clone(grants)),
        ..FaultPlan::default()
    };
    pair::connect(&FaultFabric::new(ShmFabric, plan), &side, &side)
}

/// Waits until another thread has made the condition true, and looks on both sides meanwhile.
fn eventually(what: &str, ends: [&Conn; 2], mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + BOUND;
    while !condition() {
        assert!(Instant::now() < end, "still not so: {what}");
        for socket in ends {
            socket.connection().attend(false);
        }
        std::thread::yield_now();
    }
}

/// Sends the messages while the other side reads. Returns the received packets.
fn carry(from: &Conn, to: &Conn, messages: &Messages) -> Vec<Received<Vec<u8>>> {
    let gather = messages.gather(true);
    let (mut at, mut received) = (0, Vec::new());
    let end = Instant::now() + BOUND;
    let bodies = messages.bodies();
    while at < gather.total() || contents::packets(&received).len() < bodies.len() {
        assert!(Instant::now() < end, "{at} of {} written", gather.total());
        at = from.write(&gather, at, usize::MAX).expect("the peer reads").at;
        while to.read(ALL, &mut received) == ReadEnd::More {}
    }
    assert_eq!(contents::packets(&received), bodies);
    received
}

const ALL: ReadLimit = ReadLimit {
    bytes: usize::MAX,
    packets: usize::MAX,
    exact: 0,
};

fn landed(received: &[Received<Vec<u8>>]) -> usize {
    let is_landed = |part: &&Received<Vec<u8>>| matches!(part, Received::Landed(..));
    received.iter().filter(is_landed).count()
}

fn bulk(seed: u64) -> Messages {
    Messages::new(seed, &[65_000; 40])
}

/// Sends bulk until some of it lands.
fn carry_until_landed(left: &Conn, right: &Conn) -> Vec<Received<Vec<u8>>> {
    let end = Instant::now() + BOUND;
    loop {
        let received = carry(left, right, &bulk(1));
        if landed(&received) > 0 {
            return received;
        }
        assert!(Instant::now() < end, "nothing lands");
        std::thread::yield_now();
    }
}

#[test]
fn nothing_is_pinned_before_bulk_comes() {
    let grants = Grants::new(UNLIMITED);
    let (left, right) = pinning(Side::default(), &grants);
    for seed in 0..20 {
        carry(&left, &right, &Messages::new(seed, &[100; 100]));
    }
    assert_eq!(grants.pinned(), 0);
    assert_eq!(right.connection().statistics().landing_state, LandingState::Unused);
    carry_until_landed(&left, &right);
    // More memory may have been asked for meanwhile.
    eventually("the memory is there", [&left, &right], || {
        right.connection().statistics().landing_state == LandingState::Ready
    });
    let statistics = right.connection().statistics();
    assert!(statistics.landing_count > 0);
    let rings = statistics.ring_memory_bytes - u64::from(FIRST_RING_BYTES);
    assert_eq!(
        grants.pinned(),
        statistics.landing_memory_bytes + rings,
        "the other side pins nothing"
    );
}

#[test]
fn bulk_goes_through_the_ring_while_memory_is_refused() {
    let grants = Grants::new(0);
    let (left, right) = pinning(Side::default(), &grants);
    eventually("memory is refused", [&left, &right], || {
        let received = carry(&left, &right, &bulk(2));
        assert_eq!(landed(&received), 0);
        right.connection().statistics().landing_refusals > 0
    });
    assert_eq!(right.connection().statistics().landing_state, LandingState::Refused);
    assert_eq!(left.connection().statistics().stream.direct_transfers_sent, 0);
    grants.set_limit(UNLIMITED);
    eventually("memory is asked for again", [&left, &right], || {
        landed(&carry(&left, &right, &bulk(3))) > 0
    });
}

#[test]
fn memory_that_is_not_used_is_given_back() {
    let grants = Grants::new(UNLIMITED);
    let (left, right) = pinning(Side::default(), &grants);
    let held = carry_until_landed(&left, &right);
    let (before, pinned) = (contents::packets(&held), grants.pinned());
    assert!(pinned > 0 && right.connection().statistics().landing_used > 0);
    eventually("the memory is given back", [&left, &right], || grants.pinned() == 0);
    assert_eq!(right.connection().statistics().landing_state, LandingState::Unused);
    assert_eq!(contents::packets(&held), before, "what the user holds stays");
    carry(&left, &right, &Messages::new(4, &[100; 10]));
    assert_eq!(grants.pinned(), 0, "small packets need none");
    drop(held);
    carry_until_landed(&left, &right);
    assert!(grants.pinned() > 0);
}

#[test]
fn direct_transfers_only_wait_for_memory() {
    let side = Side {
        mode: Mode::DirectOnly,
        ..Side::default()
    };
    let grants = Grants::new(UNLIMITED);
    let (left, right) = pinning(side, &grants);
    carry(&left, &right, &bulk(5));
    assert_eq!(left.connection().statistics().stream.indirect_transfers_sent, 0);
    let grants = Grants::new(1000);
    let (left, right) = pinning(side, &grants);
    eventually("the connection ends", [&left, &right], || {
        right.connection().closed().is_some()
    });
    assert!(
        matches!(
            right.connection().closed(),
            Some(Closed::Fabric(FabricError::LockedMemory { .. }))
        ),
        "{:?}",
        right.connection().closed()
    );
}
