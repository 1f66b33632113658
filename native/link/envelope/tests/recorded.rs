//! Packets of real nodes, and what their script says of them. `record/record` makes the files.

mod support;

use std::collections::HashMap;

use inet_rdma_envelope::{Direction, NAME_BYTES_MAX, Off, Operation};
use support::*;

const RECORDINGS: &[(&str, &str)] = &[
    ("OTP 25", include_str!("data/otp25.hex")),
    // Without SEND_SENDER, EXIT_PAYLOAD and UNLINK_ID.
    ("OTP 25, older operations", include_str!("data/otp25_older.hex")),
    ("OTP 25, no header", include_str!("data/otp25_headless.hex")),
    ("OTP 27", include_str!("data/otp27.hex")),
    // Without SEND_SENDER and EXIT_PAYLOAD.
    ("OTP 27, older operations", include_str!("data/otp27_older.hex")),
    ("OTP 27, no header", include_str!("data/otp27_headless.hex")),
    ("OTP 28", include_str!("data/otp28.hex")),
    // Without SEND_SENDER, EXIT_PAYLOAD and ALTACT_SIG.
    ("OTP 28, older operations", include_str!("data/otp28_older.hex")),
    ("OTP 28, no header", include_str!("data/otp28_headless.hex")),
    ("OTP 29", include_str!("data/otp29.hex")),
    // As for OTP 28.
    ("OTP 29, older operations", include_str!("data/otp29_older.hex")),
    ("OTP 29, no header", include_str!("data/otp29_headless.hex")),
];

/// Operation, sender, target, as a line of the file has them.
type Signal = (String, String, String);

/// A direction of a recording: the packets with their sizes, and the signals.
#[derive(Default)]
struct Recorded {
    packets: Vec<(usize, Vec<u8>)>,
    signals: HashMap<Signal, usize>,
}

fn recorded(file: &str, arrow: &str) -> Recorded {
    let mut recorded = Recorded::default();
    for line in file.lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            [of, bytes, hex] if of == arrow => {
                let packet = (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[at * 2..][..2], 16).expect("hex"));
                recorded
                    .packets
                    .push((bytes.parse().expect("a size"), packet.collect()));
            }
            [of, operation, sender, target] if of.strip_suffix('=') == Some(arrow) => {
                let signal = (operation.into(), kept(sender), kept(target));
                *recorded.signals.entry(signal).or_default() += 1;
            }
            _ => {}
        }
    }
    assert!(!recorded.packets.is_empty() && !recorded.signals.is_empty());
    recorded
}

/// The reader keeps no name above its bound.
fn kept(party: &str) -> String {
    match party.strip_prefix("n:") {
        Some(name) if name.len() > NAME_BYTES_MAX => "n:?".into(),
        _ => party.into(),
    }
}

fn line_of(who: Who) -> String {
    let text = |name: Option<String>| name.unwrap_or("?".into());
    match who {
        Who::None => "-".into(),
        Who::Name(name) => format!("n:{}", text(name)),
        Who::Process {
            node,
            id,
            serial,
            creation,
        } => format!("p:{}:{id}:{serial}:{creation}", text(node)),
        Who::Alias { node, creation } => format!("a:{}:{creation}", text(node)),
    }
}

#[test]
fn each_signal_of_a_node_is_read() {
    for (name, file) in RECORDINGS {
        for arrow in [">", "<"] {
            let recorded = recorded(file, arrow);
            let mut direction = Direction::new();
            let mut reader = inet_rdma_envelope::Reader::new();
            let (mut signals, mut bytes) = (HashMap::new(), 0);
            for (size, packet) in &recorded.packets {
                assert_eq!(
                    direction.packet([&packet[..]], *size, clock),
                    None::<Off>,
                    "{name} {arrow}"
                );
                let envelope = reader.packet([&packet[..]], *size).expect("no contradiction");
                let (operation, sender, target) = described(&reader, &envelope);
                if envelope.begins_message && operation != Operation::Tick {
                    let signal = (String::from(operation.name()), line_of(sender), line_of(target));
                    *signals.entry(signal).or_default() += 1;
                }
                bytes += *size as u64;
            }
            for (signal, count) in &signals {
                assert_eq!(
                    recorded.signals.get(signal),
                    Some(count),
                    "{name} {arrow} {signal:?} was not sent"
                );
            }
            for (signal, count) in &recorded.signals {
                assert_eq!(
                    signals.get(signal),
                    Some(count),
                    "{name} {arrow} {signal:?} was not read"
                );
            }
            let counted: u64 = direction.counts().iter().map(|(_, count)| count.bytes).sum();
            assert_eq!(counted, bytes);
            assert_eq!(direction.counts().of(Operation::Other).messages, 0);
        }
    }
}

#[test]
fn the_recordings_have_fragments_and_each_operation_of_their_release() {
    let mut operations = HashMap::new();
    let (mut fragments, mut altact_flags) = (0, 0);
    for (_, file) in RECORDINGS {
        for arrow in [">", "<"] {
            let recorded = recorded(file, arrow);
            fragments += recorded
                .packets
                .iter()
                .filter(|(_, packet)| packet.starts_with(&[131, 70]))
                .count();
            // The number of ALTACT_SIG_SEND, and its flags.
            for (_, packet) in &recorded.packets {
                let flags = packet.windows(4).find(|bytes| bytes.starts_with(&[97, 37, 97]));
                altact_flags |= flags.map_or(0, |bytes| bytes[3]);
            }
            recorded
                .signals
                .into_keys()
                .for_each(|signal| *operations.entry(signal.0).or_insert(0) += 1);
        }
    }
    assert!(fragments > 20, "{fragments}");
    assert_eq!(altact_flags, 0b1_1111);
    for operation in Operation::ALL {
        use Operation::*;
        // These VMs send neither NODE_LINK nor a token with EXIT2.
        let is_missing = matches!(operation, NodeLink | Exit2Tt | PayloadExit2Tt);
        if !is_missing && !matches!(operation, Other | Tick) {
            assert!(operations.contains_key(operation.name()), "{operation:?}");
        }
    }
}
