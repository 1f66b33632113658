//! Both ends of a connection, driven by hand in one thread.

#![allow(dead_code, reason = "no test uses all of it")]

use std::sync::Arc;
use std::time::Duration;

use inet_rdma_assembly::{Framing, ReadLimit, Received};
use inet_rdma_engine::connection::ReadEnd;
use inet_rdma_fabric_fault::{FaultFabric, FaultPlan};
use inet_rdma_fabric_shm::ShmFabric;

use crate::contents;
use crate::message::Messages;
use crate::pair::{self, Conn, Side};

pub const ALL: ReadLimit = ReadLimit {
    bytes: usize::MAX,
    packets: usize::MAX,
    exact: 0,
};

pub fn connected(side: Side) -> (Arc<Conn>, Arc<Conn>) {
    let (left, right) = pair::connect(&ShmFabric, &side, &side);
    look(&left);
    look(&right);
    (left, right)
}

/// Far from each other.
pub fn far(side: Side) -> (Arc<Conn>, Arc<Conn>) {
    let plan = FaultPlan {
        distance: Duration::from_millis(2),
        ..FaultPlan::default()
    };
    pair::connect(&FaultFabric::new(ShmFabric, plan), &side, &side)
}

/// One look of a polling thread; whom it would tell.
pub fn look(socket: &Conn) -> (bool, bool) {
    socket.notifier().take();
    assert!(!socket.connection().attend(false));
    let wakes = socket.notifier().take();
    (wakes.reader, wakes.writer)
}

pub fn read(socket: &Conn) -> (Vec<Received<Vec<u8>>>, ReadEnd) {
    let mut out = Vec::new();
    loop {
        let end = socket.read(ALL, &mut out);
        if end != ReadEnd::More {
            return (out, end);
        }
    }
}

/// Writes what fits; how far it came.
pub fn write(socket: &Conn, messages: &Messages, at: usize) -> usize {
    let gather = messages.gather(socket.framing() == Framing::Length4);
    socket.write(&gather, at, usize::MAX).expect("it is up").at
}

/// Writes all, while the peer reads.
pub fn carry(from: &Conn, to: &Conn, messages: &Messages) -> Vec<Received<Vec<u8>>> {
    let total = messages.gather(from.framing() == Framing::Length4).total();
    let mut out = Vec::new();
    let mut at = 0;
    for _ in 0..10_000 {
        look(from);
        at = write(from, messages, at);
        let (received, end) = read(to);
        assert_eq!(end, ReadEnd::Empty);
        out.extend(received);
        if at == total && contents::packets(&out).len() == messages.bodies().len() {
            return out;
        }
    }
    panic!("wrote {at} of {total}");
}

pub fn small() -> Side {
    Side {
        ring_bytes: 4_096,
        receive_slots: 8,
        ..Side::default()
    }
}
