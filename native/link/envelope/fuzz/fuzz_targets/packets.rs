//! A peer that sends any packets: bytes, and headers with atoms before bytes.
//!
//! Run: `cargo fuzz run packets` (nightly), or on stable with `RUSTC_BOOTSTRAP=1`. Nothing may panic, the reader
//! switches itself off once at most, its answer does not depend on the pieces of a packet, and no byte is counted twice
//! or left out, also of packets that are not looked at.
#![no_main]

use arbitrary::Arbitrary;
use std::time::Duration;

use inet_rdma_envelope::{Direction, Reader};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Packet {
    start: Start,
    body: Vec<u8>,
    piece_bytes: u8,
    /// Times that the packet is sent: at a high rate most of the packets are not looked at.
    times: u16,
}

#[derive(Debug, Arbitrary)]
enum Start {
    None,
    PassThrough,
    Header { atoms: Vec<Atom>, is_long: bool },
    FirstFragment { id: u8, number: u8, atoms: Vec<Atom> },
    FurtherFragment { id: u8, number: u8 },
}

#[derive(Debug, Arbitrary)]
struct Atom {
    entry: u16,
    /// None: a reference.
    text: Option<String>,
}

impl Packet {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = match &self.start {
            Start::None => vec![],
            Start::PassThrough => vec![112, 131],
            Start::Header { atoms, is_long } => [vec![131, 68], header(atoms, *is_long)].concat(),
            Start::FirstFragment { id, number, atoms } => [fragment(69, *id, *number), header(atoms, false)].concat(),
            Start::FurtherFragment { id, number } => fragment(70, *id, *number),
        };
        bytes.extend(&self.body);
        bytes
    }
}

fn fragment(tag: u8, id: u8, number: u8) -> Vec<u8> {
    [
        &[131, tag][..],
        &u64::from(id).to_be_bytes(),
        &u64::from(number).to_be_bytes(),
    ]
    .concat()
}

fn header(atoms: &[Atom], is_long: bool) -> Vec<u8> {
    let atoms = &atoms[..atoms.len().min(255)];
    if atoms.is_empty() {
        return vec![0];
    }
    let mut flags = vec![0_u8; atoms.len() / 2 + 1];
    for (index, atom) in atoms.iter().enumerate() {
        let half = (atom.entry >> 8) as u8 & 7 | u8::from(atom.text.is_some()) << 3;
        flags[index / 2] |= half << (index % 2 * 4);
    }
    flags[atoms.len() / 2] |= u8::from(is_long) << (atoms.len() % 2 * 4);
    let mut bytes = vec![atoms.len() as u8];
    bytes.extend(flags);
    for atom in atoms {
        bytes.push(atom.entry as u8);
        if let Some(text) = &atom.text {
            let text = &text.as_bytes()[..text.len().min(if is_long { 2000 } else { 255 })];
            match is_long {
                true => bytes.extend((text.len() as u16).to_be_bytes()),
                false => bytes.push(text.len() as u8),
            }
            bytes.extend(text);
        }
    }
    bytes
}

fuzz_target!(|packets: Vec<Packet>| {
    let (mut whole, mut cut, mut direction) = (Reader::new(), Reader::new(), Direction::new());
    let (mut total, mut offs, mut now_us) = (0, 0, 0);
    for packet in &packets {
        let bytes = packet.bytes();
        let pieces = || bytes.chunks(usize::from(packet.piece_bytes).max(1));
        let envelope = whole.packet([&bytes[..]], bytes.len());
        assert_eq!(cut.packet(pieces(), bytes.len()), envelope);
        offs += usize::from(envelope.is_err());
        let mut off = None;
        for _ in 0..=packet.times {
            total += bytes.len() as u64;
            now_us += 10;
            off = off.or(direction.packet(pieces(), bytes.len(), || Duration::from_micros(now_us)));
        }
        // What nobody looks at contradicts nothing.
        assert!(off.is_none() || envelope.is_err() || offs == 1);
        let counted: u64 = direction.counts().iter().map(|(_, count)| count.bytes).sum();
        assert_eq!(counted, total);
        assert!(direction.all().entries().all(|entry| entry.at_least <= entry.at_most));
    }
    assert!(offs <= 1);
});
