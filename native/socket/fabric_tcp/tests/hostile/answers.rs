//! Listeners that answer wrongly.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use inet_rdma_fabric::{Fabric, FabricError, QueuePair, Rejection};
use inet_rdma_fabric_tcp::TcpFabric;
use inet_rdma_stream::{HELLO_BYTES, Hello, WireError};

use crate::raw::hello;
use crate::support::{BOUND, parameters};

/// Connects to a listener that answers with these bytes and hangs up.
fn answered(answer: &[u8]) -> Result<Box<dyn QueuePair>, FabricError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let to = listener.local_addr().expect("its address");
    std::thread::scope(|scope| {
        let connecting = scope.spawn(move || TcpFabric.connect(to, &parameters(), BOUND));
        let (mut peer, _) = listener.accept().expect("a peer");
        let mut greeting = [0; HELLO_BYTES];
        peer.read_exact(&mut greeting).expect("a hello");
        assert!(Hello::parse(&greeting).is_ok());
        peer.write_all(answer).expect("room");
        drop(peer);
        connecting.join().expect("no panic")
    })
}

fn wrong(answer: &[u8]) -> FabricError {
    answered(answer)
        .map(|_| ())
        .expect_err("a wrong answer was taken for right")
}

#[test]
fn wrong_answers_are_named() {
    assert_eq!(wrong(&[]), FabricError::PeerGone);
    assert_eq!(wrong(&[1]), FabricError::Rejected(Rejection::Busy));
    assert_eq!(wrong(&[2]), FabricError::Rejected(Rejection::Hello));
    assert_eq!(
        wrong(b"HTTP/1.1 400 Bad Request\r\n"),
        FabricError::Hello(WireError::Magic)
    );
    assert!(matches!(
        wrong(&hello().emit()[..30]),
        FabricError::Hello(WireError::Length { got: 30, .. })
    ));
    let mut other = hello().emit();
    other[8..10].copy_from_slice(&2_000u16.to_le_bytes());
    assert_eq!(wrong(&other), FabricError::Hello(WireError::Version { theirs: 2_000 }));
    let token = Hello { token: 9, ..hello() };
    assert_eq!(wrong(&token.emit()), FabricError::WrongToken);
}

#[test]
fn a_peer_that_answers_and_hangs_up_is_a_connection_that_ends() {
    let qp = answered(&hello().emit()).expect("a connection");
    assert_eq!(crate::support::await_end(&*qp), FabricError::PeerGone);
}

#[test]
fn silence_is_bounded() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let to = listener.local_addr().expect("its address");
    let outcome = TcpFabric.connect(to, &parameters(), Duration::from_millis(50));
    assert_eq!(outcome.map(|_| ()), Err(FabricError::TimedOut));
}
