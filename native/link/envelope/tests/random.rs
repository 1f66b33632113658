//! Random messages of a writer, cut into random pieces, against what the writer has sent.

mod support;

use inet_rdma_envelope::{NAME_BYTES_MAX, Operation, Reader};
use proptest::collection::vec;
use proptest::prelude::*;
use support::*;

#[derive(Debug, Clone)]
struct Message {
    number: u32,
    sender: Term,
    target: Term,
    more: Vec<String>,
    /// None: no fragments.
    fragments: Option<u64>,
    is_headless: bool,
    piece_bytes: usize,
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => (0..60_u32).prop_map(|number| format!("name_{number}")),
        2 => "[a-zà-ÿ]{1,8}",
        1 => "[α-ω名前𝛀]{1,60}",
        1 => "[a-z𝛀]{200,255}",
    ]
}

fn node() -> impl Strategy<Value = String> {
    (0..3_u32).prop_map(|number| format!("node{number}@host"))
}

fn process() -> impl Strategy<Value = Term> {
    prop_oneof![
        4 => (node(), any::<u32>(), any::<u32>(), any::<u32>()).prop_map(|(node, id, serial, creation)| Term::Pid {
            node, id, serial, creation
        }),
        1 => (node(), any::<u32>(), any::<u32>(), any::<u8>()).prop_map(|(node, id, serial, creation)| Term::OldPid {
            node, id, serial, creation
        }),
    ]
}

fn target() -> impl Strategy<Value = Term> {
    prop_oneof![
        3 => process(),
        3 => name().prop_map(Term::Atom),
        1 => "[a-zà-ÿ]{0,255}".prop_map(Term::Latin1),
        1 => (node(), any::<u32>(), vec(any::<u32>(), 1..6)).prop_map(|(node, creation, words)| Term::Reference {
            node, creation, words
        }),
    ]
}

prop_compose! {
    fn message()(
        number in prop_oneof![Just(6_u32), Just(22), Just(1), Just(35), Just(37)],
        sender in process(),
        target in target(),
        more in vec(name(), 0..12),
        fragments in proptest::option::weighted(0.2, 2..6_u64),
        is_headless in proptest::bool::weighted(0.1),
        piece_bytes in 1..200_usize,
    ) -> Message {
        Message { number, sender, target, more, fragments, is_headless, piece_bytes }
    }
}

fn control(message: &Message) -> (Operation, Term) {
    let (sender, target) = (message.sender.clone(), message.target.clone());
    let number = Term::Int(message.number);
    match message.number {
        1 => (Operation::Link, Term::Tuple(vec![number, sender, target])),
        6 => (Operation::RegSend, Term::Tuple(vec![number, sender, atom(""), target])),
        22 => (Operation::SendSender, Term::Tuple(vec![number, sender, target])),
        35 => (
            Operation::UnlinkId,
            Term::Tuple(vec![number, Term::Big(u64::MAX), sender, target]),
        ),
        _ => (
            Operation::AltactSigSend,
            Term::Tuple(vec![number, Term::Int(12), sender, target]),
        ),
    }
}

/// A name above the bound is not kept, and one that the reader has forgotten is unknown.
fn agrees(read: &Who, sent: &Who) -> bool {
    match (read, sent) {
        (Who::Name(None), Who::Name(Some(_))) => true,
        (Who::Name(Some(name)), _) if name.len() > NAME_BYTES_MAX => false,
        _ => read == sent,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn what_is_sent_is_read(messages in vec(message(), 1..80), few_places: bool, always_long: bool) {
        let (mut writer, mut reader) = (writer(few_places), Reader::new());
        writer.always_long = always_long;
        // The fragments to come: sequence, number, sender.
        let mut under_way: Vec<(u64, u64, Who)> = Vec::new();
        for (index, message) in messages.iter().enumerate() {
            let (operation, control) = control(message);
            let form = match message {
                Message { is_headless: true, .. } => Form::PassThrough,
                Message { fragments: Some(count), .. } => Form::Fragments { id: index as u64, count: *count },
                _ => Form::Normal,
            };
            let packet = writer.packet(form, &control, &message.more, b"payload");
            let envelope = reader.packet(packet.chunks(message.piece_bytes), packet.len()).expect("no contradiction");
            let (read, sender, target) = described(&reader, &envelope);
            prop_assert_eq!(read, operation);
            prop_assert_eq!(&sender, &who_is(&message.sender));
            prop_assert!(agrees(&target, &who_is(&message.target)), "{:?} {:?}", target, message.target);
            if let Form::Fragments { id, count } = form {
                under_way.push((id, count - 1, sender));
            }
            // The fragment of another message in between, each time.
            if let Some(at) = (!under_way.is_empty()).then(|| message.piece_bytes % under_way.len()) {
                let (id, number, sender) = &mut under_way[at];
                let packet = fragment(*id, *number, b"more");
                let envelope = reader.packet([&packet[..]], packet.len()).expect("no contradiction");
                prop_assert_eq!(&described(&reader, &envelope).1, &*sender);
                prop_assert!(!envelope.begins_message);
                *number -= 1;
                if *number == 0 {
                    under_way.remove(at);
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_taken(packets in vec(vec(any::<u8>(), 0..60), 0..20)) {
        let mut reader = Reader::new();
        let mut offs = 0;
        for packet in &packets {
            offs += usize::from(reader.packet([&packet[..]], packet.len()).is_err());
        }
        prop_assert!(offs <= 1);
    }
}

/// Few places: the cache turns over.
fn writer(few_places: bool) -> Writer {
    let mut writer = Writer::default();
    if few_places {
        writer.place = |name| spread(name) % 16;
    }
    writer
}
