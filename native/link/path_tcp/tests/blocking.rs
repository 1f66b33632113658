//! A path whose descriptor shares its flags with another one, which its owner has set to block.

mod support;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use inet_rdma_path_tcp::{Received, TURN_PACKETS, TcpPath, Transmitted};
use inet_rdma_session::Role;
use rustix::net::sockopt;
use support::{End, Packets, streams};

/// The kernel doubles it. Without it, the sockets' buffers grow to what the system's settings allow.
const SOCKET_BUFFER_BYTES: usize = 64 << 10;
/// More than the buffers of both sockets hold.
const PACKET_BYTES: usize = 4 << 20;

/// The result of a call that must not wait.
fn at_once<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    thread::spawn(move || done.send(call()));
    result.recv_timeout(Duration::from_secs(30)).expect("the call waits")
}

#[test]
fn no_call_waits_for_a_socket_that_is_set_to_block() {
    let (left, right) = streams();
    for stream in [&left, &right] {
        sockopt::set_socket_send_buffer_size(stream, SOCKET_BUFFER_BYTES).expect("a send buffer");
        sockopt::set_socket_recv_buffer_size(stream, SOCKET_BUFFER_BYTES).expect("a receive buffer");
    }
    let adopt = |stream: &std::net::TcpStream| {
        let path = TcpPath::adopt(stream.try_clone().expect("a descriptor").into());
        stream.set_nonblocking(false).expect("a blocking socket");
        path
    };
    let (mut sender, mut receiver) = (adopt(&left), adopt(&right));
    let mut session = End::new(Role::Initiator, 2 * PACKET_BYTES);
    session.append(PACKET_BYTES, |log| log.hold(vec![7; PACKET_BYTES]));
    let transmitted = at_once(move || sender.transmit(&mut session));
    assert_eq!(transmitted, Ok(Transmitted::Blocked));
    // Small packets, then the memory of a large one, then nothing.
    let received = at_once(move || {
        let mut session = End::new(Role::Acceptor, 2 * PACKET_BYTES);
        let mut packets = Packets::default();
        loop {
            let received = receiver.receive(TURN_PACKETS, &mut session, &mut packets);
            if !matches!(received, Ok(Received::More)) {
                break received;
            }
        }
    });
    assert!(matches!(received, Ok(Received::All)), "{received:?}");
}
