//! Connections that polling threads serve.

#[path = "support/attached.rs"]
mod attached;
#[path = "../../../core/assembly/tests/support/contents.rs"]
mod contents;
#[path = "../../../core/engine/tests/support/message.rs"]
mod message;
#[path = "support/pair.rs"]
mod pair;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use attached::Attached;
use inet_rdma_assembly::ReadLimit;
use inet_rdma_engine::connection::{Caller, Closed, Notifier, Woken};
use inet_rdma_fabric::Fabric;
use inet_rdma_fabric_fault::{Delay, FaultFabric, FaultPlan};
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_socket::endpoint::Pollers;
use inet_rdma_socket::poller::{PollStep, Polled, Poller, Polling};
use inet_rdma_stream::Mode;
use message::Messages;
use pair::{BOUND, Side};

const ADAPTIVE: Polling = Polling::Adaptive {
    spin: Duration::from_micros(50),
};

fn pollers(threads: usize, polling: Polling) -> Arc<Pollers> {
    Arc::new(Pollers::start(threads, polling).expect("threads"))
}

/// Sizes of a mixed conversation: mostly small, some bulk.
fn sizes(seed: u64, bytes: usize) -> Vec<usize> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut left = bytes;
    let mut sizes = Vec::new();
    while left > 0 {
        let size = match random.u8(0..16) {
            0 => random.usize(0..200_000),
            1..4 => random.usize(0..20_000),
            _ => random.usize(0..300),
        };
        left = left.saturating_sub(size + 4);
        sizes.push(size);
    }
    sizes
}

fn speak(end: &Attached, messages: &Messages, seed: u64) -> Result<(), Closed> {
    let mut random = fastrand::Rng::with_seed(seed);
    // A few packets at a time, as a user sends.
    let mut rest = messages.bodies();
    while !rest.is_empty() {
        let (now, later) = rest.split_at(random.usize(1..40).min(rest.len()));
        end.write(&Messages::of(now.to_vec()).gather(true), random.usize(1_000..300_000))?;
        rest = later;
    }
    end.finish()
}

/// Reads to the end and checks each packet. Returns their number.
fn listen(end: &Attached, expected: &[Vec<u8>]) -> (usize, Closed) {
    let mut got = 0;
    loop {
        match end.read(ReadLimit::bytes(262_144)) {
            Ok(received) => {
                let packets = contents::packets(&received);
                assert!(expected[got..].starts_with(&packets), "wrong packets after {got}");
                got += packets.len();
            }
            Err(closed) => return (got, closed),
        }
    }
}

/// Two ends send and receive at the same time, each with a thread per direction. Returns how they ended.
fn converse(ends: [&Attached; 2], seed: u64, bytes: usize) -> Vec<(usize, usize, Closed)> {
    let said = [seed, !seed].map(|seed| Messages::new(seed, &sizes(seed, bytes)));
    std::thread::scope(|scope| {
        let mut listening = Vec::new();
        for (index, end) in ends.into_iter().enumerate() {
            let (mine, theirs) = (&said[index], &said[1 - index]);
            // The receiving thread checks a connection that ends early.
            scope.spawn(move || speak(end, mine, seed));
            listening.push(scope.spawn(move || {
                let (got, closed) = listen(end, theirs.bodies());
                (got, theirs.bodies().len(), closed)
            }));
        }
        listening
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    })
}

fn converse_fully(ends: [&Attached; 2], seed: u64, bytes: usize) {
    for (got, due, closed) in converse(ends, seed, bytes) {
        assert_eq!((got, closed), (due, Closed::ByPeer));
    }
}

fn attached(fabric: &dyn Fabric, pollers: [&Arc<Pollers>; 2], sides: [Side; 2]) -> [Attached; 2] {
    let (left, right) = pair::connect(fabric, &sides[0], &sides[1]);
    [Attached::new(pollers[0], left), Attached::new(pollers[1], right)]
}

/// Three connections at once, of different kinds, all between the same polling threads.
fn everything_arrives(polling: Polling, threads: usize) {
    let busy = polling == Polling::Busy;
    let plain = Side {
        busy,
        ..Side::default()
    };
    let tiny = Side {
        ring_bytes: 4_096,
        receive_slots: inet_rdma_stream::Limits::RECEIVE_SLOTS_MIN,
        landing_buffers: 0,
        ..plain
    };
    let direct = Side {
        mode: Mode::DirectOnly,
        landing_buffers: 3,
        ..plain
    };
    let pollers = [pollers(threads, polling), pollers(threads, polling)];
    std::thread::scope(|scope| {
        for (sides, bytes) in [
            ([plain, plain], 4 << 20),
            ([plain, tiny], 200 << 10),
            ([direct, direct], 2 << 20),
        ] {
            let ends = attached(&ShmFabric, [&pollers[0], &pollers[1]], sides);
            scope.spawn(move || converse_fully([&ends[0], &ends[1]], bytes as u64, bytes));
        }
    });
}

#[test]
fn everything_arrives_with_adaptive_polling() {
    everything_arrives(ADAPTIVE, 1);
}

#[test]
fn everything_arrives_with_two_adaptive_threads() {
    everything_arrives(ADAPTIVE, 2);
}

#[test]
fn everything_arrives_with_events() {
    everything_arrives(Polling::Event, 1);
}

#[test]
fn everything_arrives_with_two_threads_on_events() {
    everything_arrives(Polling::Event, 2);
}

#[test]
fn everything_arrives_with_busy_polling() {
    everything_arrives(Polling::Busy, 1);
}

#[test]
fn everything_arrives_with_two_busy_threads() {
    everything_arrives(Polling::Busy, 2);
}

/// One byte goes there, one byte back: each end waits for the other, so a lost wake-up stops the test.
#[test]
fn no_wake_is_lost_in_a_ping_pong() {
    for polling in [Polling::Event, ADAPTIVE] {
        let pollers = pollers(2, polling);
        let [left, right] = attached(&ShmFabric, [&pollers, &pollers], [Side::default(); 2]);
        let one = Messages::new(1, &[1]);
        let rounds = 5_000;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..rounds {
                    right.read(ReadLimit::bytes(100)).expect("a ping");
                    right.write(&one.gather(true), 100).expect("it is up");
                }
            });
            for _ in 0..rounds {
                left.write(&one.gather(true), 100).expect("it is up");
                left.read(ReadLimit::bytes(100)).expect("a pong");
            }
        });
    }
}

#[test]
fn everything_arrives_however_late() {
    let plan = FaultPlan {
        seed: 5,
        delayed_notices: 200,
        delayed_controls: 200,
        delay: Delay::For(Duration::ZERO..=Duration::from_micros(300)),
        write_room_max: Some(50_000),
        ..FaultPlan::default()
    };
    let fabric = FaultFabric::new(ShmFabric, plan);
    for polling in [Polling::Event, ADAPTIVE] {
        let pollers = pollers(1, polling);
        let ends = attached(&fabric, [&pollers, &pollers], [Side::default(); 2]);
        converse_fully([&ends[0], &ends[1]], 7, 1 << 20);
    }
}

#[test]
fn everything_arrives_after_stalls() {
    let fabric = FaultFabric::new(ShmFabric, FaultPlan::default());
    let pollers = pollers(1, ADAPTIVE);
    let ends = attached(&fabric, [&pollers, &pollers], [Side::default(); 2]);
    let [left, right] = &ends;
    std::thread::scope(|scope| {
        let talk = scope.spawn(move || converse_fully([left, right], 8, 2 << 20));
        while !talk.is_finished() {
            fabric.stall().begin();
            std::thread::yield_now();
            fabric.stall().end();
            std::thread::yield_now();
        }
    });
}

/// The connection may break at any post: neither side hangs or reads wrong bytes, and both are told.
#[test]
fn a_dropped_connection_ends_for_everybody() {
    for drop_after_posts in [0, 1, 2, 7, 30, 100] {
        let plan = FaultPlan {
            drop_after_posts: Some(drop_after_posts),
            ..FaultPlan::default()
        };
        let fabric = FaultFabric::new(ShmFabric, plan);
        let pollers = pollers(1, Polling::Event);
        let ends = attached(&fabric, [&pollers, &pollers], [Side::default(); 2]);
        for (_, _, closed) in converse([&ends[0], &ends[1]], 9, 4 << 20) {
            assert_eq!(closed, Closed::PeerGone, "after {drop_after_posts} posts");
        }
    }
}

#[derive(Clone, Default)]
struct Clumsy(Arc<AtomicUsize>);

impl Notifier for Clumsy {
    fn wake(&self, _woken: Woken, _caller: Caller) {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("this panic is part of the test");
    }
}

#[test]
fn a_user_that_panics_ends_its_own_connection_only() {
    for polling in [ADAPTIVE, Polling::Event] {
        let pollers = pollers(1, polling);
        let good = attached(&ShmFabric, [&pollers, &pollers], [Side::default(); 2]);
        let side = Side::default();
        let (left, right) = pair::queue_pairs(&ShmFabric, &side, &side);
        let clumsy = Clumsy::default();
        let right = side.halves(right, Arc::new(clumsy.clone())).connection;
        let _attachment = pollers.attach(Arc::clone(&right)).expect("an attachment");
        let left = Attached::new(&pollers, side.connection(left));
        assert!(right.arm_reader());
        left.write(&Messages::new(1, &[10]).gather(true), 100)
            .expect("it is up");
        // Its peer sees the end; the thread still serves the others.
        assert_eq!(left.read(ReadLimit::bytes(100)).err(), Some(Closed::PeerGone));
        assert!(matches!(right.closed(), Some(Closed::Fabric(_))));
        assert!(clumsy.0.load(Ordering::Relaxed) > 0);
        converse_fully([&good[0], &good[1]], 10, 100_000);
    }
}

/// A [`Polled`] that panics in one of its methods.
struct Bomb {
    event: std::os::fd::OwnedFd,
    goes_off_in: &'static str,
    looks: AtomicUsize,
    ends: AtomicUsize,
}

impl Bomb {
    fn look(&self, place: &'static str) {
        self.looks.fetch_add(1, Ordering::Relaxed);
        assert!(self.goes_off_in != place, "this panic is part of the test");
    }
}

impl Polled for Bomb {
    fn event_fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![std::os::fd::AsFd::as_fd(&self.event)]
    }

    fn handle_event(&self, _: usize, spin: bool) -> PollStep {
        self.handle_kick(spin)
    }

    fn handle_kick(&self, _: bool) -> PollStep {
        self.look("kick");
        PollStep::Busy
    }

    fn poll(&self) -> PollStep {
        self.look("poll");
        PollStep::Quiet
    }

    fn sleep(&self) {
        self.look("sleep");
    }

    fn fail(&self) {
        self.ends.fetch_add(1, Ordering::Relaxed);
    }
}

fn bomb(goes_off_in: &'static str) -> Arc<Bomb> {
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("an event fd");
    Arc::new(Bomb {
        event,
        goes_off_in,
        looks: AtomicUsize::new(0),
        ends: AtomicUsize::new(0),
    })
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + BOUND;
    while !condition() {
        assert!(Instant::now() < end, "still not so: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn wherever_one_panics_the_thread_lives_on() {
    for polling in [ADAPTIVE, Polling::Event] {
        for place in ["kick", "poll", "sleep"] {
            // With events no thread polls.
            if polling == Polling::Event && place == "poll" {
                continue;
            }
            let poller = Poller::start(polling, "bombs".into()).expect("a thread");
            let first = bomb(place);
            let id = poller.add(Arc::clone(&first) as Arc<dyn Polled>).expect("added");
            eventually("it failed", || first.ends.load(Ordering::Relaxed) == 1);
            let second = bomb("kick");
            poller.add(Arc::clone(&second) as Arc<dyn Polled>).expect("added");
            eventually("the thread lives", || second.ends.load(Ordering::Relaxed) == 1);
            poller.remove(id);
        }
    }
}

#[test]
fn the_thread_lets_go_of_what_is_removed() {
    for polling in [ADAPTIVE, Polling::Event, Polling::Busy] {
        let poller = Poller::start(polling, "removal".into()).expect("a thread");
        let polled = bomb("nowhere");
        let id = poller.add(Arc::clone(&polled) as Arc<dyn Polled>).expect("added");
        // With events there is one look; else the thread polls from now on.
        let looks = if polling == Polling::Busy { 100 } else { 1 };
        eventually("it is looked after", || polled.looks.load(Ordering::Relaxed) >= looks);
        poller.remove(id);
        eventually("it is let go", || Arc::strong_count(&polled) == 1);
    }
}

#[test]
fn dropping_a_connection_ends_it_for_the_peer() {
    for polling in [ADAPTIVE, Polling::Event, Polling::Busy] {
        let pollers = pollers(1, polling);
        let busy = polling == Polling::Busy;
        let side = Side {
            busy,
            ..Side::default()
        };
        let [left, right] = attached(&ShmFabric, [&pollers, &pollers], [side; 2]);
        left.write(&Messages::new(1, &[10]).gather(true), 100)
            .expect("it is up");
        assert_eq!(
            contents::packets(&right.read(ReadLimit::bytes(100)).expect("a packet")).len(),
            1
        );
        drop(left);
        assert_eq!(
            right.read(ReadLimit::bytes(100)).err(),
            Some(Closed::PeerGone),
            "{polling:?}"
        );
    }
}

#[test]
fn keepalives_pass_while_the_peer_does_not_read() {
    let pollers = pollers(1, Polling::Event);
    let [left, right] = attached(&ShmFabric, [&pollers, &pollers], [Side::default(); 2]);
    let bulk = Messages::new(1, &[60_000; 20]);
    let gather = bulk.gather(true);
    let written = left.socket.write(&gather, 0, usize::MAX).expect("it is up");
    assert!(written.blocked);
    for number in 1..=50 {
        left.socket.connection().tick().expect("it is up");
        eventually("the keepalive is there", || {
            right.socket.connection().packets().0 == number
        });
    }
}

/// Both sides write a number of packets, then read as many, in turn: a writer that waits for the peer to read must not
/// wait for ever, even if advertisements come too late.
#[test]
fn both_sides_may_write_before_they_read() {
    let plan = FaultPlan {
        distance: Duration::from_millis(2),
        ..FaultPlan::default()
    };
    let pollers = pollers(2, Polling::Event);
    // As much as fits into three quarters of a ring, into several of few buffers, and little.
    for (landing_buffers, ahead) in [(32, 3), (2, 3), (32, 2), (32, 1)] {
        let side = Side {
            landing_buffers,
            ..Side::default()
        };
        let fabric = FaultFabric::new(ShmFabric, plan.clone());
        let ends = attached(&fabric, [&pollers, &pollers], [side, side]);
        let turn = Messages::new(41, &vec![60_000; ahead]);
        let one_packet = ReadLimit {
            packets: 1,
            ..ReadLimit::bytes(usize::MAX)
        };
        std::thread::scope(|scope| {
            for end in &ends {
                scope.spawn(|| {
                    for _ in 0..40 {
                        end.write(&turn.gather(true), usize::MAX).expect("it is up");
                        for body in turn.bodies() {
                            let packets = contents::packets(&end.read(one_packet).expect("it is up"));
                            assert_eq!(&packets, std::slice::from_ref(body));
                        }
                    }
                });
            }
        });
    }
}
