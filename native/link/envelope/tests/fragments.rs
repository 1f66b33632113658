//! Fragmented messages, interleaved, abandoned, and more of them than the reader follows.

mod support;

use inet_rdma_envelope::{Direction, Operation, Reader, SEQUENCES};
use support::*;

fn send(id: u32) -> Term {
    Term::Tuple(vec![Term::Int(22), pid("a@host", id), pid("b@host", 1000)])
}

fn begin(writer: &mut Writer, id: u32, count: u64) -> Vec<u8> {
    writer.packet(Form::Fragments { id: id.into(), count }, &send(id), &[], &[1; 100])
}

#[test]
fn bytes_of_further_fragments_are_their_senders() {
    let (mut writer, mut direction) = (Writer::default(), Direction::new());
    let mut bytes = vec![0; 5];
    let mut packets = Vec::from_iter((0..5).map(|id| (id, begin(&mut writer, id, 4))));
    for number in (1..4).rev() {
        packets.extend(
            (0..5)
                .rev()
                .map(|id| (id, fragment(id.into(), number, &vec![2; 1000 + id as usize]))),
        );
    }
    // Another message in between.
    let other = writer.normal(&send(99));
    for (id, packet) in &packets {
        bytes[*id as usize] += packet.len();
        assert_eq!(direction.packet([&packet[..]], packet.len(), clock), None);
        assert_eq!(direction.packet([&other[..]], other.len(), clock), None);
    }
    for (id, bytes) in bytes.into_iter().enumerate() {
        let sender = who_is(&pid("a@host", id as u32));
        let entry = direction
            .all()
            .entries()
            .find(|entry| who(direction.reader(), entry.key.sender) == sender)
            .expect("an entry");
        assert_eq!((entry.at_least, entry.at_most), (bytes as f64, bytes as f64));
    }
    assert_eq!(
        direction.counts().of(Operation::SendSender).messages,
        5 + packets.len() as u64
    );
    assert_eq!(direction.counts().of(Operation::Other).messages, 0);
}

#[test]
fn fragments_of_an_unknown_sequence_are_other() {
    let mut reader = Reader::new();
    assert_eq!(read(&mut reader, &fragment(1, 3, b"abc")).0, Operation::Other);
    let (mut writer, id) = (Writer::default(), 7);
    read(&mut reader, &begin(&mut writer, id, 2));
    assert_eq!(read(&mut reader, &fragment(7, 1, b"abc")).0, Operation::SendSender);
    assert_eq!(read(&mut reader, &fragment(7, 1, b"abc")).0, Operation::Other);
}

#[test]
fn sequences_above_the_bound_are_other() {
    let (mut writer, mut reader) = (Writer::default(), Reader::new());
    let all = SEQUENCES as u32 + 3;
    for id in 0..all {
        assert_eq!(read(&mut reader, &begin(&mut writer, id, 3)).0, Operation::SendSender);
    }
    for number in [2, 1] {
        for id in 0..all {
            let read = read(&mut reader, &fragment(id.into(), number, b"abc"));
            match id < SEQUENCES as u32 {
                true => assert_eq!(read.1, who_is(&pid("a@host", id))),
                false => assert_eq!(read.0, Operation::Other),
            }
        }
    }
    // All have ended.
    for id in 0..SEQUENCES as u32 {
        read(&mut reader, &begin(&mut writer, id, 2));
        assert_eq!(
            read(&mut reader, &fragment(id.into(), 1, b"abc")).0,
            Operation::SendSender
        );
    }
}

#[test]
fn abandoned_sequences_give_their_places() {
    let (mut writer, mut reader) = (Writer::default(), Reader::new());
    for id in 0..SEQUENCES as u32 {
        read(&mut reader, &begin(&mut writer, id, 1000));
    }
    for _ in 0..5000 {
        assert_eq!(
            read(&mut reader, &fragment(1, 500, b"abc")).1,
            who_is(&pid("a@host", 1))
        );
    }
    read(&mut reader, &begin(&mut writer, 500, 2));
    assert_eq!(
        read(&mut reader, &fragment(500, 1, b"abc")).1,
        who_is(&pid("a@host", 500))
    );
    assert_eq!(
        read(&mut reader, &fragment(1, 499, b"abc")).1,
        who_is(&pid("a@host", 1))
    );
}

#[test]
fn a_sequence_that_begins_again_is_the_new_one() {
    let (mut writer, mut reader) = (Writer::default(), Reader::new());
    read(&mut reader, &begin(&mut writer, 3, 9));
    let again = writer.packet(Form::Fragments { id: 3, count: 2 }, &send(4), &[], b"");
    read(&mut reader, &again);
    assert_eq!(read(&mut reader, &fragment(3, 1, b"abc")).1, who_is(&pid("a@host", 4)));
}
