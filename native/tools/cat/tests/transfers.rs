//! What goes in comes out, byte for byte.

mod support;

use std::fs::File;
use std::io::{Read, Write};
use std::process::Stdio;

use support::{Cat, at, command, fabric, random, recv, send};

const BUFFER: usize = 4096;

#[track_caller]
fn arrives(data: &[u8], options: &[&str]) -> String {
    let (receiver, port) = recv(
        &options
            .iter()
            .copied()
            .filter(|o| *o != "--no-verify")
            .collect::<Vec<_>>(),
    );
    let sender = send(port, options, data);
    let received = std::thread::spawn(move || receiver.wait());
    let sent = sender.wait();
    let received = received.join().expect("no panic");
    sent.assert(0, "");
    received.assert(0, "");
    assert!(
        received.output == data,
        "{} of {} bytes",
        received.output.len(),
        data.len()
    );
    sent.errors
}

#[test]
fn any_size_around_a_buffer_arrives() {
    for bytes in [0, 1, BUFFER - 1, BUFFER, BUFFER + 1, 3 * BUFFER, 17 * BUFFER + 5] {
        arrives(&random(bytes as u64, bytes), &["--buffer", "4", "--buffers", "2"]);
    }
}

#[test]
fn much_arrives_with_and_without_a_checksum() {
    let data = random(1, 70_000_000);
    arrives(&data, &[]);
    arrives(&data[..7_000_000], &["--no-verify"]);
}

#[test]
fn the_two_sides_may_have_different_buffers() {
    let data = random(2, 3_000_000);
    for (receiving, sending) in [(["4", "2"], ["1024", "8"]), (["1024", "8"], ["4", "2"])] {
        let (receiver, port) = recv(&["--buffer", receiving[0], "--buffers", receiving[1]]);
        let sender = send(port, &["--buffer", sending[0], "--buffers", sending[1]], &data);
        let received = receiver.wait();
        sender.wait().assert(0, "");
        assert!(received.code() == 0 && received.output == data);
    }
}

#[test]
fn the_summary_says_what_was_done() {
    let errors = arrives(&random(3, 100_000), &["--quiet", "--json"]);
    let summary: serde_json::Value = serde_json::from_str(errors.trim()).expect("one line of JSON");
    assert_eq!(summary["bytes"], 100_000);
    assert_eq!(summary["fabric"], fabric().name().name());
    assert_eq!(summary["verified"], true);
    assert_eq!(summary["percent_direct"], 100.0);
    let why = match fabric().name().name() {
        "shm" => "same host",
        _ => "RDMA device",
    };
    assert!(summary["why"].as_str().expect("text").contains(why));
}

#[test]
fn over_tcp_all_arrives_as_well() {
    let data = random(4, 30_000_000);
    arrives(&data, &["--fabric", "tcp", "--no-verify"]);
    arrives(
        &data[..100_001],
        &["--fabric", "tcp", "--buffer", "4", "--buffers", "2"],
    );
    let errors = arrives(&data[..200_000], &["--fabric", "tcp", "--quiet", "--json"]);
    let summary: serde_json::Value = serde_json::from_str(errors.trim()).expect("one line of JSON");
    assert_eq!(
        (&summary["fabric"], &summary["verified"]),
        (&"tcp".into(), &true.into())
    );
    assert_eq!(summary["percent_direct"], 100.0);
    let why = summary["why"].as_str().expect("text");
    assert!(why.starts_with("the option fabric is tcp: TCP, "), "{why}");
}

/// The receiver listens over all fabrics, and the sender asks for one. The virtual machines have an iWARP device, whose
/// ports are TCP's: there the receiver listens over shm and verbs, and a sender over TCP gets no connection.
#[test]
fn a_receiver_of_any_fabric_is_reached_over_tcp() {
    let (receiver, port) = recv(&["--fabric", "auto"]);
    let data = random(5, 1_000_000);
    let sender = send(port, &["--fabric", "tcp"], &data);
    let sent = sender.wait();
    if fabric().name().name() == "verbs" {
        return sent.assert(3, &format!("connecting to {}: ", at(port)));
    }
    sent.assert(0, "");
    let received = receiver.wait();
    assert!(received.code() == 0 && received.output == data);
}

#[test]
fn a_few_bytes_do_not_wait_for_more() {
    let (mut receiver, port) = recv(&[]);
    let to = at(port).to_string();
    let mut sender = Cat::start(command(&["send", &to]).stdin(Stdio::piped()));
    let (mut pipe, mut output) = (sender.stdin(), receiver.child.stdout.take().expect("a pipe"));
    for word in [b"one", b"two"] {
        pipe.write_all(word).expect("it reads");
        let mut came = [0; 3];
        output.read_exact(&mut came).expect("it writes");
        assert_eq!(came, *word);
    }
    drop(pipe);
    sender.wait().assert(0, "");
    receiver.wait().assert(0, "");
}

#[test]
fn many_senders_are_served_in_turn() {
    let (receiver, port) = recv(&["--count", "5"]);
    let received = std::thread::spawn(move || receiver.wait());
    for seed in 0..5 {
        send(port, &[], &random(seed, 300_000)).wait().assert(0, "");
    }
    let received = received.join().expect("no panic");
    received.assert(0, "");
    let all: Vec<u8> = (0..5).flat_map(|seed| random(seed, 300_000)).collect();
    assert!(received.output == all);
}

#[test]
fn files_are_sent_as_one_stream_into_a_file() {
    let directory = std::env::temp_dir().join(format!("rdma-cat-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let name = |name: &str| directory.join(name).to_str().expect("text").to_owned();
    // More files than buffers.
    let parts: Vec<_> = (0..20u64)
        .map(|seed| random(seed, 10_000 * (seed as usize % 3)))
        .collect();
    let names: Vec<_> = (0..parts.len()).map(|part| name(&part.to_string())).collect();
    for (name, part) in names.iter().zip(&parts) {
        std::fs::write(name, part).expect("a file");
    }
    let (receiver, port) = recv(&[&name("out"), "--sync"]);
    let files: Vec<_> = names.iter().map(String::as_str).collect();
    let sender = send(port, &files, &[]);
    receiver.wait().assert(0, "");
    sender.wait().assert(0, "");
    let received = std::fs::read(name("out")).expect("a file");
    let _ = std::fs::remove_dir_all(&directory);
    assert!(received == parts.concat());
}

#[test]
fn a_chain_of_relays_passes_everything_on() {
    let data = random(4, 20_000_000);
    let (receiver, port) = recv(&["--buffer", "128"]);
    let to = at(port).to_string();
    let (second, port) = Cat::listening(&mut command(&["relay", "0", &to, "--buffer", "512"]));
    let to = at(port).to_string();
    let (first, port) = Cat::listening(&mut command(&["relay", "0", &to, "--json"]));
    let sender = send(port, &[], &data);
    let received = receiver.wait();
    for ended in [sender.wait(), first.wait(), second.wait()] {
        ended.assert(0, "");
    }
    assert!(received.code() == 0 && received.output == data);
}

/// More bytes than 32 bits can count, from a sparse file.
#[test]
fn more_than_4_gib_arrive() {
    const BYTES: u64 = (4 << 30) + (5 << 20) + 1;
    let name = std::env::temp_dir().join(format!("rdma-cat-sparse-{}", std::process::id()));
    File::create(&name)
        .and_then(|file| file.set_len(BYTES))
        .expect("a sparse file");
    let (receiver, port) = Cat::listening(command(&["recv", "0", "--json"]).stdout(Stdio::null()));
    let file = name.to_str().expect("text");
    let sent = send(port, &[file, "--no-verify", "--buffer", "1024"], &[]).wait();
    let _ = std::fs::remove_file(&name);
    sent.assert(0, "");
    receiver.wait().assert(0, &format!("\"bytes\":{BYTES}"));
}
