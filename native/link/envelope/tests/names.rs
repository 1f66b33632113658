//! Names: the cache turns over, atoms are long, and more than the reader keeps.

mod support;

use inet_rdma_envelope::{NAME_BYTES_MAX, Operation, Reader};
use support::*;

fn reg_send(name: &str) -> Term {
    Term::Tuple(vec![Term::Int(6), pid("a@host", 1), atom(""), atom(name)])
}

#[test]
fn an_entry_may_be_filled_again() {
    let (mut writer, mut reader) = (Writer::default(), Reader::new());
    writer.place = |name| if name.starts_with('n') { 2047 } else { spread(name) };
    for name in ["n1", "n2", "n2", "n1", "n3", "n1"] {
        let packet = writer.normal(&reg_send(name));
        assert_eq!(read(&mut reader, &packet).2, who_is(&atom(name)));
    }
}

#[test]
fn names_in_use_outlive_a_cache_that_turns_over() {
    let (mut writer, mut reader) = (Writer::default(), Reader::new());
    for turn in 0..2000 {
        // Atoms of payloads: more than the cache has entries.
        let more = Vec::from_iter((0..20).map(|index| format!("payload_{}", turn * 20 + index)));
        let packet = writer.packet(Form::Normal, &reg_send("in_use"), &more, b"");
        let expected = (Operation::RegSend, who_is(&pid("a@host", 1)), who_is(&atom("in_use")));
        assert_eq!(read(&mut reader, &packet), expected, "turn {turn}");
    }
}

#[test]
fn a_forgotten_name_is_unknown_and_never_another_one() {
    let (mut writer, mut reader) = (Writer::default(), Reader::new());
    let mut unknown = 0;
    for turn in 0..20_000_u32 {
        let name = format!("target_{}", turn.wrapping_mul(2_654_435_761) % 1500);
        let packet = writer.normal(&reg_send(&name));
        let (operation, sender, target) = read(&mut reader, &packet);
        assert_eq!((operation, sender), (Operation::RegSend, who_is(&pid("a@host", 1))));
        match target {
            Who::Name(None) => unknown += 1,
            target => assert_eq!(target, who_is(&atom(&name))),
        }
    }
    assert!((1..20_000).contains(&unknown), "{unknown}");
}

#[test]
fn names_are_the_same_party_again() {
    let (mut writer, mut reader) = (Writer::default(), Reader::new());
    let packets = [writer.normal(&reg_send("server")), writer.normal(&reg_send("server"))];
    let [one, other] = packets.map(|packet| reader.packet([&packet[..]], packet.len()).expect("a packet").key);
    assert_eq!(one, other);
}

#[test]
fn long_atoms_are_read() {
    for always_long in [false, true] {
        let (mut writer, mut reader) = (Writer::default(), Reader::new());
        writer.always_long = always_long;
        // 255 characters of 4 bytes: the largest atom. Its size is above a name's.
        let longest = "𝛀".repeat(255);
        let kept = "l".repeat(NAME_BYTES_MAX);
        for name in [&longest, &kept, &longest, "short"] {
            let more = [longest.clone(), "x".into()];
            let packet = writer.packet(Form::Normal, &reg_send(name), &more, b"");
            let expected = (name.len() <= NAME_BYTES_MAX).then(|| String::from(name));
            assert_eq!(read(&mut reader, &packet).2, Who::Name(expected));
            let packet = writer.packet(Form::PassThrough, &reg_send(name), &[], b"");
            let expected = (name.len() <= NAME_BYTES_MAX).then(|| String::from(name));
            assert_eq!(read(&mut reader, &packet).2, Who::Name(expected));
        }
    }
}

#[test]
fn a_header_of_255_atoms_is_read() {
    let (mut writer, mut reader) = (Writer::default(), Reader::new());
    let more = Vec::from_iter((0..300).map(|index| format!("a{index}")));
    for count in (0..300).rev() {
        let packet = writer.packet(Form::Normal, &reg_send("server"), &more[count..], b"");
        assert_eq!(read(&mut reader, &packet).2, who_is(&atom("server")), "{count}");
    }
}
