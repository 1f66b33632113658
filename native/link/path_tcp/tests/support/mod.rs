//! What the tests of paths share: a session of packets in vectors, and a TCP connection.

#[path = "../../../session/src/tests/packets.rs"]
mod packets;

use std::net::{TcpListener, TcpStream};

use inet_rdma_session::{Session, Sink};

pub use self::packets::Packets;

pub type End = Session<Vec<u8>, Vec<u8>>;

/// Both ends of a TCP connection.
pub fn streams() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let left = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
    let (right, _) = listener.accept().expect("accept");
    (left, right)
}
