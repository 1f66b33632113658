//! A sink of tests, here and of paths.

use super::Sink;

/// The packets that have arrived.
#[derive(Default)]
pub struct Packets(pub Vec<Vec<u8>>);

impl Sink for Packets {
    type Large = Vec<u8>;

    fn allocate(&mut self, bytes: usize) -> Option<Vec<u8>> {
        Some(vec![0; bytes])
    }

    fn small(&mut self, packet: &[u8]) {
        self.0.push(packet.to_vec());
    }

    fn large(&mut self, packet: Vec<u8>) {
        self.0.push(packet);
    }
}
