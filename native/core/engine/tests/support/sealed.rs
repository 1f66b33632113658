//! Both ends of a sealed connection, driven by hand in one thread.

#![allow(dead_code, reason = "no test uses all of it")]

use std::sync::Arc;

use inet_rdma_assembly::{Framing, ReadLimit};
use inet_rdma_engine::connection::{Closed, ReadEnd};
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_records::{Cipher, Violation};

use crate::contents;
use crate::message::Messages;
use crate::pair::{self, Conn, Keys, Side};

pub fn sides(cipher: Cipher) -> [Side; 2] {
    Keys::pair(cipher).map(|keys| Side {
        keys: Some(keys),
        ..Side::default()
    })
}

pub fn connect(cipher: Cipher) -> (Arc<Conn>, Arc<Conn>) {
    let [left, right] = sides(cipher);
    pair::connect(&ShmFabric, &left, &right)
}

pub fn write(from: &Conn, bodies: &[&[u8]]) {
    let messages = Messages::of(bodies.iter().map(|body| body.to_vec()).collect());
    let gather = messages.gather(from.framing() != Framing::Raw);
    let written = from.write(&gather, 0, usize::MAX).expect("it is up");
    assert_eq!((written.at, written.blocked), (gather.total(), false));
}

pub fn read(to: &Conn) -> (Vec<Vec<u8>>, ReadEnd) {
    let mut out = Vec::new();
    loop {
        match to.read(ReadLimit::bytes(usize::MAX), &mut out) {
            ReadEnd::More => {}
            end => return (contents::packets(&out), end),
        }
    }
}

pub fn violation(end: &ReadEnd) -> Violation {
    match end {
        ReadEnd::Closed(Closed::RecordsViolated(violation)) => *violation,
        other => panic!("{other:?}"),
    }
}
