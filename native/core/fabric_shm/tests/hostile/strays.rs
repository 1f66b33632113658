//! Files whose close waits, sent by a process that is not checked.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::channel;
use std::time::Duration;

use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_stream::HELLO_BYTES;
use rustix::net::sockopt::set_socket_linger;

use crate::raw::*;
use crate::support::{BOUND, accept, join, listen, parameters};

/// Longer than any test.
const LINGER: Duration = Duration::from_secs(3600);

/// A TCP socket whose close waits for [`LINGER`], as its peer reads nothing. Drop the peer at the end.
fn lingering() -> (OwnedFd, TcpStream) {
    let listening = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let mut writer = TcpStream::connect(listening.local_addr().expect("its port")).expect("connected");
    let (peer, _) = listening.accept().expect("accepted");
    writer.set_nonblocking(true).expect("non-blocking");
    while writer.write(&[0; 65_536]).is_ok() {}
    set_socket_linger(&writer, Some(LINGER)).expect("lingering");
    (writer.into(), peer)
}

/// What a stranger does with such a socket before it leaves.
type Stranger = fn(&OwnedFd, &OwnedFd);

/// The thread that answers peers takes the next one, whatever a stranger has sent.
fn goes_on_after(stranger: Stranger) {
    let (done, is_done) = channel();
    let (socket, peer) = lingering();
    let _detached = std::thread::spawn(move || {
        let mut listener = listen(&ShmFabric, parameters());
        let caller = call(listener.port());
        stranger(&caller, &socket);
        // The messages have the last copies.
        drop((caller, socket));
        assert!(accept(&mut *listener).is_err(), "the stranger is refused");
        drop(join(&ShmFabric, &mut *listener));
        drop(listener);
        done.send(()).expect("the test waits");
    });
    is_done.recv_timeout(BOUND).expect("the thread goes on");
    drop(peer);
}

#[test]
fn in_the_place_of_the_memory() {
    goes_on_after(|caller, socket| say(caller, &hello().emit(), &[socket.as_fd(), pair().1.as_fd()]));
}

#[test]
fn in_the_place_of_the_end_that_wakes() {
    goes_on_after(|caller, socket| {
        say(
            caller,
            &hello().emit(),
            &[memory(FILE_BYTES, SEALS).as_fd(), socket.as_fd()],
        );
    });
}

#[test]
fn beside_garbage() {
    goes_on_after(|caller, socket| say(caller, &[0xa5; HELLO_BYTES], &[socket.as_fd()]));
}

#[test]
fn more_of_them_than_belong_there() {
    goes_on_after(|caller, socket| say(caller, &hello().emit(), &[socket.as_fd(); 5]));
}

#[test]
fn in_a_message_that_nobody_reads() {
    goes_on_after(|caller, socket| {
        say(caller, b"garbage", &[]);
        say(caller, &[], &[socket.as_fd()]);
    });
}

#[test]
fn in_a_message_behind_the_refusal() {
    let (done, is_done) = channel();
    let (socket, peer) = lingering();
    let _detached = std::thread::spawn(move || {
        let mut listener = listen(&ShmFabric, parameters());
        let callers: Vec<OwnedFd> = (0..3).map(|_| call(listener.port())).collect();
        let refused = listener.poll_accept();
        assert!(refused.is_none(), "they have said nothing yet");
        for caller in &callers {
            let _ = try_to_say(caller, b"", &[socket.as_fd()]);
        }
        drop((callers, socket));
        drop(listener);
        done.send(()).expect("the test waits");
    });
    is_done
        .recv_timeout(BOUND)
        .expect("the listener's end waits for nothing");
    drop(peer);
}
