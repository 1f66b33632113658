//! The shm fabric alone: cost of messages by polling, latency between two threads and between two processes, and writes
//! compared with memcpy.
//!
//! `cargo bench -p inet_rdma_fabric_shm --bench fabric`

#[path = "../../fabric/tests/support/mod.rs"]
#[allow(dead_code, reason = "shared with the contract suite, which uses all of it")]
mod support;

use std::cell::Cell;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use inet_rdma_fabric::{Completion, Fabric, FabricError, Parameters, QueuePair};
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_stream::{CONTROL_BYTES, Limits};
use support::*;

const MESSAGES: [(&str, usize); 2] = [("64 B", 64), ("1 KiB", 1 << 10)];
const BULK: [(&str, usize); 2] = [("64 KiB", 64 << 10), ("1 MiB", 1 << 20)];

/// Environment variables for a child process: the port of its parent, and whether to sleep.
const PORT: &str = "INET_RDMA_BENCH_PORT";
const ASLEEP: &str = "INET_RDMA_BENCH_ASLEEP";

/// The parameters of a connection with default options.
fn usual() -> Parameters {
    Parameters {
        landing_area_bytes: 256 * 69_632,
        connection_id: 1,
        ..Parameters::of(Limits {
            ring_bytes: 1 << 20,
            receive_slots: 256,
            adverts: 256,
        })
    }
}

/// One thread posts and polls in turn: the instructions, without the traffic between two cores.
fn messages(bench: &mut Criterion) {
    const BATCH: u64 = 64;
    let (client, server) = pair_of(&ShmFabric, usual(), usual());
    let target = server.memory().remote_address(0);
    let mut out = [Completion::Notice(NOTICE); BATCH as usize];
    let mut group = bench.benchmark_group("messages, one thread");
    group.throughput(Throughput::Elements(BATCH));
    group.bench_function("control", |run| {
        run.iter(|| {
            (0..BATCH).for_each(|_| client.post_control(&[1; CONTROL_BYTES]).expect("room"));
            assert_eq!(server.poll(&mut out).expect("an honest peer") as u64, BATCH);
        });
    });
    for (name, bytes) in MESSAGES {
        let source = vec![1; bytes];
        group.bench_function(format!("{name} write with notice"), |run| {
            run.iter(|| {
                (0..BATCH).for_each(|_| client.post(&[&source], target, notice(bytes)).expect("room"));
                assert_eq!(server.poll(&mut out).expect("an honest peer") as u64, BATCH);
            });
        });
    }
    group.bench_function("poll of an empty queue", |run| {
        run.iter(|| (0..BATCH).for_each(|_| assert_eq!(server.poll(&mut out).expect("an honest peer"), 0)));
    });
    group.finish();
}

/// One thread posts and a second one takes, as fast as the queue allows.
fn rate(bench: &mut Criterion) {
    let mut group = bench.benchmark_group("messages one way, two threads");
    group.throughput(Throughput::Elements(1));
    for (name, bytes) in MESSAGES {
        let (client, server) = pair_of(&ShmFabric, usual(), usual());
        let target = server.memory().remote_address(0);
        let source = vec![1; bytes];
        let (done, taken) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut out = [Completion::Notice(NOTICE); 64];
                while !done.load(Ordering::Relaxed) {
                    let some = server.poll(&mut out).expect("an honest peer");
                    taken.fetch_add(some as u64, Ordering::Relaxed);
                }
            });
            let mut posted = 0;
            group.bench_function(name, |run| {
                run.iter_custom(|times| {
                    let start = Instant::now();
                    for _ in 0..times {
                        while !posted_now(client.post(&[&source], target, notice(bytes))) {}
                    }
                    posted += times;
                    while taken.load(Ordering::Relaxed) < posted {
                        std::hint::spin_loop();
                    }
                    start.elapsed()
                });
            });
            done.store(true, Ordering::Relaxed);
        });
    }
    group.finish();
}

/// False: the queue is full.
fn posted_now(outcome: Result<(), FabricError>) -> bool {
    match outcome {
        Ok(()) => true,
        Err(FabricError::QueueFull) => {
            std::hint::spin_loop();
            false
        }
        Err(error) => panic!("{error}"),
    }
}

/// A second thread, or a second process, sends every control message back.
fn latency(bench: &mut Criterion) {
    for asleep in [false, true] {
        let (client, server) = pair_of(&ShmFabric, usual(), usual());
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| echo(&*server, asleep, &done));
            round_trips(bench, "round trip, two threads", &*client, asleep);
            done.store(true, Ordering::Relaxed);
            client.post_control(&[1; CONTROL_BYTES]).expect("room");
        });
    }
    for asleep in [false, true] {
        let mut listener = listen(&ShmFabric, usual());
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .env(PORT, listener.port().to_string())
            .env(ASLEEP, asleep.to_string())
            .stdout(Stdio::null())
            .spawn()
            .expect("a child process");
        let client = accept(&mut *listener).expect("the child");
        round_trips(bench, "round trip, two processes", &*client, asleep);
        child.kill().expect("a living child");
        child.wait().expect("an exit status");
    }
}

fn round_trips(bench: &mut Criterion, group: &str, client: &dyn QueuePair, asleep: bool) {
    let mut group = bench.benchmark_group(group);
    group.bench_function(if asleep { "asleep" } else { "polling" }, |run| {
        run.iter(|| {
            client.post_control(&[1; CONTROL_BYTES]).expect("room");
            while !receive(client, &mut [Completion::Notice(NOTICE)], asleep) {}
        });
    });
    group.finish();
}

fn echo(server: &dyn QueuePair, asleep: bool, done: &AtomicBool) {
    let mut out = [Completion::Notice(NOTICE)];
    while !done.load(Ordering::Relaxed) {
        if receive(server, &mut out, asleep) {
            server.post_control(&[2; CONTROL_BYTES]).expect("room");
        }
    }
}

/// The second process of [`latency`], until the first one ends it.
fn echo_to_parent(port: &str) {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).expect("a signal");
    let asleep = std::env::var(ASLEEP).is_ok_and(|asleep| asleep == "true");
    let server = ShmFabric
        .connect(
            (Ipv4Addr::LOCALHOST, port.parse().expect("a port")).into(),
            &usual(),
            BOUND,
        )
        .expect("the parent");
    echo(&*server, asleep, &AtomicBool::new(false));
}

/// One look; a side that sleeps is woken by the peer's next message.
fn receive(queue_pair: &dyn QueuePair, out: &mut [Completion], asleep: bool) -> bool {
    if queue_pair.poll(out).expect("an honest peer") > 0 {
        return true;
    }
    if asleep && queue_pair.arm().expect("an honest peer") {
        // The echoing side also sleeps while criterion computes, for any time. Only a message without a wake-up is an
        // error.
        let woken = readable_within(queue_pair.event_fd(), BOUND);
        let lost =
            !woken && !queue_pair.arm().expect("an honest peer") && !readable_within(queue_pair.event_fd(), BOUND);
        assert!(!lost, "a wake-up was lost");
        queue_pair.drain_event();
    }
    std::hint::spin_loop();
    false
}

/// Writes into the landing area, place after place, and plain copies to these places. Both take turns, so that other
/// work of the machine slows both.
fn bulk(bench: &mut Criterion) {
    let (client, server) = pair_of(&ShmFabric, usual(), usual());
    let area = server.exposer().expose(256 * 69_632).expect("the landing area");
    let memory = area.memory();
    for (name, bytes) in BULK {
        let source = vec![7u8; bytes];
        let places = memory.bytes() / bytes;
        let place = |turn: u64| turn as usize % places * bytes;
        let write = |turn| {
            let target = memory.remote_address(place(turn));
            client.post(&[&source], target, notice(bytes)).expect("room");
            black_box(poll_one(&*server));
        };
        let copy = |turn| {
            let target = memory.base().wrapping_add(place(turn));
            // SAFETY: `place` leaves `bytes` up to the end of the memory; source and memory do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(black_box(source.as_ptr()), target, bytes) };
        };
        let sums = [const { Cell::new(Duration::ZERO) }; 2];
        let both = |times| {
            let spent = [timed(times, &write), timed(times, &copy)];
            sums.iter()
                .zip(spent)
                .for_each(|(sum, spent)| sum.set(sum.get() + spent));
            spent
        };
        let mut group = bench.benchmark_group(name);
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function("write and poll", |run| run.iter_custom(|times| both(times)[0]));
        group.bench_function("memcpy", |run| run.iter_custom(|times| both(times)[1]));
        group.finish();
        let [written, copied] = sums.map(|sum| sum.get().as_secs_f64());
        if written > 0.0 {
            println!(
                "{name}: written and polled at {:.0} % of memcpy's rate\n",
                100.0 * copied / written
            );
        }
    }
}

fn timed(times: u64, work: &dyn Fn(u64)) -> Duration {
    let start = Instant::now();
    (0..times).for_each(work);
    start.elapsed()
}

fn main() {
    if let Ok(port) = std::env::var(PORT) {
        return echo_to_parent(&port);
    }
    let mut bench = Criterion::default().configure_from_args();
    for measure in [messages, rate, latency, bulk] {
        measure(&mut bench);
    }
    bench.final_summary();
}
