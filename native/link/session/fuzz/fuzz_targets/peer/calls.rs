//! What both kinds of input have in common: calls on a session as its caller makes them, and a sink for its packets.

use std::collections::VecDeque;

use inet_rdma_session::{Session, Sink};

pub const PACKET_MAX_BYTES: usize = 70_000;

pub type Tested = Session<Vec<u8>, Vec<u8>>;

/// Takes packets of up to the limit.
#[derive(Default)]
pub struct Packets(pub VecDeque<Vec<u8>>);

impl Sink for Packets {
    type Large = Vec<u8>;

    fn allocate(&mut self, bytes: usize) -> Option<Vec<u8>> {
        assert!(bytes <= PACKET_MAX_BYTES);
        Some(vec![0; bytes])
    }

    fn small(&mut self, packet: &[u8]) {
        self.0.push_back(packet.to_vec());
    }

    fn large(&mut self, packet: Vec<u8>) {
        self.0.push_back(packet);
    }
}

pub fn append(session: &mut Tested, packet: Vec<u8>, is_held: bool) {
    session.append(packet.len(), |log| if is_held {
    log.hold(packet)
    } else {
    log.copy(&packet)
    });
}

pub fn transmit(session: &mut Tested, most: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    if session.poll_transmit() {
        session.transmission(|slice| {
            bytes.extend_from_slice(slice);
            bytes.len() < most
        });
        assert!(!bytes.is_empty(), "something is to be written, and nothing is there");
        bytes.truncate(most);
        session.handle_transmitted(bytes.len());
    }
    bytes
}

pub fn queue(session: &mut Tested, most: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    session.queue_slices(most, |slice| {
        bytes.extend_from_slice(slice);
        true
    });
    assert!(bytes.len() <= most);
    session.handle_queued(bytes.len());
    bytes
}
