//! One case of the data path, a thousand times: `bench/instructions.py` runs it under Valgrind and divides what was
//! counted inside of [`measured`]. Without the name of a case it lists them.
//!
//! One thread does both ends in turn, as owners that look by themselves would: no clock, no other thread and no
//! system call is part of it, so the figures are the same on every run.

mod block;
#[path = "../tests/support/message.rs"]
mod message;
#[path = "../../stream/benches/rounds/mod.rs"]
mod rounds;
#[path = "../tests/support/side.rs"]
mod side;

use std::hint::black_box;
use std::sync::Arc;

use block::Block;
use inet_rdma_assembly::{Arrived, Assembly, Framing, Gather, ReadLimit, Received};
use inet_rdma_engine::connection::{Connection, ReadHalf, WriteHalf};
use inet_rdma_fabric::QueuePair;
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_stream::{Advert, Control, ControlBody, Mode, Phase, RemoteAddress, Seq};
use message::Messages;
use side::Side;

const ROUNDS: usize = 1_000;

/// Before the counting starts: whatever happens only once has happened.
const WARM_UP: usize = 100;

/// Bytes that a read takes at most, about, as those of the distribution.
const READ_BYTES: usize = 262_144;

/// From this size on packets are those of streams.
const LARGE_BYTES: usize = 16_384;

/// So long that a search from the line's start at each byte would show.
const LINE_BYTES: usize = 2_048;

/// Name, packets (or operations) in a round, and the rounds.
type Case = (&'static str, usize, fn());

const CASES: [Case; 13] = [
    ("write 64 B", 1, || write(Mode::Dynamic, &[64])),
    ("read 64 B", 1, || read(Mode::Dynamic, &[64])),
    ("write 64 B, of 32 at once", 32, || write(Mode::Dynamic, &[64; 32])),
    ("read 64 B, of 32 at once", 32, || read(Mode::Dynamic, &[64; 32])),
    ("write 64 KiB, ring", 1, || write(Mode::IndirectOnly, &[65_536])),
    ("read 64 KiB, ring", 1, || read(Mode::IndirectOnly, &[65_536])),
    ("write 64 KiB, direct", 1, || write(Mode::Dynamic, &[65_536])),
    ("read 64 KiB, direct", 1, || read(Mode::Dynamic, &[65_536])),
    ("stream, indirect transfer", 1, || stream(rounds::indirect)),
    ("stream, direct transfer", 1, || stream(rounds::direct)),
    ("control message, encode", 1, encode),
    ("control message, decode", 1, decode),
    ("a line, byte by byte", LINE_BYTES, line),
];

fn main() {
    // `cargo bench` adds a flag.
    let name = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    for (case, operations, run) in CASES {
        match &name {
            None => println!("{}\t{case}", ROUNDS * operations),
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

fn repeat(mut round: impl FnMut(bool)) {
    (0..WARM_UP).for_each(|_| round(false));
    (0..ROUNDS).for_each(|_| round(true));
}

fn count(counted: bool, mut work: impl FnMut()) {
    if counted { measured(&mut work) } else { work() }
}

fn write(mode: Mode, sizes: &[usize]) {
    to_and_fro(mode, sizes, true);
}

fn read(mode: Mode, sizes: &[usize]) {
    to_and_fro(mode, sizes, false);
}

/// One end as the port of a distribution link has it: nobody is armed, so nobody makes a system call.
fn end(side: &Side, qp: Box<dyn QueuePair>) -> (Arc<Connection>, ReadHalf<Block>, WriteHalf) {
    let (parameters, user) = (side.parameters(), Arc::new(()));
    let made = Connection::new(qp, &parameters, side.settings(), side.framing, None, user).expect("a connection");
    made.0.set_self_polling();
    made
}

/// Packets in one write, then read; one of both is counted.
fn to_and_fro(mode: Mode, sizes: &[usize], count_writes: bool) {
    let side = match sizes[0] {
        // Links, which have no landing buffers, carry small packets.
        ..LARGE_BYTES => Side::of_link(),
        _ => Side {
            mode,
            ring_bytes: 1 << 20,
            ..Side::default()
        },
    };
    let (there, here) = side::queue_pairs(&ShmFabric, &side, &side);
    let (sender, _back, mut writer) = end(&side, there);
    let (_receiver, mut reader, _answers) = end(&side, here);
    let messages = Messages::new(1, sizes);
    // As a link's port has it: its memory stays, and the VM frees the packets later.
    let mut received = Vec::new();
    repeat(|counted| {
        received.clear();
        count(counted && count_writes, || {
            let mut gather = match sizes.len() {
                1 => Gather::small(),
                count => Gather::with_capacity(2 * count, count),
            };
            messages.add_to(&mut gather, true);
            let written = writer.write(&gather, 0, usize::MAX).expect("it is up");
            assert!(!written.blocked, "no room");
        });
        count(counted && !count_writes, || {
            reader.read(ReadLimit::bytes(READ_BYTES), &mut received);
        });
        assert_eq!(received.iter().map(Received::packets).sum::<usize>(), sizes.len());
    });
    // The first large packet finds nothing advertised yet.
    let direct = mode == Mode::Dynamic && sizes[0] >= side.direct_bytes;
    let sent = sender.statistics().stream;
    let expected = if direct {
        sent.direct_transfers_sent
    } else {
        sent.indirect_transfers_sent
    };
    assert!(
        expected as usize >= WARM_UP / 2 + ROUNDS,
        "another way than was meant: {sent:?}"
    );
}

fn stream(round: fn(&mut [inet_rdma_stream::Stream; 2])) {
    let mut pair = rounds::pair();
    repeat(|counted| count(counted, || round(&mut pair)));
}

/// The message with the most fields.
fn advert() -> Control {
    Control {
        credits: 3,
        body: ControlBody::Advert(Advert {
            target: RemoteAddress { key: 1, address: 4_096 },
            bytes: 69_632,
            fill: false,
            seq: Seq(1_000_000),
            phase: Phase(2),
        }),
    }
}

fn encode() {
    let control = advert();
    repeat(|counted| {
        count(counted, || {
            black_box(black_box(&control).emit());
        });
    });
}

fn line() {
    let mut text = vec![b'x'; LINE_BYTES];
    text[LINE_BYTES - 1] = b'\n';
    let framing = Framing::Line { bytes_max: 1 << 20 };
    let mut assembly = Assembly::<Vec<u8>>::new(framing, 1 << 20);
    repeat(|counted| {
        let mut received = Vec::new();
        count(counted, || {
            for byte in &text {
                // SAFETY: one run is a byte that outlives the value, the other is empty.
                let arrived = unsafe { Arrived::new([(byte, 1), (byte, 0)]) };
                let _ = assembly.push(&arrived, ReadLimit::bytes(READ_BYTES), &mut received);
            }
        });
        assert!(matches!(received.as_slice(), [Received::Whole(line)] if *line == text));
    });
}

fn decode() {
    let bytes = advert().emit();
    repeat(|counted| {
        count(counted, || {
            black_box(Control::parse(black_box(&bytes))).expect("well-formed");
        });
    });
}
