//! What the tests of paths share: a session of packets in vectors, and a TCP connection.

use std::net::{TcpListener, TcpStream};

use inet_rdma_session::{Session, Sink};

pub type End = Session<Vec<u8>, Vec<u8>>;

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

/// Both ends of a TCP connection.
pub fn streams() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let left = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
    let (right, _) = listener.accept().expect("accept");
    (left, right)
}
