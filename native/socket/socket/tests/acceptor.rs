//! Listeners on threads of their own.

#[path = "support/attached.rs"]
mod attached;
#[path = "../../../core/assembly/tests/support/contents.rs"]
mod contents;
#[path = "../../../core/engine/tests/support/message.rs"]
mod message;
#[path = "support/pair.rs"]
mod pair;

use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use attached::Attached;
use inet_rdma_assembly::ReadLimit;
use inet_rdma_fabric::{Fabric, FabricError, Listener, QueuePair};
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_socket::acceptor::{AcceptWaker, Acceptor};
use inet_rdma_socket::endpoint::Pollers;
use inet_rdma_socket::poller::Polling;
use message::Messages;
use pair::{BOUND, Side};

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + BOUND;
    while !condition() {
        assert!(Instant::now() < end, "still not so: {what}");
        std::thread::yield_now();
    }
}

/// The left end sends these messages, the right end receives them.
fn say(ends: [&Attached; 2], messages: &Messages) {
    std::thread::scope(|scope| {
        scope.spawn(|| ends[0].write(&messages.gather(true), usize::MAX).expect("it is up"));
        let mut got = Vec::new();
        while got.len() < messages.bodies().len() {
            got.extend(contents::packets(
                &ends[1].read(ReadLimit::bytes(262_144)).expect("it is up"),
            ));
        }
        assert!(got == messages.bodies(), "other packets than were sent");
    });
}

#[derive(Clone, Default)]
struct Counts {
    accepted: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
}

impl AcceptWaker for Counts {
    fn accepted(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    fn refused(&self, _: &FabricError) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_listener_accepts_up_to_its_backlog_and_its_connections_outlive_it() {
    let pollers = Arc::new(Pollers::start(2, Polling::Event).expect("threads"));
    let side = Side::default();
    let counts = Counts::default();
    let acceptor = Acceptor::start(pair::listen(&ShmFabric, &side), 2, Box::new(counts.clone())).expect("a listener");
    let connect = || {
        ShmFabric
            .connect((Ipv4Addr::LOCALHOST, acceptor.port()).into(), &side.parameters(), BOUND)
            .expect("a connection")
    };
    let first = connect();
    let _second = connect();
    eventually("two wait", || counts.accepted.load(Ordering::Relaxed) == 2);
    let third = connect();
    eventually("the third is refused", || counts.refused.load(Ordering::Relaxed) == 1);
    eventually("and sees it", || third.check_alive().is_err());
    let accepted = acceptor.accept().expect("a listener that lives").expect("the first");
    let port = acceptor.port();
    drop(acceptor);
    let ends = [
        Attached::new(&pollers, side.connection(first)),
        Attached::new(&pollers, side.connection(accepted)),
    ];
    say([&ends[0], &ends[1]], &Messages::new(11, &[50_000; 4]));
    assert!(
        ShmFabric
            .connect((Ipv4Addr::LOCALHOST, port).into(), &side.parameters(), BOUND)
            .is_err(),
        "nobody listens now"
    );
}

type Outcome = Result<Box<dyn QueuePair>, FabricError>;

/// A listener that changes the outcome of each peer.
struct Altered<F> {
    listener: Box<dyn Listener>,
    alter: F,
    /// True: an altered outcome was an error, and the listener ends with it.
    has_failed: bool,
}

impl<F: FnMut(Outcome) -> Outcome + Send> Altered<F> {
    fn new(side: &Side, alter: F) -> Box<Self> {
        Box::new(Self {
            listener: pair::listen(&ShmFabric, side),
            alter,
            has_failed: false,
        })
    }
}

impl<F: FnMut(Outcome) -> Outcome + Send> Listener for Altered<F> {
    fn event_fd(&self) -> BorrowedFd<'_> {
        self.listener.event_fd()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.listener.next_deadline()
    }

    fn poll_accept(&mut self) -> Option<Outcome> {
        if self.has_failed {
            return None;
        }
        let outcome = (self.alter)(self.listener.poll_accept()?);
        self.has_failed = outcome.is_err();
        Some(outcome)
    }

    fn is_over(&self) -> bool {
        self.has_failed || self.listener.is_over()
    }

    fn port(&self) -> u16 {
        self.listener.port()
    }

    fn over(&self) -> String {
        self.listener.over()
    }
}

/// A slow listener, which accepts a peer only when the test allows it; a sender that allows an accept, and the number
/// of accepts that have begun.
fn slow(side: &Side) -> (Box<dyn Listener>, Sender<()>, Arc<AtomicUsize>) {
    let is_accepting = Arc::new(AtomicUsize::new(0));
    let begun = Arc::clone(&is_accepting);
    let (allow, may_accept) = channel();
    let slow = Altered::new(side, move |outcome| {
        begun.fetch_add(1, Ordering::Relaxed);
        let _ = may_accept.recv_timeout(4 * BOUND);
        outcome
    });
    (slow, allow, is_accepting)
}

#[test]
fn a_listener_that_panics_leaves_no_port_and_its_acceptor_finds_out() {
    let side = Side::default();
    let counts = Counts::default();
    let panicking = Altered::new(&side, |_| panic!("this panic is part of the test"));
    let acceptor = Acceptor::start(panicking, 2, Box::new(counts.clone())).expect("a listener");
    let connect = || ShmFabric.connect((Ipv4Addr::LOCALHOST, acceptor.port()).into(), &side.parameters(), BOUND);
    let lost = connect();
    eventually("the acceptor is woken", || counts.accepted.load(Ordering::Relaxed) == 1);
    assert!(matches!(acceptor.accept(), Err(FabricError::Panicked(_))));
    eventually("the peer sees the end", || {
        lost.as_ref().map_or(true, |qp| qp.check_alive().is_err())
    });
    assert!(connect().is_err(), "nobody listens now");
}

#[test]
fn a_listener_that_fails_leaves_no_port_and_its_acceptor_says_why() {
    let side = Side::default();
    let counts = Counts::default();
    let failing = Altered::new(&side, |_| Err(FabricError::DeviceRemoved));
    let acceptor = Acceptor::start(failing, 2, Box::new(counts.clone())).expect("a listener");
    let connect = || ShmFabric.connect((Ipv4Addr::LOCALHOST, acceptor.port()).into(), &side.parameters(), BOUND);
    let _lost = connect();
    eventually("the acceptor is woken", || counts.accepted.load(Ordering::Relaxed) == 1);
    assert_eq!(acceptor.accept().err(), Some(FabricError::DeviceRemoved));
    assert_eq!(counts.refused.load(Ordering::Relaxed), 0, "the failure is not a peer's");
    assert!(connect().is_err(), "nobody listens now");
}

#[test]
fn connections_are_woken_while_a_listener_accepts() {
    let pollers = Arc::new(Pollers::start(1, Polling::Event).expect("threads"));
    let side = Side::default();
    let (left, right) = pair::connect(&ShmFabric, &side, &side);
    let ends = [left, right].map(|end| Attached::new(&pollers, end));
    let counts = Counts::default();
    let (listener, allow, is_accepting) = slow(&side);
    let acceptor = Acceptor::start(listener, 2, Box::new(counts.clone())).expect("a listener");
    let _peer = ShmFabric
        .connect((Ipv4Addr::LOCALHOST, acceptor.port()).into(), &side.parameters(), BOUND)
        .expect("a connection");
    eventually("the listener accepts", || is_accepting.load(Ordering::Relaxed) == 1);
    // Several rings full: writer and reader have to be woken.
    say([&ends[0], &ends[1]], &Messages::new(5, &[60_000; 20]));
    assert!(
        acceptor.accept().expect("a listener that lives").is_none(),
        "an accept that waits"
    );
    allow.send(()).expect("the listener waits");
    eventually("the peer is accepted", || counts.accepted.load(Ordering::Relaxed) == 1);
    assert!(acceptor.accept().expect("a listener that lives").is_some());
}

#[test]
fn closing_a_port_does_not_wait_for_an_accept() {
    let side = Side::default();
    let (listener, allow, is_accepting) = slow(&side);
    let acceptor = Acceptor::start(listener, 2, Box::new(Counts::default())).expect("a listener");
    let to = (Ipv4Addr::LOCALHOST, acceptor.port()).into();
    let peer = ShmFabric.connect(to, &side.parameters(), BOUND).expect("a connection");
    eventually("the listener accepts", || is_accepting.load(Ordering::Relaxed) == 1);
    drop(acceptor);
    allow.send(()).expect("the listener accepts still");
    eventually("the peer sees the end", || peer.check_alive().is_err());
    eventually("nobody listens now", || {
        matches!(
            ShmFabric.connect(to, &side.parameters(), BOUND),
            Err(FabricError::Refused(_))
        )
    });
}
