//! What idle connections cost a busy one: `cargo run --release --example idle_connections [idle [rounds]]`.
//!
//! One connection with an engine of its own for either end carries packets of 64 bytes and answers to them, first alone,
//! then beside idle connections (default 1,000) in the same two engines, in turn, for some rounds (default 5). Prints
//! round trips per second of both and the median ratio.

#[path = "../tests/support_connection/attached.rs"]
mod attached;
#[path = "../tests/support_connection/message.rs"]
mod message;
#[path = "../tests/support_connection/pair.rs"]
mod pair;

use std::sync::Arc;
use std::time::{Duration, Instant};

use attached::Attached;
use inet_rdma_engine::assembly::{Framing, ReadLimit, Received};
use inet_rdma_engine::endpoint::Engine;
use inet_rdma_engine::poller::Polling;
use inet_rdma_engine::shm::ShmFabric;
use message::Messages;
use pair::Side;

const ROUND: Duration = Duration::from_secs(1);

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|argument| argument.parse().expect("a number"));
    let idle: usize = arguments.next().unwrap_or(1_000);
    let rounds: usize = arguments.next().unwrap_or(5);
    let spin = Duration::from_micros(50);
    let engines = [(); 2].map(|()| Arc::new(Engine::start(1, Polling::Adaptive { spin }).expect("a thread")));
    let side = Side::default();
    let mut listener = pair::listen(&ShmFabric, &side);
    let mut connected = || {
        let (left, right) = pair::join(&ShmFabric, &mut *listener, &side);
        [
            Attached::new(&engines[0], side.connection(left)),
            Attached::new(&engines[1], side.connection(right)),
        ]
    };
    let busy = connected();
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let alone = round_trips_per_second(&busy);
        let others: Vec<_> = (0..idle).map(|_| connected()).collect();
        let beside = round_trips_per_second(&busy);
        close(&others);
        ratios.push(beside / alone);
        println!("alone {alone:.0}/s, beside {idle} idle connections {beside:.0}/s");
    }
    ratios.sort_by(f64::total_cmp);
    println!("median ratio {:.3} of {rounds} rounds", ratios[rounds / 2]);
}

fn close(connections: &[[Attached; 2]]) {
    for [left, right] in connections {
        let _ = left.connection.close();
        let _ = right.connection.close();
    }
}

fn round_trips_per_second([left, right]: &[Attached; 2]) -> f64 {
    let packet = Messages::new(1, &[64]);
    let last = Messages::new(1, &[0]);
    let send = |end: &Attached, messages: &Messages| {
        let framed = end.connection.framing() == Framing::Length4;
        end.write(&messages.gather(framed), usize::MAX).expect("it is up");
    };
    let receive = |end: &Attached| {
        let received = end.read(ReadLimit::bytes(4_096)).expect("it is up");
        received
            .iter()
            .any(|part| matches!(part, Received::Whole(bytes) if bytes.is_empty()))
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !receive(right) {
                send(right, &packet);
            }
        });
        let start = Instant::now();
        let mut trips = 0u32;
        while start.elapsed() < ROUND {
            send(left, &packet);
            receive(left);
            trips += 1;
        }
        let rate = f64::from(trips) / start.elapsed().as_secs_f64();
        send(left, &last);
        rate
    })
}
