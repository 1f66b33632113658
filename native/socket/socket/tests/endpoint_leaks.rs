//! Descriptors, threads and memory of connections, and after them, in a process that does nothing else: one test at a
//! time.

#[path = "support/attached.rs"]
mod attached;
#[path = "../../../core/engine/tests/support/message.rs"]
mod message;
#[path = "support/pair.rs"]
mod pair;
#[path = "support/process.rs"]
mod process;

use std::sync::Arc;
use std::time::{Duration, Instant};

use attached::Attached;
use inet_rdma_assembly::{Framing, ReadLimit};
use inet_rdma_fabric::Listener;
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_socket::endpoint::Pollers;
use inet_rdma_socket::poller::Polling;
use message::Messages;
use pair::{BOUND, Side};
use process::{allow_descriptors, proportional_bytes};

/// Held by one test at a time, as both count the resources of the whole process.
static ALONE: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

/// Descriptors, polling threads and shared mappings of this process. Not the test runner's own threads: those come and
/// go.
#[derive(Debug, PartialEq, Eq)]
struct Holdings {
    descriptors: usize,
    threads: usize,
    mappings: usize,
}

impl Holdings {
    fn now() -> Self {
        let entries = |path| std::fs::read_dir(path).expect("procfs").count();
        let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs");
        Self {
            descriptors: entries("/proc/self/fd"),
            threads: polling_threads(),
            mappings: maps.lines().filter(|line| line.contains("memfd:inet_rdma")).count(),
        }
    }
}

fn polling_threads() -> usize {
    let names = std::fs::read_dir("/proc/self/task").expect("procfs").flatten();
    // A thread may end between the two looks.
    let names = names.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with("inet_rdma/")).count()
}

fn pollers() -> Arc<Pollers> {
    let spin = Duration::from_micros(20);
    Arc::new(Pollers::start(1, Polling::Adaptive { spin }).expect("a thread"))
}

fn connected(pollers: &Arc<Pollers>, listener: &mut dyn Listener, side: &Side) -> [Attached; 2] {
    let (left, right) = pair::join(&ShmFabric, listener, side);
    [
        Attached::new(pollers, side.connection(left)),
        Attached::new(pollers, side.connection(right)),
    ]
}

/// A packet from one end to the other.
fn exchange(left: &Attached, right: &Attached, bytes: usize) {
    let messages = Messages::new(1, &[bytes]);
    left.write(&messages.gather(left.socket.framing() == Framing::Length4), usize::MAX)
        .expect("it is up");
    right.read(ReadLimit::bytes(usize::MAX)).expect("a packet");
}

#[test]
fn a_thousand_connections_leave_nothing_behind() {
    let _alone = ALONE.lock();
    let side = Side::default();
    let pollers = pollers();
    let mut listener = pair::listen(&ShmFabric, &side);
    let [left, right] = connected(&pollers, &mut *listener, &side);
    exchange(&left, &right, 100);
    drop((left, right));
    let settled = |wanted: Option<&Holdings>| {
        // The polling thread drops its references, and gets its name, a little later; the connecting threads were
        // joined.
        let end = Instant::now() + BOUND;
        loop {
            let now = Holdings::now();
            match wanted {
                None if now.mappings == 0 && now.threads == 1 => return now,
                Some(wanted) if now == *wanted => return now,
                _ => assert!(Instant::now() < end, "{now:?} instead of {wanted:?}"),
            }
            std::thread::yield_now();
        }
    };
    let before = settled(None);
    for number in 0..1_000 {
        let ends = connected(&pollers, &mut *listener, &side);
        exchange(&ends[0], &ends[1], if number % 10 == 0 { 100_000 } else { 100 });
        // All kinds of ends: closed by one side or both, or dropped.
        for end in ends.iter().take(number % 3) {
            end.socket.close();
        }
    }
    settled(Some(&before));
}

#[test]
fn an_idle_connection_touches_little_memory() {
    const IDLE: u64 = 1_000;
    let _alone = ALONE.lock();
    allow_descriptors(8 * IDLE + 200);
    let side = Side::default();
    let pollers = pollers();
    let mut listener = pair::listen(&ShmFabric, &side);
    let busy = connected(&pollers, &mut *listener, &side);
    exchange(&busy[0], &busy[1], 200_000);
    let before = proportional_bytes();
    // As connections of an idle cluster: a handshake once, then keepalives.
    let idle: Vec<_> = (0..IDLE)
        .map(|_| {
            let ends = connected(&pollers, &mut *listener, &side);
            exchange(&ends[0], &ends[1], 200);
            exchange(&ends[1], &ends[0], 200);
            ends[0].socket.connection().tick().expect("it is up");
            ends
        })
        .collect();
    exchange(&busy[0], &busy[1], 200_000);
    let per_side = proportional_bytes().saturating_sub(before) / IDLE / 2;
    println!("{per_side} bytes per side of an idle connection");
    assert!(per_side < 64 * 1024, "{per_side} bytes per side of an idle connection");
    drop(idle);
}
