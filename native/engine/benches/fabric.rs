//! What the shm fabric costs by itself: messages by polling, latency between two threads, and writes against memcpy.
//!
//! `cargo bench -p inet_rdma_engine --bench fabric`

#[path = "../tests/contract/support.rs"]
#[allow(dead_code, reason = "shared with the contract suite, which uses all of it")]
mod support;

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use inet_rdma_engine::fabric::{Completion, Parameters, QueuePair};
use inet_rdma_engine::shm::ShmFabric;
use inet_rdma_stream::{CONTROL_BYTES, Limits};
use support::*;

const BULK: usize = 64 << 10;

fn usual() -> Parameters {
    Parameters {
        limits: Limits {
            ring_bytes: 262_144,
            receive_slots: 256,
            adverts: 32,
        },
        landing_bytes: 32 * 69_632,
        connection_id: 1,
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
    group.bench_function("64-byte write with notice", |run| {
        run.iter(|| {
            (0..BATCH).for_each(|_| client.post_write(&[&[1; 64]], target, notice(64)).expect("room"));
            assert_eq!(server.poll(&mut out).expect("an honest peer") as u64, BATCH);
        });
    });
    group.bench_function("poll of an empty queue", |run| {
        run.iter(|| (0..BATCH).for_each(|_| assert_eq!(server.poll(&mut out).expect("an honest peer"), 0)));
    });
    group.finish();
}

/// A second thread sends every control message back.
fn latency(bench: &mut Criterion) {
    let mut group = bench.benchmark_group("round trip, two threads");
    for (name, asleep) in [("polling", false), ("asleep", true)] {
        let (client, server) = pair_of(&ShmFabric, usual(), usual());
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut out = [Completion::Notice(NOTICE)];
                while !done.load(Ordering::Relaxed) {
                    if receive(&*server, &mut out, asleep) {
                        server.post_control(&[2; CONTROL_BYTES]).expect("room");
                    }
                }
            });
            group.bench_function(name, |run| {
                run.iter(|| {
                    client.post_control(&[1; CONTROL_BYTES]).expect("room");
                    while !receive(&*client, &mut [Completion::Notice(NOTICE)], asleep) {}
                });
            });
            done.store(true, Ordering::Relaxed);
            client.post_control(&[1; CONTROL_BYTES]).expect("room");
        });
    }
    group.finish();
}

/// One look; whoever sleeps is woken by the peer's next message.
fn receive(queue_pair: &dyn QueuePair, out: &mut [Completion], asleep: bool) -> bool {
    if queue_pair.poll(out).expect("an honest peer") > 0 {
        return true;
    }
    if asleep && queue_pair.arm().expect("an honest peer") {
        // The echoing side also sleeps while criterion computes, however long that takes; only a message that nobody was
        // woken for is a loss.
        let woken = readable_within(queue_pair.event_fd(), BOUND);
        let lost =
            !woken && !queue_pair.arm().expect("an honest peer") && !readable_within(queue_pair.event_fd(), BOUND);
        assert!(!lost, "a wake-up was lost");
        queue_pair.drain_event();
    }
    std::hint::spin_loop();
    false
}

/// 64 KiB into a landing area of 2 MiB, place after place, against the plain copy to the same places.
fn bulk(bench: &mut Criterion) {
    let (client, server) = pair_of(&ShmFabric, usual(), usual());
    let memory = server.memory();
    let source = vec![7u8; BULK];
    let places = memory.landing_bytes() / BULK;
    let place = |turn: usize| memory.landing_offset() + turn % places * BULK;
    let mut group = bench.benchmark_group("64 KiB");
    group.throughput(Throughput::Bytes(BULK as u64));
    group.bench_function("write and poll", |run| {
        let mut turn = 0;
        run.iter(|| {
            turn += 1;
            client
                .post_write(&[&source], memory.remote_address(place(turn)), notice(BULK))
                .expect("room");
            black_box(poll_one(&*server));
        });
    });
    group.bench_function("memcpy", |run| {
        let mut turn = 0;
        run.iter(|| {
            turn += 1;
            // SAFETY: `place` leaves 64 KiB up to the end of the memory; source and memory do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(black_box(source.as_ptr()), memory.base().add(place(turn)), BULK) };
        });
    });
    group.finish();
}

criterion_group!(benches, messages, latency, bulk);
criterion_main!(benches);
