//! A peer that says anything, well-formed or not: nothing makes a stream panic.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::*;

const RING: u32 = 8;

/// An arbitrary input of a peer, or a call of the stream's own caller meanwhile.
#[derive(Debug, Clone)]
enum Throw {
    Bytes(Vec<u8>),
    Control(Control),
    Notice(Notice),
    Send(Offer),
    Post { bytes: u32, fill: bool },
    Copy,
    Withdraw,
    Finish,
    Mark,
    Recall,
    ReplaceRing { bytes: u32 },
}

/// Numbers near the right ones, and numbers far off.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0u64..20, 1 => any::<u64>(), 1 => (0u64..20).prop_map(|below| u64::MAX - below)]
}

fn throw() -> impl Strategy<Value = Throw> {
    let advert =
        (number(), number(), 0u32..12, any::<bool>(), number()).prop_map(|(phase, seq, bytes, fill, address)| {
            let target = RemoteAddress { key: 3, address };
            ControlBody::Advert(Advert {
                target,
                bytes,
                fill,
                seq: Seq(seq),
                phase: Phase(phase),
            })
        });
    let body = prop_oneof![
        3 => advert,
        2 => number().prop_map(|freed| ControlBody::Ack { freed: Seq(freed) }),
        1 => number().prop_map(|end| ControlBody::Finish { end: Seq(end) }),
        1 => Just(ControlBody::Credit),
        1 => Just(ControlBody::Recall),
        1 => (number(), 0u32..12).prop_map(|(address, bytes)| {
            ControlBody::Ring(NewRing { target: RemoteAddress { key: 5, address }, bytes })
        }),
    ];
    let credits = prop_oneof![4 => 0u16..3, 1 => any::<u16>()];
    let bytes = prop_oneof![4 => 0u32..12, 1 => any::<u32>()];
    prop_oneof![
        1 => vec(any::<u8>(), 0..60).prop_map(Throw::Bytes),
        6 => (credits, body).prop_map(|(credits, body)| Throw::Control(Control { credits, body })),
        4 => (any::<bool>(), bytes).prop_map(|(direct, bytes)| Throw::Notice(Notice { direct, bytes })),
        4 => (0u32..9, 0u32..9).prop_map(|(indirect, direct)| Throw::Send(Offer { indirect, direct })),
        2 => (1u32..9, any::<bool>()).prop_map(|(bytes, fill)| Throw::Post { bytes, fill }),
        2 => Just(Throw::Copy),
        1 => Just(Throw::Withdraw),
        1 => Just(Throw::Finish),
        2 => Just(Throw::Mark),
        1 => Just(Throw::Recall),
        1 => (1..=RING).prop_map(|bytes| Throw::ReplaceRing { bytes }),
    ]
}

/// Continues after a violation: a caller that does so must not make the stream panic either.
fn catch(stream: &mut Stream, heads: &mut Vec<(u64, u32)>, throw: Throw) {
    match throw {
        Throw::Bytes(bytes) => drop(stream.handle_control(&bytes)),
        Throw::Control(control) => drop(stream.handle_control(&control.emit())),
        Throw::Notice(notice) => {
            if let Ok(Arrival::Direct { id, bytes, done, .. }) = stream.handle_notice(notice) {
                assert_eq!(heads[0].0, id.0);
                heads[0].1 -= bytes;
                if done {
                    heads.remove(0);
                }
            }
        }
        Throw::Send(offer) => drop(stream.poll_transfer(offer)),
        Throw::Post { bytes, fill } => {
            let id = heads.last().map_or(0, |last| last.0 + 1);
            let target = RemoteAddress { key: 4, address: 0 };
            stream.post_receive(Receive {
                id: ReceiveId(id),
                target,
                bytes,
                fill,
            });
            heads.push((id, bytes));
        }
        Throw::Copy => {
            let run = stream.ring_readable()[0].bytes;
            stream.handle_copied(run);
        }
        Throw::Withdraw => {
            if let Some(id) = stream.withdraw() {
                heads.retain(|head| head.0 != id.0);
            }
        }
        Throw::Finish => stream.finish(),
        Throw::Mark => drop(stream.poll_mark()),
        Throw::Recall => drop(stream.recall()),
        Throw::ReplaceRing { bytes } => {
            let target = RemoteAddress { key: 6, address: 0 };
            let _asked = stream.replace_ring(NewRing { target, bytes });
        }
    }
    assert_eq!(stream.outstanding_receives(), heads.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn no_input_of_a_peer_makes_a_stream_panic(throws in vec(throw(), 0..60)) {
        let limits = Limits { ring_bytes: RING, receive_slots: 16, adverts: 2 };
        let ring = RemoteAddress { key: 9, address: 512 };
        let mut stream = Stream::new(Mode::Dynamic, limits, limits, ring).expect("good limits");
        let mut heads = Vec::new();
        for throw in throws {
            catch(&mut stream, &mut heads, throw);
            while stream.poll_control().is_some() {}
            assert!(stream.ring_bytes_readable() <= 2 * RING);
        }
    }
}
