//! Peers that greet wrongly.

use std::io::Write;
use std::net::Shutdown;
use std::time::Duration;

use inet_rdma_fabric::{Completion, Fabric, FabricError, ListenOptions, Listener};
use inet_rdma_fabric_tcp::TcpFabric;
use inet_rdma_stream::{HELLO_BYTES, Hello, PROTOCOL_VERSION, WireError};

use crate::raw::*;
use crate::support::{
    BOUND, accept, eventually, join, listen, numbered, options, parameters, poll_one, readable_within,
};

/// The answering byte of a listener that refuses.
const BUSY: [u8; 1] = [1];
const REFUSED: [u8; 1] = [2];

/// Sends this greeting and nothing else. Returns the listener's error, and the bytes that the peer gets.
fn refused(listener: &mut dyn Listener, greeting: &[u8]) -> (FabricError, Vec<u8>) {
    let mut peer = call(listener.port());
    peer.write_all(greeting).expect("room");
    peer.shutdown(Shutdown::Write).expect("a connection");
    let error = accept(listener).map(|_| ()).expect_err("no hello");
    (error, all(&mut peer))
}

/// The listener still takes honest peers.
fn still_works(listener: &mut dyn Listener) {
    let (client, server) = join(&TcpFabric, listener);
    client.post_control(&numbered(1)).expect("room");
    assert_eq!(poll_one(&*server), Completion::Control(numbered(1)));
}

#[test]
fn garbage_is_refused() {
    let mut listener = listen(&TcpFabric, parameters());
    let (error, answer) = refused(&mut *listener, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(
        (error, &answer[..]),
        (FabricError::Hello(WireError::Magic), &REFUSED[..])
    );
    let mut wrong = hello().emit();
    wrong[40] = 1;
    let (error, answer) = refused(&mut *listener, &wrong);
    assert!(matches!(error, FabricError::Hello(WireError::Field(_))), "{error}");
    assert_eq!(answer, REFUSED);
    still_works(&mut *listener);
}

#[test]
fn a_part_of_a_hello_is_refused() {
    let mut listener = listen(&TcpFabric, parameters());
    for bytes in [1, 9, 10, HELLO_BYTES - 1] {
        let (error, _) = refused(&mut *listener, &hello().emit()[..bytes]);
        assert_eq!(
            error,
            FabricError::Hello(WireError::Length {
                got: bytes,
                want: HELLO_BYTES
            })
        );
    }
    let (error, answer) = refused(&mut *listener, &[]);
    assert_eq!((error, answer.is_empty()), (FabricError::PeerGone, true));
    still_works(&mut *listener);
}

#[test]
fn another_version_is_told_this_one() {
    let mut listener = listen(&TcpFabric, parameters());
    let mut bytes = [&hello().emit()[..], &[7; 30]].concat();
    bytes[8..10].copy_from_slice(&2_000u16.to_le_bytes());
    let (error, answer) = refused(&mut *listener, &bytes);
    assert_eq!(error, FabricError::Hello(WireError::Version { theirs: 2_000 }));
    assert_eq!(answer[8..10], PROTOCOL_VERSION.to_le_bytes());
    assert!(Hello::parse(&answer).is_ok());
    still_works(&mut *listener);
}

#[test]
fn a_hello_may_come_in_pieces_with_a_message_behind_it() {
    let mut listener = listen(&TcpFabric, parameters());
    let mut peer = call(listener.port());
    let bytes = [&hello().emit()[..], &control([3; 40])[..]].concat();
    for piece in bytes[..50].chunks(7) {
        peer.write_all(piece).expect("room");
        assert!(readable_within(listener.event_fd(), BOUND));
        assert!(listener.poll_accept().is_none(), "not all of it");
    }
    peer.write_all(&bytes[50..]).expect("room");
    let victim = accept(&mut *listener).expect("a connection");
    assert_eq!(poll_one(&*victim), Completion::Control([3; 40]));
}

#[test]
fn silence_is_bounded() {
    let mut listener = TcpFabric
        .listen(&ListenOptions {
            hello_timeout: Duration::from_millis(50),
            ..options(parameters())
        })
        .expect("a free port");
    let mut silent = call(listener.port());
    let mut slow = call(listener.port());
    slow.write_all(&hello().emit()[..20]).expect("room");
    for _ in 0..2 {
        let outcome = accept(&mut *listener).map(|_| ());
        assert_eq!(outcome, Err(FabricError::TimedOut));
    }
    assert_eq!((all(&mut silent), all(&mut slow)), (REFUSED.to_vec(), REFUSED.to_vec()));
}

#[test]
fn more_peers_than_the_backlog_takes_are_refused() {
    let mut listener = listen(&TcpFabric, parameters());
    let backlog = usize::from(options(parameters()).backlog);
    let mut silent: Vec<_> = (0..backlog + 1).map(|_| call(listener.port())).collect();
    // All connections exist when `call` returns; the listener refuses the last one when it has taken the others.
    let mut last = silent.pop().expect("a peer");
    last.set_nonblocking(true).expect("a socket");
    eventually("the last one is refused", || {
        assert!(listener.poll_accept().is_none());
        last.peek(&mut [0]).is_ok()
    });
    last.set_nonblocking(false).expect("a socket");
    assert_eq!(all(&mut last), BUSY);
    drop(silent);
    for _ in 0..backlog {
        assert_eq!(accept(&mut *listener).map(|_| ()), Err(FabricError::PeerGone));
    }
    still_works(&mut *listener);
}
