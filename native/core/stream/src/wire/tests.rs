//! Layouts byte by byte, and that parse and emit undo each other.

use proptest::prelude::*;

use super::*;
use crate::seq::{Phase, Seq};

fn hello() -> Hello {
    Hello {
        ring: RemoteAddress {
            key: 0x2827_2625_2423_2221,
            address: 0x0807_0605_0403_0201,
        },
        ring_bytes: 262_144,
        receive_slots: 256,
        adverts: 32,
        connection_id: 77,
        token: 0x1817_1615_1413_1211,
    }
}

fn any_address() -> impl Strategy<Value = RemoteAddress> {
    (any::<u64>(), any::<u64>()).prop_map(|(key, address)| RemoteAddress { key, address })
}

fn any_hello() -> impl Strategy<Value = Hello> {
    let names = (any::<u32>(), any::<u64>());
    (any_address(), any::<u32>(), any::<u16>(), any::<u16>(), names).prop_map(
        |(ring, ring_bytes, receive_slots, adverts, (connection_id, token))| Hello {
            ring,
            ring_bytes,
            receive_slots,
            adverts,
            connection_id,
            token,
        },
    )
}

fn any_advert() -> impl Strategy<Value = Advert> {
    (
        any_address(),
        1..=TRANSFER_BYTES_MAX,
        any::<bool>(),
        any::<u64>(),
        any::<u64>(),
    )
        .prop_map(|(target, bytes, fill, seq, phase)| Advert {
            target,
            bytes,
            fill,
            seq: Seq(seq),
            phase: Phase(phase),
        })
}

fn any_control() -> impl Strategy<Value = Control> {
    let body = prop_oneof![
        Just(ControlBody::Credit),
        Just(ControlBody::Tick),
        any_advert().prop_map(ControlBody::Advert),
        any::<u64>().prop_map(|freed| ControlBody::Ack { freed: Seq(freed) }),
        any::<u64>().prop_map(|end| ControlBody::Finish { end: Seq(end) }),
        Just(ControlBody::Recall),
        (any_address(), 1..=TRANSFER_BYTES_MAX)
            .prop_map(|(target, bytes)| ControlBody::Ring(NewRing { target, bytes })),
    ];
    (any::<u16>(), body).prop_map(|(credits, body)| Control { credits, body })
}

proptest! {
    #[test]
    fn a_hello_survives_the_wire(hello in any_hello()) {
        prop_assert_eq!(Hello::parse(&hello.emit()), Ok(hello));
    }

    #[test]
    fn a_control_message_survives_the_wire(control in any_control()) {
        prop_assert_eq!(Control::parse(&control.emit()), Ok(control));
    }

    #[test]
    fn a_notice_survives_the_wire(direct: bool, bytes in 0..=TRANSFER_BYTES_MAX) {
        prop_assume!(!direct || bytes > 0);
        let notice = Notice { direct, bytes };
        prop_assert_eq!(Notice::parse(notice.emit()), Ok(notice));
    }

    #[test]
    fn bytes_that_parse_are_the_only_form_of_their_message(mut bytes: [u8; CONTROL_BYTES], kind in 0u8..10) {
        bytes[0] = kind;
        if let Ok(control) = Control::parse(&bytes) {
            prop_assert_eq!(control.emit(), bytes);
        }
    }

    #[test]
    fn a_changed_byte_is_another_message_or_none(control in any_control(), at in 0..CONTROL_BYTES, by in 1u8..) {
        let mut bytes = control.emit();
        bytes[at] ^= by;
        prop_assert_ne!(Control::parse(&bytes), Ok(control));
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..80), word: u32) {
        let _ = (Hello::parse(&bytes), Control::parse(&bytes), Notice::parse(word));
    }
}

#[test]
fn the_hello_lies_as_documented() {
    let mut expected = [0; HELLO_BYTES];
    expected[0..8].copy_from_slice(b"inetrdma");
    expected[8] = 7;
    expected[11] = 1;
    expected[14] = 4;
    expected[16..24].copy_from_slice(&[0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28]);
    expected[24..32].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
    expected[32] = 77;
    expected[36] = 32;
    expected[48..56].copy_from_slice(&[0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]);
    assert_eq!(hello().emit(), expected);
}

#[test]
fn an_advertisement_lies_as_documented() {
    let advert = Advert {
        target: RemoteAddress {
            key: 5 << 56,
            address: 6,
        },
        bytes: 7,
        fill: true,
        seq: Seq(8),
        phase: Phase(10),
    };
    let mut expected = [0; CONTROL_BYTES];
    for (at, value) in [(0, 2), (1, 1), (2, 9), (4, 7), (8, 6), (16, 8), (24, 10), (39, 5)] {
        expected[at] = value;
    }
    let body = ControlBody::Advert(advert);
    assert_eq!(Control { credits: 9, body }.emit(), expected);
}

#[test]
fn the_other_messages_lie_as_documented() {
    let bodies = [
        (ControlBody::Credit, 1, 0),
        (ControlBody::Ack { freed: Seq(3) }, 3, 3),
        (ControlBody::Tick, 4, 0),
        (ControlBody::Finish { end: Seq(4) }, 5, 4),
        (ControlBody::Recall, 6, 0),
    ];
    for (body, kind, seq) in bodies {
        let mut expected = [0; CONTROL_BYTES];
        (expected[0], expected[2], expected[16]) = (kind, 1, seq);
        assert_eq!(Control { credits: 1, body }.emit(), expected);
    }
}

#[test]
fn a_new_ring_lies_as_documented() {
    let target = RemoteAddress {
        key: 5 << 56,
        address: 6,
    };
    let mut expected = [0; CONTROL_BYTES];
    for (at, value) in [(0, 7), (2, 9), (4, 7), (8, 6), (23, 5)] {
        expected[at] = value;
    }
    let body = ControlBody::Ring(NewRing { target, bytes: 7 });
    assert_eq!(Control { credits: 9, body }.emit(), expected);
    expected[24] = 1;
    assert_eq!(Control::parse(&expected), Err(WireError::Field("control body")));
}

#[test]
fn a_mark_is_a_notice_of_no_bytes() {
    assert_eq!(Notice::MARK.emit(), 0);
    assert_eq!(Notice::parse(0), Ok(Notice::MARK));
}

#[test]
fn a_hello_of_another_version_is_named_even_if_it_is_longer() {
    let mut message = hello().emit().to_vec();
    let theirs = PROTOCOL_VERSION + 1;
    message[8..10].copy_from_slice(&theirs.to_le_bytes());
    assert_eq!(Hello::parse(&message), Err(WireError::Version { theirs }));
    message.extend_from_slice(&[0; 8]);
    assert_eq!(Hello::parse(&message), Err(WireError::Version { theirs }));
}

#[test]
fn bytes_that_are_no_hello_are_refused_with_a_reason() {
    let good = hello().emit();
    assert_eq!(Hello::parse(&[b'G'; HELLO_BYTES]), Err(WireError::Magic));
    for got in [55, 0] {
        let want = HELLO_BYTES;
        assert_eq!(Hello::parse(&good[..got]), Err(WireError::Length { got, want }));
    }
    let mut padded = good;
    padded[39] = 1;
    assert_eq!(Hello::parse(&padded), Err(WireError::Field("hello pad")));
}

#[test]
fn bytes_that_are_no_control_message_are_refused_with_a_reason() {
    let tick = Control {
        credits: 0,
        body: ControlBody::Tick,
    }
    .emit();
    let (got, want) = (39, CONTROL_BYTES);
    assert_eq!(Control::parse(&tick[..got]), Err(WireError::Length { got, want }));
    let changed = |at: usize, value: u8| {
        let mut message = tick;
        message[at] = value;
        Control::parse(&message)
    };
    assert_eq!(changed(0, 0), Err(WireError::Kind(0)));
    assert_eq!(changed(0, 8), Err(WireError::Kind(8)));
    assert_eq!(changed(0, 7), Err(WireError::Field("ring bytes")));
    assert_eq!(changed(1, 1), Err(WireError::Field("control flags")));
    assert_eq!(changed(39, 1), Err(WireError::Field("control body")));
    assert_eq!(changed(0, 2), Err(WireError::Field("advert bytes")));
    assert_eq!(Notice::parse(1 << 31), Err(WireError::Field("notice bytes")));
}
