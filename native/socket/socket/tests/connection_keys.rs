//! New keys of a sealed connection: under load, in both directions, and out of turn.

#[path = "support/attached.rs"]
mod attached;
#[path = "../../../core/assembly/tests/support/contents.rs"]
mod contents;
#[path = "../../../core/engine/tests/support/message.rs"]
mod message;
#[path = "support/pair.rs"]
mod pair;
#[path = "../../../core/engine/tests/support/sealed.rs"]
mod sealed;

use std::sync::Arc;

use attached::Attached;
use inet_rdma_assembly::ReadLimit;
use inet_rdma_engine::connection::{Closed, ReadEnd};
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_records::{Cipher, KeyRefused, Violation};
use inet_rdma_socket::endpoint::Pollers;
use inet_rdma_socket::poller::Polling;
use message::Messages;
use pair::{Keys, Side, key};
use sealed::{connect, read, sides, violation, write};

/// Ten times in a run, by both sides, while both send: nothing is lost.
#[test]
fn keys_change_under_load() {
    const BYTES: usize = 16 << 20;
    let pollers = Arc::new(Pollers::start(1, Polling::Event).expect("a thread"));
    let (left, right) = connect(Cipher::of_this_processor());
    let sizes: Vec<usize> = (0..)
        .scan(0, |sum, number: usize| {
            let size = [10, 300, 70_000, 5_000][number % 4] + number % 97;
            *sum += size;
            (*sum < BYTES).then_some(size)
        })
        .collect();
    let said = [Messages::new(1, &sizes), Messages::new(2, &sizes)];
    let ends = [Attached::new(&pollers, left), Attached::new(&pollers, right)];
    std::thread::scope(|scope| {
        for (end, messages) in ends.iter().zip(&said) {
            scope.spawn(move || {
                end.write(&messages.gather(true), 50_000).expect("it is up");
                end.finish().expect("it is up");
            });
        }
        for (end, messages) in ends.iter().zip(said.iter().rev()) {
            scope.spawn(move || {
                let mut got = 0;
                let closed = loop {
                    match end.read(ReadLimit::bytes(131_072)) {
                        Err(closed) => break closed,
                        Ok(received) => {
                            for packet in contents::packets(&received) {
                                assert_eq!(packet, messages.bodies()[got]);
                                got += 1;
                            }
                        }
                    }
                };
                assert_eq!((got, closed), (messages.bodies().len(), Closed::ByPeer));
            });
        }
        for generation in 1..=10 {
            for (from, to) in [(0, 1), (1, 0)] {
                let next = key([generation as u8 + 10 * from as u8; 32]);
                let install = || ends[to].socket.connection().install_receive_key(generation, &next);
                // The reader has not read up to the last key change yet.
                while let Err(refused) = install() {
                    assert!(matches!(refused, KeyRefused::TooMany(_)), "{refused}");
                    std::thread::yield_now();
                }
                ends[from]
                    .socket
                    .connection()
                    .rekey_sending(generation, &next)
                    .expect("the next one");
                let _finished_already = ends[from].socket.connection().tick();
            }
        }
    });
    for end in &ends {
        let sealed = end.socket.connection().sealed_by().expect("it is");
        assert_eq!(sealed.usage.generation, 10);
    }
}

#[test]
fn a_change_shows_at_the_peer_though_nothing_is_sent() {
    let (writer, reader) = connect(Cipher::Aes256Gcm);
    // More keys than are kept: each control under a new key makes room for a further key.
    for generation in 1..=50 {
        reader
            .connection()
            .install_receive_key(generation, &key([generation as u8; 32]))
            .expect("room");
        writer
            .connection()
            .rekey_sending(generation, &key([generation as u8; 32]))
            .expect("the next one");
        writer.connection().tick().expect("it is up");
        write(&writer, &[b"x"]);
        assert_eq!(read(&reader), (vec![b"x".to_vec()], ReadEnd::Empty));
    }
}

#[test]
fn keys_change_in_a_direction_that_carries_no_records() {
    let (writer, reader) = connect(Cipher::Aes256Gcm);
    // More keys than are kept.
    for generation in 1..=50 {
        let next = key([generation as u8; 32]);
        reader
            .connection()
            .install_receive_key(generation, &next)
            .expect("room");
        writer
            .connection()
            .rekey_sending(generation, &next)
            .expect("the next one");
        writer.connection().tick().expect("it is up");
        assert_eq!(read(&reader), (Vec::new(), ReadEnd::Empty));
    }
    write(&writer, &[b"x"]);
    assert_eq!(read(&reader), (vec![b"x".to_vec()], ReadEnd::Empty));
}

#[test]
fn records_that_lie_unread_keep_their_keys() {
    let (writer, reader) = connect(Cipher::Aes256Gcm);
    let mut written = Vec::new();
    for generation in 1.. {
        let next = key([generation as u8; 32]);
        match reader.connection().install_receive_key(generation, &next) {
            Ok(()) => {}
            Err(KeyRefused::TooMany(_)) => break,
            Err(refused) => panic!("{refused}"),
        }
        written.push(vec![generation as u8]);
        write(&writer, &[&[generation as u8]]);
        writer
            .connection()
            .rekey_sending(generation, &next)
            .expect("the next one");
        writer.connection().tick().expect("it is up");
        reader.connection().attend(false);
    }
    assert_eq!(read(&reader), (written, ReadEnd::Empty));
}

#[test]
fn a_peer_that_uses_a_key_too_early_ends_the_connection() {
    let (writer, reader) = connect(Cipher::Aes256Gcm);
    writer
        .connection()
        .rekey_sending(1, &key([1; 32]))
        .expect("the next one");
    write(&writer, &[b"x"]);
    let expected = Violation::KeyGeneration { said: 1, present: 0 };
    assert_eq!(violation(&read(&reader).1), expected);
}

#[test]
fn the_user_is_told_when_a_key_nears_its_limit() {
    let [mut left, right] = sides(Cipher::Aes256Gcm);
    left.keys = left.keys.map(|keys| Keys {
        rekey_bytes: 1_000,
        ..keys
    });
    let (writer, reader) = pair::connect(&ShmFabric, &left, &right);
    for round in 1..4 {
        write(&writer, &[&[0; 900]]);
        assert!(!writer.notifier().take_key_due());
        write(&writer, &[&[0; 900]]);
        assert!(writer.notifier().take_key_due(), "round {round}");
        write(&writer, &[&[0; 900]]);
        assert!(!writer.notifier().take_key_due(), "told twice");
        reader
            .connection()
            .install_receive_key(round, &key([1; 32]))
            .expect("room");
        writer
            .connection()
            .rekey_sending(round, &key([1; 32]))
            .expect("the next one");
        assert_eq!(read(&reader).0.len(), 3);
    }
}

#[test]
fn a_plain_connection_takes_no_keys() {
    let (plain, _peer) = pair::connect(&ShmFabric, &Side::default(), &Side::default());
    assert_eq!(
        plain.connection().install_receive_key(1, &key([1; 32])),
        Err(KeyRefused::Plain)
    );
    assert_eq!(
        plain.connection().rekey_sending(1, &key([1; 32])),
        Err(KeyRefused::Plain)
    );
    assert_eq!(plain.connection().sealed_by(), None);
}
