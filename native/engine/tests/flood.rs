//! A peer that sends faster than this side takes in costs the other connections of its polling thread no more than turns.

#[path = "support_connection/attached.rs"]
mod attached;
#[path = "support_connection/message.rs"]
mod message;
#[path = "support_connection/pair.rs"]
mod pair;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use attached::Attached;
use inet_rdma_assembly::ReadLimit;
use inet_rdma_engine::endpoint::Engine;
use inet_rdma_engine::poller::Polling;
use inet_rdma_fabric::{Capabilities, Completion, Exposer, FabricError, FabricName, Memory, QueuePair};
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_stream::{CONTROL_BYTES, Hello, Notice, RemoteAddress};
use message::Messages;
use pair::{BOUND, Side};

/// While the flood goes on, each attempt to arm finds that something has come.
#[derive(Default)]
struct Flood {
    is_over: AtomicBool,
    arms: AtomicU64,
}

/// Ends the flood when the test does, however: a polling thread that it holds would be waited for.
struct Flooding(Arc<Flood>);

impl Drop for Flooding {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

struct Flooded {
    inner: Box<dyn QueuePair>,
    flood: Arc<Flood>,
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
        self.inner.remote_hello()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn post_write(&self, source: &[&[u8]], target: RemoteAddress, notice: Notice) -> Result<(), FabricError> {
        self.inner.post_write(source, target, notice)
    }

    fn post_control(&self, message: &[u8; CONTROL_BYTES]) -> Result<(), FabricError> {
        self.inner.post_control(message)
    }

    fn write_room(&self) -> usize {
        self.inner.write_room()
    }

    fn poll(&self, out: &mut [Completion]) -> Result<usize, FabricError> {
        self.inner.poll(out)
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
    let engine = Arc::new(Engine::start(1, Polling::Event).expect("a thread"));
    let side = Side::default();
    let flood = Arc::new(Flood::default());
    let flooding = Flooding(Arc::clone(&flood));
    let (left, right) = pair::queue_pairs(&ShmFabric, &side, &side);
    let flooded = Flooded {
        inner: right,
        flood: Arc::clone(&flood),
    };
    let flooded = [
        Attached::new(&engine, side.connection(left)),
        Attached::new(&engine, side.connection(Box::new(flooded))),
    ];
    let (left, right) = pair::queue_pairs(&ShmFabric, &side, &side);
    let other = [left, right].map(|end| Attached::new(&engine, side.connection(end)));
    // Each waits for the other, so that the polling thread has to wake both.
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
    // The flooded one has its turns, too.
    let before = flood.arms.load(Ordering::Relaxed);
    let end = Instant::now() + BOUND;
    while flood.arms.load(Ordering::Relaxed) == before {
        assert!(Instant::now() < end, "it is not looked at any more");
        std::thread::yield_now();
    }
    drop(flooding);
    send(&flooded[0]);
    receive(&flooded[1]);
}
