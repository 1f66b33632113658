//! What idle connections cost a busy one: `cargo run --release --example idle_connections [idle [rounds [address]]]`.
//!
//! One connection, with the sizes of a link and a poller of its own for either end, carries packets of 64 bytes and
//! answers to them: alone, and beside idle connections (default 1,000) in the same two pollers, in each of some rounds
//! (default 7). Which of both comes first changes from round to round. Prints the rates, their ratios within the
//! rounds, the memory that an idle connection touched, the descriptors that either end of it has, and the share of a
//! core that the process takes while nothing is sent; the same as a line of JSON on standard output, where three
//! numbers are median, least, most. Over shm, or over verbs with the address of an RDMA device of this host: then also
//! the memory that the device has pinned.

#[path = "../tests/support/attached.rs"]
mod attached;
#[path = "../../../core/engine/tests/support/message.rs"]
mod message;
#[path = "../tests/support/pair.rs"]
mod pair;
#[path = "../tests/support/process.rs"]
mod process;

use std::sync::Arc;
use std::time::{Duration, Instant};

use attached::Attached;
use inet_rdma_assembly::{Framing, ReadLimit, Received};
use inet_rdma_socket::endpoint::Pollers;
use inet_rdma_socket::poller::Polling;
use message::Messages;
use pair::Side;

const MEASURED: Duration = Duration::from_secs(1);

fn main() {
    let arguments = pair::Arguments::new([1_000, 7]);
    let [idle, rounds] = arguments.numbers;
    assert!(rounds > 0, "at least one round");
    // Three of either end, and the pollers' own.
    process::allow_descriptors(6 * idle as u64 + 200);
    let spin = Duration::from_micros(50);
    let pollers = [(); 2].map(|()| Arc::new(Pollers::start(1, Polling::Adaptive { spin }).expect("a thread")));
    let side = Side::of_link();
    let fabric = arguments.fabric();
    let mut listener = pair::listen(&*fabric, &side);
    let mut connected = || {
        let (left, right) = pair::join_at(&*fabric, &mut *listener, &side, arguments.address);
        [
            Attached::new(&pollers[0], side.connection(left)),
            Attached::new(&pollers[1], side.connection(right)),
        ]
    };
    let busy = connected();
    round_trips_per_second(&busy);
    let (mut all_alone, mut all_beside, mut ratios, mut touched) = (Vec::new(), Vec::new(), Vec::new(), 0.0);
    let (mut descriptors, mut pinned, mut cpu) = (0.0, 0.0, f64::INFINITY);
    for round in 0..rounds {
        let before = (round % 2 == 0).then(|| round_trips_per_second(&busy));
        let (bytes, open, pins) = (
            process::proportional_bytes(),
            process::descriptors(),
            process::pinned_bytes(),
        );
        let others: Vec<_> = (0..idle).map(|_| once_used(connected())).collect();
        let bytes = process::proportional_bytes().saturating_sub(bytes);
        let ends = (2 * idle.max(1)) as f64;
        descriptors = (process::descriptors() - open) as f64 / ends;
        pinned = process::pinned_bytes().saturating_sub(pins) as f64 / ends;
        // Other work of the machine can only add to it.
        cpu = f64::min(cpu, idle_cpu());
        let beside = round_trips_per_second(&busy);
        close(&others);
        drop(others);
        let alone = before.unwrap_or_else(|| round_trips_per_second(&busy));
        eprintln!("alone {alone:.0}/s, beside {idle} idle connections {beside:.0}/s");
        all_alone.push(alone);
        all_beside.push(beside);
        ratios.push(beside / alone);
        // The heap keeps what the first round has freed, so a later one finds some of it touched already.
        touched = f64::max(touched, bytes as f64 / idle.max(1) as f64);
    }
    let [alone, beside, ratio] = [all_alone, all_beside, ratios].map(spread);
    eprintln!(
        "ratio {:.3} ({:.3} .. {:.3}), median of {rounds} rounds; an idle connection touched {:.1} KiB, both ends, and \
         has {descriptors:.2} descriptors at either; with all of them idle {:.2} % of a core",
        ratio[0],
        ratio[1],
        ratio[2],
        touched / 1024.0,
        100.0 * cpu
    );
    print!(r#"{{"idle":{idle},"rounds":{rounds},"touched_bytes":{touched:.0},"descriptors":{descriptors:.2},"#);
    print!(r#""pinned_bytes":{pinned:.0},"idle_cpu":{cpu:.5},"ratio":{ratio:.3?},"#);
    println!(r#""per_second":{{"alone":{alone:.0?},"beside":{beside:.0?}}}}}"#);
}

/// Share of a core that this process takes while nothing is sent.
fn idle_cpu() -> f64 {
    let (start, before) = (Instant::now(), process::cpu_time());
    std::thread::sleep(MEASURED);
    (process::cpu_time() - before).div_duration_f64(start.elapsed())
}

/// Median, least, most.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [values[values.len() / 2], values[0], values[values.len() - 1]]
}

/// As idle as the connections of a cluster are: a handshake once, then nothing.
fn once_used([left, right]: [Attached; 2]) -> [Attached; 2] {
    let packet = Messages::new(1, &[200]);
    for (from, to) in [(&left, &right), (&right, &left)] {
        send(from, &packet);
        to.read(ReadLimit::bytes(4_096)).expect("it is up");
    }
    [left, right]
}

fn close(connections: &[[Attached; 2]]) {
    for [left, right] in connections {
        left.socket.close();
        right.socket.close();
    }
}

fn send(end: &Attached, messages: &Messages) {
    let framed = end.socket.framing() == Framing::Length4;
    end.write(&messages.gather(framed), usize::MAX).expect("it is up");
}

fn round_trips_per_second([left, right]: &[Attached; 2]) -> f64 {
    let packet = Messages::new(1, &[64]);
    let last = Messages::new(1, &[0]);
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
        while start.elapsed() < MEASURED {
            send(left, &packet);
            receive(left);
            trips += 1;
        }
        let rate = f64::from(trips) / start.elapsed().as_secs_f64();
        send(left, &last);
        rate
    })
}
