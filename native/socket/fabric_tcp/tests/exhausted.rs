//! A process without a free descriptor. A program of its own: the limit is the process's.

#[path = "../../../core/fabric/tests/support/mod.rs"]
#[allow(dead_code, reason = "shared with the contract suite, which uses all of it")]
mod support;

use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};

use inet_rdma_fabric::{Errno, FabricError, Listener};
use inet_rdma_fabric_tcp::TcpFabric;
use inet_rdma_stream::{Hello, RemoteAddress};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::*;

fn limit_descriptors(limit: Option<u64>) -> Option<u64> {
    let before = getrlimit(Resource::Nofile);
    let limit = Rlimit {
        current: limit,
        ..before
    };
    setrlimit(Resource::Nofile, limit).expect("a limit below the hard one");
    before.current
}

/// A peer that has sent its hello to a listener that has not polled yet.
fn caller(listener: &dyn Listener) -> TcpStream {
    let mut caller = TcpStream::connect((Ipv4Addr::LOCALHOST, listener.port())).expect("a listener");
    let hello = Hello {
        ring: RemoteAddress { key: 1, address: 0 },
        ring_bytes: 4_096,
        receive_slots: 16,
        adverts: 1,
        connection_id: 1,
        token: 0,
    };
    caller.write_all(&hello.emit()).expect("room");
    caller
}

#[test]
fn callers_wait_until_there_is_a_descriptor_for_them() {
    let mut listener = listen(&TcpFabric, parameters());
    let _callers = [caller(&*listener), caller(&*listener)];
    // Open descriptors stay open.
    let before = limit_descriptors(Some(3));
    let refused = accept(&mut *listener).map(|_| ());
    let paused = listener.next_deadline();
    let is_busy = readable_within(listener.event_fd(), std::time::Duration::ZERO);
    let _back = limit_descriptors(before);
    let emfile = Errno(rustix::io::Errno::MFILE.raw_os_error());
    assert!(
        matches!(refused, Err(FabricError::System { error, .. }) if error == emfile),
        "{refused:?}"
    );
    assert!(paused.is_some() && !is_busy, "the thread that waits would spin");
    for _ in 0..2 {
        assert!(accept(&mut *listener).is_ok());
    }
}
