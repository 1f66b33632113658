//! Each operation's sender and target; what is unknown; what is broken.

mod support;

use inet_rdma_envelope::{Direction, Key, Off, Operation, Reader};
use support::*;

const A: &str = "a@host";
const B: &str = "b@host";

fn control(terms: impl IntoIterator<Item = Term>) -> Term {
    Term::Tuple(terms.into_iter().collect())
}

/// The control message of each operation, with its sender and target.
fn operations() -> Vec<(Operation, Term, Option<Term>, Option<Term>)> {
    use Operation::*;
    let from = || pid(A, 1);
    let to = || pid(B, 2);
    let name = || atom("rabbit_mgmt_db");
    let token = || Term::Tuple(vec![Term::Int(1), atom("label"), Term::Int(5), pid(A, 9), Term::Int(4)]);
    let mfa = || Term::Tuple(vec![atom("m"), atom("f"), Term::Int(1)]);
    let int = Term::Int;
    let mut rows = Vec::new();
    let mut row = |operation, terms: Vec<Term>, sender: Option<Term>, target: Option<Term>| {
        rows.push((operation, control(terms), sender, target));
    };
    for (operation, number) in [(Link, 1), (Unlink, 4), (GroupLeader, 7), (SendSender, 22)] {
        row(operation, vec![int(number), from(), to()], Some(from()), Some(to()));
    }
    for (operation, number) in [(PayloadExit, 24), (PayloadExit2, 26)] {
        row(operation, vec![int(number), from(), to()], Some(from()), Some(to()));
    }
    for (operation, number) in [(SendSenderTt, 23), (PayloadExitTt, 25), (PayloadExit2Tt, 27)] {
        row(
            operation,
            vec![int(number), from(), to(), token()],
            Some(from()),
            Some(to()),
        );
    }
    row(Send, vec![int(2), atom(""), to()], None, Some(to()));
    row(Send, vec![int(2), Term::Nil, to()], None, Some(to()));
    row(SendTt, vec![int(12), atom(""), to(), token()], None, Some(to()));
    for (operation, number) in [(Exit, 3), (Exit2, 8)] {
        row(
            operation,
            vec![int(number), from(), to(), atom("normal")],
            Some(from()),
            Some(to()),
        );
    }
    for (operation, number) in [(ExitTt, 13), (Exit2Tt, 18)] {
        row(
            operation,
            vec![int(number), from(), to(), token(), atom("normal")],
            Some(from()),
            Some(to()),
        );
    }
    row(NodeLink, vec![int(5)], None, None);
    row(
        RegSend,
        vec![int(6), from(), atom(""), name()],
        Some(from()),
        Some(name()),
    );
    row(
        RegSendTt,
        vec![int(16), from(), atom(""), name(), token()],
        Some(from()),
        Some(name()),
    );
    for (operation, number) in [(MonitorP, 19), (DemonitorP, 20)] {
        row(
            operation,
            vec![int(number), from(), to(), reference(A)],
            Some(from()),
            Some(to()),
        );
        row(
            operation,
            vec![int(number), from(), name(), reference(A)],
            Some(from()),
            Some(name()),
        );
    }
    let reason = atom("noproc");
    row(
        MonitorPExit,
        vec![int(21), from(), to(), reference(B), reason.clone()],
        Some(from()),
        Some(to()),
    );
    row(
        MonitorPExit,
        vec![int(21), name(), to(), reference(B), reason],
        Some(name()),
        Some(to()),
    );
    row(
        PayloadMonitorPExit,
        vec![int(28), name(), to(), reference(B)],
        Some(name()),
        Some(to()),
    );
    let request = |number| {
        vec![
            int(number),
            reference(A),
            from(),
            pid(A, 3),
            mfa(),
            Term::List(vec![atom("link")]),
        ]
    };
    row(SpawnRequest, request(29), Some(from()), None);
    row(
        SpawnRequestTt,
        [request(30), vec![token()]].concat(),
        Some(from()),
        None,
    );
    let reply = |number, result| vec![int(number), reference(B), to(), int(3), result];
    row(SpawnReply, reply(31, from()), Some(from()), Some(to()));
    row(SpawnReply, reply(31, atom("badopt")), None, Some(to()));
    row(
        SpawnReplyTt,
        [reply(32, from()), vec![token()]].concat(),
        Some(from()),
        Some(to()),
    );
    row(
        AliasSend,
        vec![int(33), from(), reference(B)],
        Some(from()),
        Some(reference(B)),
    );
    row(
        AliasSendTt,
        vec![int(34), from(), reference(B), token()],
        Some(from()),
        Some(reference(B)),
    );
    for (operation, number) in [(UnlinkId, 35), (UnlinkIdAck, 36)] {
        row(
            operation,
            vec![int(number), Term::Big(1 << 40), from(), to()],
            Some(from()),
            Some(to()),
        );
        row(
            operation,
            vec![int(number), int(1000), from(), to()],
            Some(from()),
            Some(to()),
        );
    }
    for (flags, target) in [(0, to()), (1, to()), (1 << 2, reference(B)), (1 << 3, name())] {
        let message = vec![int(37), int(flags), from(), target.clone()];
        row(AltactSigSend, message.clone(), Some(from()), Some(target.clone()));
        let message = [message, vec![token()]].concat();
        row(AltactSigSend, message, Some(from()), Some(target.clone()));
    }
    for (flags, target) in [(1 << 4 | 1, to()), (1 << 4 | 1 << 2, reference(B))] {
        row(
            AltactSigExit,
            vec![int(37), int(flags), from(), target.clone()],
            Some(from()),
            Some(target),
        );
    }
    rows
}

#[test]
fn each_operation_has_its_sender_and_target() {
    let rows = operations();
    for operation in Operation::ALL {
        let is_there = rows.iter().any(|(there, ..)| *there == operation);
        assert!(
            is_there || matches!(operation, Operation::Other | Operation::Tick),
            "{operation:?}"
        );
    }
    for form in [Form::Normal, Form::PassThrough, Form::Fragments { id: 5, count: 1 }] {
        let (mut writer, mut reader) = (Writer::default(), Reader::new());
        // The second time the atoms are in the cache.
        for (operation, control, sender, target) in rows.iter().chain(&rows) {
            let packet = writer.packet(form, control, &["ok".into()], b"payload");
            let expected = (
                *operation,
                sender.as_ref().map_or(Who::None, who_is),
                target.as_ref().map_or(Who::None, who_is),
            );
            assert_eq!(read(&mut reader, &packet), expected, "{form:?} {control:?}");
        }
    }
}

#[test]
fn a_name_is_spelled_in_either_encoding() {
    let (mut writer, mut reader) = (Writer::default(), Reader::new());
    for target in [atom("grün"), Term::Latin1("grün".into()), atom("名前")] {
        for form in [Form::Normal, Form::PassThrough] {
            let control = control([Term::Int(6), pid(A, 1), atom(""), target.clone()]);
            let packet = writer.packet(form, &control, &[], b"");
            assert_eq!(read(&mut reader, &packet).2, who_is(&target));
        }
    }
}

#[test]
fn a_process_of_the_older_form_is_known() {
    let sender = Term::OldPid {
        node: A.into(),
        id: 4,
        serial: 5,
        creation: 3,
    };
    let packet = Writer::default().normal(&control([Term::Int(1), sender.clone(), pid(B, 2)]));
    assert_eq!(read(&mut Reader::new(), &packet).1, who_is(&sender));
}

#[test]
fn an_empty_packet_is_a_tick() {
    let mut reader = Reader::new();
    let envelope = reader.packet([&b""[..]], 0).expect("a tick");
    assert_eq!(envelope.key, Key::TICK);
}

#[test]
fn what_is_unknown_changes_nothing() {
    let (mut writer, mut reader) = (Writer::default(), Reader::new());
    let (from, to) = (pid(A, 1), pid(B, 2));
    let many = Term::List(vec![Term::Int(1); 65]);
    let (other, none, unknown) = (Operation::Other, Who::None, Who::Name(None));
    let rows = [
        // Numbers without an operation.
        (vec![Term::Int(9), from.clone(), to.clone()], (other, &none, &none)),
        (vec![Term::Int(40), from.clone(), to.clone()], (other, &none, &none)),
        (vec![Term::Int(1000), from.clone()], (other, &none, &none)),
        // Too few elements.
        (
            vec![Term::Int(6), from.clone(), atom("")],
            (Operation::RegSend, &unknown, &unknown),
        ),
        // A sender, and a target, that is none.
        (
            vec![Term::Int(1), Term::Binary(vec![1, 2]), to.clone()],
            (Operation::Link, &unknown, &unknown),
        ),
        (
            vec![Term::Int(1), from.clone(), Term::Binary(vec![1, 2])],
            (Operation::Link, &who_is(&from), &unknown),
        ),
        // A term of a tag that does not exist, and one of more elements than are skipped.
        (
            vec![Term::Int(2), Term::Raw(vec![200]), to.clone()],
            (Operation::Send, &none, &unknown),
        ),
        (vec![Term::Int(2), many, to.clone()], (Operation::Send, &none, &unknown)),
    ];
    for (terms, (operation, sender, target)) in rows {
        // The header brings atoms all the same.
        let packet = writer.packet(Form::Normal, &control(terms.clone()), &["proc".into()], b"");
        let expected = (operation, sender.clone(), target.clone());
        assert_eq!(read(&mut reader, &packet), expected, "{terms:?}");
    }
    let known = control([Term::Int(6), from.clone(), atom(""), atom("proc")]);
    let packet = writer.normal(&known);
    assert_eq!(
        read(&mut reader, &packet),
        (Operation::RegSend, who_is(&from), who_is(&atom("proc")))
    );
    assert_eq!(
        reader.packet([&[112, 1, 2][..]], 3).map(|read| read.key),
        Ok(Key::OTHER)
    );
}

#[test]
fn what_is_broken_switches_the_reader_off_once() {
    let good = Writer::default().normal(&control([Term::Int(1), pid(A, 1), pid(B, 2)]));
    let mut cases = vec![
        (vec![1, 2, 3], Off::UnknownHeader),
        (vec![131, 71, 0], Off::UnknownHeader),
        (vec![131], Off::Truncated),
        // A reference to an entry that is empty.
        (vec![131, 68, 1, 0, 9, 104, 1, 97, 5], Off::EmptyEntry),
        // A reference to the header's second atom, of none.
        (vec![131, 68, 0, 104, 3, 97, 1, 88, 82, 1], Off::MissingAtom),
        // A list, and a tuple that begins with one.
        (vec![131, 68, 0, 106], Off::NoOperation),
        (vec![131, 68, 0, 104, 1, 106], Off::NoOperation),
    ];
    cases.extend((1..good.len()).map(|bytes| (good[..bytes].to_vec(), Off::Truncated)));
    for (packet, off) in cases {
        let mut direction = Direction::new();
        assert_eq!(
            direction.packet([&packet[..]], packet.len(), clock),
            Some(off),
            "{packet:?}"
        );
        assert_eq!(direction.reader().off(), Some(off));
        assert_eq!(direction.packet([&good[..]], good.len(), clock), None);
        let other = direction.counts().of(Operation::Other);
        assert_eq!((other.messages, other.bytes), (2, (packet.len() + good.len()) as u64));
    }
}

#[test]
fn the_pieces_of_a_packet_may_be_cut_anywhere() {
    let mut writer = Writer::default();
    let control = control([Term::Int(6), pid(A, 1), atom(""), atom("server")]);
    let packets = [writer.normal(&control), writer.normal(&control)];
    for at in 0..=packets[0].len() {
        let mut reader = Reader::new();
        for packet in &packets {
            let (head, tail) = packet.split_at(at.min(packet.len()));
            let envelope = reader.packet([head, b"", tail], packet.len()).expect("a packet");
            let expected = (Operation::RegSend, who_is(&pid(A, 1)), who_is(&atom("server")));
            assert_eq!(described(&reader, &envelope), expected);
        }
        let mut reader = Reader::new();
        for packet in &packets {
            let envelope = reader.packet(packet.chunks(1), packet.len()).expect("a packet");
            assert_eq!(described(&reader, &envelope).2, who_is(&atom("server")));
        }
    }
}

#[test]
fn the_payload_need_not_be_there() {
    let control = control([Term::Int(22), pid(A, 1), pid(B, 2)]);
    let packet = Writer::default().normal(&control);
    let envelope = Reader::new().packet([&packet[..]], 1_000_000).expect("a packet");
    assert_eq!(envelope.bytes, 1_000_000);
    assert!(envelope.begins_message);
}
