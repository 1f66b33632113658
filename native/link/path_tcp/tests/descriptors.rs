//! A process that has no descriptor left. It is a program of its own, with one test, as the limit is the process's.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

use inet_rdma_path_tcp::descriptors::{Reserved, copy_of, refill};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const LIMIT: u64 = 64;

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listener");
    let left = TcpStream::connect(listener.local_addr().expect("address")).expect("connection");
    (left, listener.accept().expect("connection").0)
}

#[test]
fn the_spare_serves_one_connection_at_a_time() {
    let (left, mut right) = pair();
    refill();
    let limits = getrlimit(Resource::Nofile);
    let limit = Rlimit {
        current: Some(LIMIT),
        maximum: limits.maximum,
    };
    setrlimit(Resource::Nofile, limit).expect("a lower limit");
    let mut others = Vec::new();
    while let Ok(other) = left.try_clone() {
        others.push(other);
    }

    let copy = copy_of(left.as_fd()).expect("the spare");
    assert!(copy_of(left.as_fd()).is_err(), "the spare is in use");
    assert!(Reserved::new().is_err(), "the spare is in use");
    refill();
    assert!(copy_of(left.as_fd()).is_err(), "there is no room for another spare");

    drop(others.pop());
    refill();
    assert!(left.try_clone().is_err(), "the spare took the room");
    let reserved = Reserved::new().expect("the spare");
    assert!(copy_of(left.as_fd()).is_err(), "the spare is reserved");
    drop(reserved);
    let reserved = Reserved::new().expect("one that was not used is the spare again");
    let mut also = TcpStream::from(reserved.copy_of(left.as_fd()).expect("a copy"));

    also.write_all(b"a").expect("a descriptor of the connection");
    TcpStream::from(copy)
        .write_all(b"b")
        .expect("a descriptor of the connection");
    let mut read = [0; 2];
    right.read_exact(&mut read).expect("bytes");
    assert_eq!(&read, b"ab");
}
