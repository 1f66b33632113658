//! A peer that writes the bytes of the wire itself: it can send what no honest peer sends.
//!
//! The layout of frames stands here a second time on purpose: these tests fail if it changes without a new version of
//! the protocol.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use inet_rdma_fabric::{Listener, QueuePair};
use inet_rdma_fabric_tcp::TcpFabric;
use inet_rdma_stream::{HELLO_BYTES, Hello, RemoteAddress};

use crate::support::{BOUND, accept, listen, parameters};

pub const SLOTS: u16 = 24;
pub const RING_BYTES: u32 = 40_000;
pub const RING_KEY: u64 = 1;

pub fn hello() -> Hello {
    Hello {
        ring: RemoteAddress {
            key: RING_KEY,
            address: 0,
        },
        ring_bytes: RING_BYTES,
        receive_slots: SLOTS,
        adverts: 3,
        connection_id: 1,
        token: 0,
    }
}

pub fn call(port: u16) -> TcpStream {
    let peer = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a listener");
    peer.set_read_timeout(Some(BOUND)).expect("a timeout");
    peer
}

/// All bytes up to the end of the connection, in order or not.
pub fn all(peer: &mut TcpStream) -> Vec<u8> {
    let mut out = Vec::new();
    match peer.read_to_end(&mut out) {
        Ok(_) => {}
        // The victim ended the connection while the peer still sent.
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
    }
    out
}

/// A peer that has said hello, and the queue pair of the side that has accepted it.
pub fn joined() -> (TcpStream, Box<dyn QueuePair>) {
    joined_to(&mut *listen(&TcpFabric, parameters()))
}

pub fn joined_to(listener: &mut dyn Listener) -> (TcpStream, Box<dyn QueuePair>) {
    let mut peer = call(listener.port());
    peer.write_all(&hello().emit()).expect("room");
    let victim = accept(listener).expect("an accepted connection");
    let mut answer = [0; HELLO_BYTES];
    peer.read_exact(&mut answer).expect("a hello");
    let answer = Hello::parse(&answer).expect("a hello");
    assert_eq!((answer.ring.key, answer.ring.address), (RING_KEY, 0));
    (peer, victim)
}

pub fn control(message: [u8; 40]) -> Vec<u8> {
    let mut frame = vec![1, 0, 0, 0];
    frame.extend(message);
    frame
}

/// The head of a transfer of `bytes` bytes, with this notice.
pub fn head(notice: u32, bytes: u32, key: u64, address: u64) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0];
    frame.extend(notice.to_le_bytes());
    frame.extend(bytes.to_le_bytes());
    frame.extend(address.to_le_bytes());
    frame.extend(key.to_le_bytes());
    frame
}

/// A transfer as an honest peer sends it, except for the place.
pub fn transfer(bytes: &[u8], key: u64, address: u64) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).expect("a small transfer");
    let mut frame = head(length, length, key, address);
    frame.extend(bytes);
    frame
}
