//! A peer that sends faster than this side reads, or that reads in tiny steps, only takes its turns from other work of
//! the thread.

#[path = "support/attached.rs"]
mod attached;
#[path = "../../../core/engine/tests/support/message.rs"]
mod message;
#[path = "support/pair.rs"]
mod pair;

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Instant;

use attached::Attached;
use inet_rdma_assembly::ReadLimit;
use inet_rdma_engine::connection::{Closed, ReadEnd};
use inet_rdma_fabric::{Capabilities, Completion, Exposer, FabricError, FabricName, Memory, QueuePair, WriteRoom};
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_socket::endpoint::Pollers;
use inet_rdma_socket::poller::Polling;
use inet_rdma_stream::{CONTROL_BYTES, Control, ControlBody, Hello, Notice, RemoteAddress, Seq};
use message::Messages;
use pair::signal::{Event, Ticket};
use pair::{BOUND, Conn, Side};

/// While the flood goes on, each attempt to arm finds that something has come.
#[derive(Default)]
struct Flood {
    is_over: AtomicBool,
    arms: AtomicU64,
}

/// Ends the flood when the test ends, also by a panic: else the test would wait for the polling thread.
struct Flooding(Arc<Flood>);

impl Drop for Flooding {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

/// A peer with a ring of one byte, which it empties at once.
struct Crumbs {
    hello: Hello,
    /// Written bytes, and posts whose slots the peer has not returned.
    written: AtomicU64,
    posts: AtomicU64,
}

impl Crumbs {
    fn of(peer: &Hello) -> Crumbs {
        Crumbs {
            hello: Hello { ring_bytes: 1, ..*peer },
            written: AtomicU64::new(0),
            posts: AtomicU64::new(0),
        }
    }

    /// The peer's next message, if it has one to send.
    fn poll(&self, out: &mut [Completion]) -> usize {
        let posts = self.posts.swap(0, Ordering::Relaxed);
        if posts == 0 {
            return 0;
        }
        let acknowledgement = Control {
            credits: u16::try_from(posts).expect("no more than its slots"),
            body: ControlBody::Ack {
                freed: Seq(self.written.load(Ordering::Relaxed)),
            },
        };
        out[0] = Completion::Control(acknowledgement.emit());
        1
    }
}

struct Flooded {
    inner: Box<dyn QueuePair>,
    flood: Arc<Flood>,
    /// Takes the place of the peer in all that is posted and polled.
    crumbs: Option<Crumbs>,
}

impl Flooded {
    fn new(inner: Box<dyn QueuePair>, flood: &Arc<Flood>) -> Flooded {
        Flooded {
            inner,
            flood: Arc::clone(flood),
            crumbs: None,
        }
    }
}

impl QueuePair for Flooded {
    fn arm(&self) -> Result<bool, FabricError> {
        self.flood.arms.fetch_add(1, Ordering::Relaxed);
        Ok(self.flood.is_over.load(Ordering::Relaxed) && self.inner.arm()?)
    }

    fn memory(&self) -> &Arc<dyn Memory> {
        self.inner.memory()
    }

    fn exposer(&self) -> Arc<dyn Exposer> {
        self.inner.exposer()
    }

    fn remote_hello(&self) -> &Hello {
        match &self.crumbs {
            None => self.inner.remote_hello(),
            Some(crumbs) => &crumbs.hello,
        }
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn post_write(
        &self,
        room: WriteRoom,
        source: &[&[u8]],
        target: RemoteAddress,
        notice: Notice,
    ) -> Result<(), Box<FabricError>> {
        let Some(crumbs) = &self.crumbs else {
            return self.inner.post_write(room, source, target, notice);
        };
        crumbs.written.fetch_add(notice.bytes.into(), Ordering::Relaxed);
        crumbs.posts.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn post_control(&self, message: &[u8; CONTROL_BYTES]) -> Result<(), FabricError> {
        let Some(crumbs) = &self.crumbs else {
            return self.inner.post_control(message);
        };
        crumbs.posts.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn write_room(&self) -> Option<WriteRoom> {
        self.inner.write_room()
    }

    fn poll(&self, out: &mut [Completion]) -> Result<usize, FabricError> {
        match &self.crumbs {
            None => self.inner.poll(out),
            Some(crumbs) => Ok(crumbs.poll(out)),
        }
    }

    fn disarm(&self) {
        self.inner.disarm();
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.inner.event_fd()
    }

    fn drain_event(&self) -> bool {
        self.inner.drain_event()
    }

    fn liveness_fd(&self) -> BorrowedFd<'_> {
        self.inner.liveness_fd()
    }

    fn check_alive(&self) -> Result<(), FabricError> {
        self.inner.check_alive()
    }

    fn disconnect(&self) {
        self.inner.disconnect();
    }

    fn wakeups_sent(&self) -> u64 {
        self.inner.wakeups_sent()
    }

    fn fabric(&self) -> FabricName {
        self.inner.fabric()
    }

    fn route(&self) -> String {
        self.inner.route()
    }
}

fn send(from: &Attached) {
    from.write(&Messages::new(1, &[100]).gather(true), usize::MAX)
        .expect("it is up");
}

fn receive(to: &Attached) {
    to.read(ReadLimit::bytes(4_096)).expect("a packet");
}

#[test]
fn a_flooded_connection_leaves_turns_to_the_others() {
    let pollers = Arc::new(Pollers::start(1, Polling::Event).expect("a thread"));
    let side = Side::default();
    let flood = Arc::new(Flood::default());
    let flooding = Flooding(Arc::clone(&flood));
    let (left, right) = pair::queue_pairs(&ShmFabric, &side, &side);
    let flooded = Flooded::new(right, &flood);
    let flooded = [
        Attached::new(&pollers, side.connection(left)),
        Attached::new(&pollers, side.connection(Box::new(flooded))),
    ];
    let (left, right) = pair::queue_pairs(&ShmFabric, &side, &side);
    let other = [left, right].map(|end| Attached::new(&pollers, side.connection(end)));
    // Both sides wait, so that the polling thread must wake both.
    std::thread::scope(|scope| {
        let [left, right] = &other;
        scope.spawn(|| {
            for _ in 0..100 {
                receive(right);
                send(right);
            }
        });
        for _ in 0..100 {
            send(left);
            receive(left);
        }
    });
    // The flooded connection has its turns, too.
    let before = flood.arms.load(Ordering::Relaxed);
    let end = Instant::now() + BOUND;
    while flood.arms.load(Ordering::Relaxed) == before {
        assert!(Instant::now() < end, "it is no longer looked at");
        std::thread::yield_now();
    }
    drop(flooding);
    send(&flooded[0]);
    receive(&flooded[1]);
}

/// A connection that no polling thread looks after: its users arm it.
fn unattended() -> (Arc<Conn>, Arc<Conn>, Arc<Flood>) {
    let side = Side {
        landing_buffers: 0,
        ..Side::default()
    };
    let flood = Arc::new(Flood::default());
    let (left, right) = pair::queue_pairs(&ShmFabric, &side, &side);
    let flooded = Flooded::new(right, &flood);
    (side.connection(left), side.connection(Box::new(flooded)), flood)
}

/// A peer may go on with ticks after the end of its stream.
#[test]
fn a_read_of_the_end_returns_though_the_peer_goes_on() {
    let (left, right, flood) = unattended();
    let flooding = Flooding(Arc::clone(&flood));
    right.connection().set_self_polling();
    flood.is_over.store(true, Ordering::Relaxed);
    // A writer waits for room.
    let messages = Messages::new(1, &[60_000; 20]);
    let written = right.write(&messages.gather(true), 0, usize::MAX).expect("it is up");
    assert!(written.blocked);
    assert!(right.arm_writer());
    flood.is_over.store(false, Ordering::Relaxed);
    left.finish().expect("it is up");
    let (done, ends) = mpsc::channel();
    let reader = Arc::clone(&right);
    std::thread::spawn(move || done.send(reader.read(ReadLimit::bytes(4_096), &mut Vec::new())));
    let end = ends.recv_timeout(BOUND).expect("the read returns");
    assert_eq!(end, ReadEnd::Closed(Closed::ByPeer));
    assert!(
        right.notifier().take().writer,
        "nothing is armed: the writer looks again"
    );
    drop(flooding);
}

/// A peer with a ring of one byte, and its victim.
fn crumbling() -> (Box<dyn QueuePair>, Arc<Conn>) {
    let side = Side {
        landing_buffers: 0,
        ..Side::default()
    };
    let (peer, qp) = pair::queue_pairs(&ShmFabric, &side, &side);
    let flood = Arc::new(Flood::default());
    flood.is_over.store(true, Ordering::Relaxed);
    let crumbs = Some(Crumbs::of(qp.remote_hello()));
    let flooded = Flooded {
        inner: qp,
        flood,
        crumbs,
    };
    (peer, side.connection(Box::new(flooded)))
}

#[test]
fn a_write_in_crumbs_returns_before_all_is_written() {
    let (_peer, victim) = crumbling();
    let messages = Messages::new(1, &[60_000]);
    let gather = messages.gather(true);
    let first = victim.write(&gather, 0, usize::MAX).expect("it is up");
    assert!(!first.blocked && first.at < 1_000, "{first:?}");
    let mut at = first.at;
    while at < gather.total() {
        at = victim.write(&gather, at, usize::MAX).expect("it is up").at;
    }
}

#[test]
fn a_posted_send_in_crumbs_leaves_turns_to_others() {
    let (_peer, victim) = crumbling();
    let bytes = vec![7; 60_000];
    victim.post_send(Ticket::send(1, bytes)).expect("it is up");
    let left = victim.posted().send_bytes;
    assert!(left > 50_000, "{left} bytes are left");
    let end = Instant::now() + BOUND;
    while victim.posted().sends > 0 {
        assert!(Instant::now() < end, "it does not go on");
        victim.connection().attend(false);
    }
    assert!(matches!(victim.notifier().event(), Some(Event::Sent(1, Ok(_)))));
}
