//! A small transfer from one stream to the other with all its messages, without moving a byte.

use inet_rdma_stream::{Arrival, Limits, Mode, Offer, Receive, ReceiveId, RemoteAddress, Stream, Transfer};

const BYTES: u32 = 68;

/// The address of each side's ring.
const RING: RemoteAddress = RemoteAddress { key: 1, address: 0 };

/// Two streams with the limits that a distribution link has.
pub fn pair() -> [Stream; 2] {
    let limits = Limits {
        ring_bytes: 1 << 20,
        receive_slots: 256,
        adverts: 256,
    };
    [(); 2].map(|()| Stream::new(Mode::Dynamic, limits, limits, RING).expect("good limits"))
}

/// Through the ring: sent, arrived, copied out, acknowledged when that is due.
pub fn indirect([sender, receiver]: &mut [Stream; 2]) {
    let offer = Offer {
        indirect: BYTES,
        direct: 0,
    };
    let Some(Transfer { notice, .. }) = sender.poll_transfer(offer) else {
        panic!("everything was acknowledged in time")
    };
    let arrival = receiver.handle_notice(notice).expect("honest");
    assert!(matches!(arrival, Arrival::Ring { .. }));
    // At the ring's end the transfer is shorter; the next one starts at the ring's start.
    receiver.handle_copied(notice.bytes);
    controls(receiver, sender);
    controls(sender, receiver);
}

/// Into an advertised buffer: advertised, sent, arrived.
pub fn direct([sender, receiver]: &mut [Stream; 2]) {
    receiver.post_receive(Receive {
        id: ReceiveId(1),
        target: RemoteAddress { key: 1, address: 0 },
        bytes: BYTES,
        fill: false,
    });
    controls(receiver, sender);
    let offer = Offer {
        indirect: BYTES,
        direct: BYTES,
    };
    let Some(Transfer { notice, .. }) = sender.poll_transfer(offer) else {
        panic!("one is advertised")
    };
    let arrival = receiver.handle_notice(notice).expect("honest");
    assert!(matches!(arrival, Arrival::Direct { done: true, .. }));
    controls(sender, receiver);
}

fn controls(from: &mut Stream, to: &mut Stream) {
    while let Some(control) = from.poll_control() {
        to.handle_control(&control.emit()).expect("honest");
    }
}
