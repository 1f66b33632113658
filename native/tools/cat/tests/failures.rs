//! Each failure is reported at both sides: a reason on standard error, and its exit status.

mod support;

use std::fs::File;
use std::io::{Read, Write};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use inet_rdma_assembly::{Framing, Gather};
use inet_rdma_engine::connection::{Connection, Settings, WriteHalf, ZeroCopy};
use inet_rdma_fabric::{ListenOptions, Parameters, QueuePair};
use inet_rdma_stream::Limits;
use support::{BOUND, Cat, at, command, fabric, random, recv, send};

/// A sender in the middle of its input, and its receiver, which has written a part of it.
fn in_the_middle() -> (Cat, std::process::ChildStdin, Cat) {
    let (mut receiver, port) = recv(&[]);
    let to = at(port).to_string();
    let mut sender = Cat::start(command(&["send", &to]).stdin(Stdio::piped()));
    let mut pipe = sender.stdin();
    pipe.write_all(&[7; 100_000]).expect("it reads");
    let output = receiver.child.stdout.as_mut().expect("a pipe");
    output.read_exact(&mut [0; 100_000]).expect("it writes");
    (sender, pipe, receiver)
}

#[test]
fn a_sender_sees_its_receiver_die_while_it_waits_for_input() {
    let (sender, _pipe, mut receiver) = in_the_middle();
    receiver.child.kill().expect("it runs");
    sender.wait().assert(4, "the connection was lost");
}

#[test]
fn a_receiver_sees_its_sender_die() {
    let (mut sender, _pipe, receiver) = in_the_middle();
    sender.child.kill().expect("it runs");
    receiver.wait().assert(4, "the connection was lost");
}

#[test]
fn both_ends_of_a_chain_see_the_relay_die() {
    let (mut receiver, port) = recv(&[]);
    let to = at(port).to_string();
    let (mut relay, port) = Cat::listening(&mut command(&["relay", "0", &to]));
    let to = at(port).to_string();
    let mut sender = Cat::start(command(&["send", &to]).stdin(Stdio::piped()));
    let mut pipe = sender.stdin();
    pipe.write_all(b"some").expect("it reads");
    let output = receiver.child.stdout.as_mut().expect("a pipe");
    output.read_exact(&mut [0; 4]).expect("it writes");
    relay.child.kill().expect("it runs");
    sender.wait().assert(4, "the connection was lost");
    receiver.wait().assert(4, "the connection was lost");
    drop(pipe);
}

#[test]
fn a_full_disk_fails_at_both_ends() {
    let full = File::options().write(true).open("/dev/full").expect("/dev/full");
    let (receiver, port) = Cat::listening(command(&["recv", "0"]).stdout(full));
    let sent = send(port, &[], &random(1, 5_000_000)).wait();
    sent.assert(5, "No space left");
    receiver.wait().assert(1, "No space left");
}

#[test]
fn a_full_disk_behind_a_relay_fails_everywhere() {
    let full = File::options().write(true).open("/dev/full").expect("/dev/full");
    let (receiver, port) = Cat::listening(command(&["recv", "0"]).stdout(full));
    let to = at(port).to_string();
    let (relay, port) = Cat::listening(&mut command(&["relay", "0", &to]));
    let sent = send(port, &[], &random(1, 5_000_000)).wait();
    sent.assert(5, "No space left");
    relay.wait().assert(5, "No space left");
    receiver.wait().assert(1, "No space left");
}

#[test]
fn a_broken_pipe_fails_at_both_ends() {
    let (mut receiver, port) = recv(&[]);
    let mut output = receiver.child.stdout.take().expect("a pipe");
    let sender = send(port, &[], &random(1, 20_000_000));
    output.read_exact(&mut [0; 1000]).expect("it writes");
    drop(output);
    sender.wait().assert(5, "Broken pipe");
    receiver.wait().assert(1, "Broken pipe");
}

#[test]
fn input_that_cannot_be_read_fails_at_both_ends() {
    let (receiver, port) = recv(&[]);
    send(port, &["/"], &[]).wait().assert(1, "directory");
    receiver.wait().assert(5, "directory");
}

#[test]
fn a_missing_file_makes_no_connection() {
    send(1, &["/nowhere/at/all"], &[]).wait().assert(1, "No such file");
}

#[test]
fn a_port_without_a_listener_is_an_error() {
    let (mut receiver, port) = recv(&[]);
    receiver.child.kill().expect("it runs");
    receiver.wait();
    send(port, &[], b"x").wait().assert(3, "nobody listens");
}

#[test]
fn a_taken_port_is_an_error() {
    let (_receiver, port) = recv(&[]);
    let second = Cat::start(&mut command(&["recv", &port.to_string()]));
    second.wait().assert(3, "no free port");
}

#[test]
fn wrong_usage_is_an_error() {
    for arguments in [
        &["recv", "nonsense"][..],
        &["recv"],
        &["send", "localhost:1", "--buffer", "3"],
        &["recv", "1", "--buffer", "65536", "--buffers", "64"],
        &["send", ":1"],
        &["send", "localhost:70000"],
    ] {
        Cat::start(&mut command(arguments)).wait().assert(2, "");
    }
    Cat::start(&mut command(&["send", "localhost"]))
        .wait()
        .assert(2, "localhost: not HOST:PORT");
}

const LIMITS: Limits = Limits {
    ring_bytes: 65_536,
    receive_slots: 64,
    adverts: 16,
};

fn parameters() -> Parameters {
    Parameters {
        landing_area_bytes: 16 * 8192,
        connection_id: 1,
        ..Parameters::of(LIMITS)
    }
}

/// A program that speaks the stream protocol, but is no rdma-cat.
fn stranger(qp: Box<dyn QueuePair>) -> WriteHalf {
    let settings = Settings {
        landing_buffer_bytes: 8192,
        direct_bytes: 4096,
        packet_max_bytes: 65_536,
        zero_copy: ZeroCopy::Never,
        ..Settings::default()
    };
    let made = Connection::new::<Vec<u8>>(qp, &parameters(), settings, Framing::Raw, None, Arc::new(()));
    let (_, _, writer) = made.expect("a connection");
    writer
}

#[test]
fn a_peer_that_is_no_rdma_cat_is_told_apart_by_the_receiver() {
    let (receiver, port) = recv(&[]);
    let mut peer = stranger(fabric().connect(at(port), &parameters(), BOUND).expect("a connection"));
    let mut packet = 100u32.to_be_bytes().to_vec();
    packet.resize(104, b'?');
    let mut gather = Gather::with_capacity(1, 1);
    gather.push(&packet);
    gather.end_packet();
    let written = peer.write(&gather, 0, usize::MAX).expect("it is up");
    assert_eq!(written.at, gather.total());
    receiver.wait().assert(4, "is no rdma-cat");
}

#[test]
fn a_peer_that_is_no_rdma_cat_is_told_apart_by_the_sender() {
    let options = ListenOptions {
        address: None,
        ports: 0..=0,
        backlog: 8,
        hello_timeout: BOUND,
        parameters: parameters(),
    };
    let mut listener = fabric().listen(&options).expect("a free port");
    let sender = send(listener.port(), &["--connect-timeout", "1"], b"x");
    let end = Instant::now() + BOUND;
    let qp = loop {
        match listener.poll_accept() {
            Some(accepted) => break accepted.expect("a connection"),
            None => assert!(Instant::now() < end, "nobody came"),
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let _silent = stranger(qp);
    sender.wait().assert(4, "no rdma-cat");
}

#[test]
fn a_peer_that_leaves_before_its_hello_keeps_no_sender_out() {
    let (receiver, port) = recv(&[]);
    let mut peer = stranger(fabric().connect(at(port), &parameters(), BOUND).expect("a connection"));
    peer.close();
    drop(peer);
    let sender = send(port, &[], b"hello");
    let received = receiver.wait();
    received.assert(0, "sent nothing");
    assert_eq!(received.output, b"hello");
    sender.wait().assert(0, "");
}

#[test]
fn the_manual_page_names_every_command() {
    let page = Cat::start(&mut command(&["man"])).wait();
    let text = String::from_utf8_lossy(&page.output).into_owned();
    for word in ["rdma\\-cat", "send", "recv", "relay", "Exit status"] {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
}
