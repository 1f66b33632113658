//! One case of the count of packets, a thousand times: see the file of this name in `core/engine`.

#[path = "../tests/support/mod.rs"]
mod support;

use std::hint::black_box;
use std::time::Duration;

use inet_rdma_envelope::Direction;
use support::*;

const ROUNDS: usize = 1_000;

/// Before the counting starts: more packets than are looked at before most of them pass.
const WARM_UP: usize = 200_000;

/// Name, and the rounds.
type Case = (&'static str, fn());

const CASES: [Case; 3] = [
    ("count a packet of 64 B, sent", || count(Load::Sent)),
    ("count a packet of 64 B, received", || count(Load::Received)),
    ("look at a packet of 64 B", || count(Load::Few)),
];

/// Few: each packet is looked at.
#[derive(Clone, Copy, PartialEq)]
enum Load {
    Sent,
    Received,
    Few,
}

fn main() {
    // `cargo bench` adds a flag.
    let name = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    for (case, run) in CASES {
        match &name {
            None => println!("{ROUNDS}\t{case}"),
            Some(name) if name == case => run(),
            Some(_) => {}
        }
    }
}

/// Valgrind counts from when this is entered until it is left.
#[inline(never)]
fn measured(work: &mut dyn FnMut()) {
    work();
}

fn count(load: Load) {
    let (mut writer, mut direction) = (Writer::default(), Direction::new());
    let control = Term::Tuple(vec![Term::Int(22), pid("a@host", 1), pid("b@host", 2)]);
    let first = writer.normal(&control);
    direction.packet([&first[..]], first.len(), clock);
    let packet = writer.packet(Form::Normal, &control, &[], &[0; 67]);
    // The VM sends header, control message and payload as pieces.
    let (header, rest) = packet.split_at(7);
    let (message, payload) = rest.split_at(rest.len() - 67);
    let pieces: &[&[u8]] = match load {
        Load::Sent => &[header, message, payload],
        Load::Received | Load::Few => &[&packet],
    };
    // Between two packets.
    let step_us = if load == Load::Few { 1_000_000 } else { 1 };
    let mut now_us = 0;
    let mut next = |direction: &mut Direction| {
        now_us += step_us;
        let clock = || Duration::from_micros(now_us);
        assert_eq!(direction.packet(pieces.iter().copied(), packet.len(), clock), None);
    };
    (0..WARM_UP).for_each(|_| next(&mut direction));
    measured(&mut || (0..ROUNDS).for_each(|_| next(black_box(&mut direction))));
}
