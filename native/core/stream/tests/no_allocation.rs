//! The calls that run per transfer use no heap: a stream's memory is bounded by its limits from the start.

use allocation_counter::measure;
use inet_rdma_stream::{Arrival, Limits, Mode, Offer, Receive, ReceiveId, RemoteAddress, Stream, Transfer};

const ROUNDS: u32 = 10_000;

fn pair() -> (Stream, Stream) {
    let limits = Limits {
        ring_bytes: 1000,
        receive_slots: 16,
        adverts: 4,
    };
    let stream =
        || Stream::new(Mode::Dynamic, limits, limits, RemoteAddress { key: 8, address: 0 }).expect("good limits");
    (stream(), stream())
}

/// Hands over all control messages, both ways.
fn exchange_controls(a: &mut Stream, b: &mut Stream) {
    while let Some(control) = a.poll_control() {
        b.handle_control(&control.emit()).expect("honest");
    }
    while let Some(control) = b.poll_control() {
        a.handle_control(&control.emit()).expect("honest");
    }
}

#[test]
fn indirect_transfers_use_no_heap() {
    let (mut a, mut b) = pair();
    let used = measure(|| {
        for _ in 0..ROUNDS {
            let offer = Offer {
                indirect: 300,
                direct: 300,
            };
            let Some(Transfer { notice, .. }) = a.poll_transfer(offer) else {
                panic!("the ring has room")
            };
            b.handle_notice(notice).expect("honest");
            b.handle_copied(b.ring_readable()[0].bytes);
            exchange_controls(&mut a, &mut b);
        }
    });
    assert_eq!(used.count_total, 0);
    assert_eq!(a.counters().indirect_transfers_sent, u64::from(ROUNDS));
}

#[test]
fn direct_transfers_use_no_heap() {
    let (mut a, mut b) = pair();
    let used = measure(|| {
        for round in 0..ROUNDS {
            let id = ReceiveId(u64::from(round));
            b.post_receive(Receive {
                id,
                target: RemoteAddress { key: 1, address: 0 },
                bytes: 500,
                fill: false,
            });
            exchange_controls(&mut a, &mut b);
            let offer = Offer {
                indirect: 0,
                direct: 500,
            };
            let Some(Transfer { notice, .. }) = a.poll_transfer(offer) else {
                panic!("one is advertised")
            };
            let arrival = b.handle_notice(notice).expect("honest");
            assert_eq!(
                arrival,
                Arrival::Direct {
                    id,
                    offset: 0,
                    bytes: 500,
                    done: true
                }
            );
        }
    });
    assert_eq!(used.count_total, 0);
    assert_eq!(a.counters().direct_transfers_sent, u64::from(ROUNDS));
}
