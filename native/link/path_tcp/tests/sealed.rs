//! Sealed paths over real TCP connections, through somebody in the middle who records, cuts, and changes what passes.

mod support;

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use inet_rdma_path_tcp::{Protection, ReceiveError, TURN_PACKETS, TcpPath};
use inet_rdma_records::{Cipher, HEADER_BYTES, Header, Key, Renewal, Violation};
use inet_rdma_session::Role;
use inet_rdma_session::proof::Secret;
use support::{End, Packets, streams};

/// A side of a session, and its path.
struct Side {
    session: End,
    path: TcpPath,
    packets: Packets,
}

/// One direction of a connection, as the middle sees it.
struct Direction {
    from: TcpStream,
    to: TcpStream,
    /// From which the keys of this direction are derived.
    secret: [u8; 32],
    /// All that has come.
    seen: Vec<u8>,
    /// Has come and was not passed on.
    held: Vec<u8>,
}

impl Direction {
    /// Takes what has come.
    fn read(&mut self) {
        let mut bytes = [0; 65536];
        loop {
            match self.from.read(&mut bytes) {
                Ok(0) => break,
                Ok(read) => {
                    self.seen.extend_from_slice(&bytes[..read]);
                    self.held.extend_from_slice(&bytes[..read]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Passes on what it holds, as far as there is room.
    fn pass(&mut self) {
        while !self.held.is_empty() {
            match self.to.write(&self.held) {
                Ok(written) => drop(self.held.drain(..written)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The whole records that have come.
    fn records(&self) -> Vec<Vec<u8>> {
        let (mut records, mut rest) = (Vec::new(), &self.seen[..]);
        while let Some(&header) = rest.first_chunk::<HEADER_BYTES>() {
            let bytes = Header::parse_first(header).expect("a record").record_bytes();
            if rest.len() < bytes {
                break;
            }
            records.push(rest[..bytes].to_vec());
            rest = &rest[bytes..];
        }
        records
    }
}

fn stream_pair() -> (TcpStream, TcpStream) {
    let (left, right) = streams();
    for stream in [&left, &right] {
        stream.set_nonblocking(true).expect("nonblocking");
        stream.set_nodelay(true).expect("no delay");
    }
    (left, right)
}

/// Two sides, and both directions between them.
struct World {
    sides: [Side; 2],
    middle: [Direction; 2],
    cipher: Cipher,
    secret: Secret,
    rekey_bytes: u64,
}

impl World {
    fn new(cipher: Cipher, rekey_bytes: u64) -> World {
        let secret = Secret::new(b"cookie", b"nonce of the initiator", b"nonce of the acceptor");
        let (paths, middle) = connection(cipher, &secret, rekey_bytes, b"begin");
        let mut roles = [Role::Initiator, Role::Acceptor].into_iter();
        World {
            sides: paths.map(|path| Side {
                session: End::new(roles.next().expect("two"), 1 << 24),
                path,
                packets: Packets::default(),
            }),
            middle,
            cipher,
            secret,
            rekey_bytes,
        }
    }

    /// Both sides resume over a connection of this transcript.
    fn resume(&mut self, transcript: &[u8]) {
        let (paths, middle) = connection(self.cipher, &self.secret, self.rekey_bytes, transcript);
        self.middle = middle;
        let [left, right] = &mut self.sides;
        let attempt = left.session.next_attempt();
        let of_left = left.session.suspend(attempt).expect("newest");
        let of_right = right.session.suspend(attempt).expect("newest");
        assert_eq!(right.session.resume(attempt, of_left), Ok(false));
        assert_eq!(left.session.resume(attempt, of_right), Ok(false));
        for (side, path) in self.sides.iter_mut().zip(paths) {
            side.path = path;
        }
    }

    fn send(&mut self, from: usize, packet: Vec<u8>) {
        self.sides[from].session.append(packet.len(), |log| {
            if packet.len() < 2048 {
                log.copy(&packet);
            } else {
                log.hold(packet);
            }
        });
    }

    fn transmit(&mut self) {
        for side in &mut self.sides {
            let _blocked = side.path.transmit(&mut side.session).expect("a connection");
        }
    }

    fn receive(&mut self) -> Result<(), ReceiveError> {
        for side in &mut self.sides {
            let _all_or_more = side.path.receive(TURN_PACKETS, &mut side.session, &mut side.packets)?;
        }
        Ok(())
    }

    /// Everything that is there goes on.
    fn turn(&mut self) -> Result<(), ReceiveError> {
        self.transmit();
        for direction in &mut self.middle {
            direction.read();
            direction.pass();
        }
        self.receive()
    }

    /// One side's packet, of which the middle holds the records.
    fn held(&mut self, packet: &[u8]) -> &mut Vec<u8> {
        self.send(0, packet.to_vec());
        let direction = &mut self.middle[0];
        direction.held.clear();
        for _ in 0..100 {
            let side = &mut self.sides[0];
            let _blocked = side.path.transmit(&mut side.session).expect("a connection");
            direction.read();
            if side.session.unsent_bytes() == 0 && side.path.held().is_empty() && !direction.held.is_empty() {
                break;
            }
            std::thread::yield_now();
        }
        &mut self.middle[0].held
    }

    /// What the receiver makes of the bytes that the middle holds.
    fn verdict(&mut self) -> Result<(), ReceiveError> {
        for _ in 0..100 {
            self.middle[0].pass();
            let side = &mut self.sides[1];
            let _all_or_more = side.path.receive(TURN_PACKETS, &mut side.session, &mut side.packets)?;
            std::thread::yield_now();
        }
        Ok(())
    }
}

fn connection(cipher: Cipher, secret: &Secret, rekey_bytes: u64, transcript: &[u8]) -> ([TcpPath; 2], [Direction; 2]) {
    let (left, near) = stream_pair();
    let (far, right) = stream_pair();
    let key = |role| Key::new(&*secret.of_direction(role, transcript)).expect("32 bytes");
    let adopt = |stream: &TcpStream, own, peer| {
        let mut path = TcpPath::adopt(stream.try_clone().expect("a descriptor").into());
        path.seal(&Protection {
            cipher,
            send_key: key(own),
            receive_key: key(peer),
            renewal: Renewal {
                bytes: rekey_bytes,
                age: None,
            },
        });
        path
    };
    let direction = |from: &TcpStream, to: &TcpStream, role| Direction {
        from: from.try_clone().expect("a descriptor"),
        to: to.try_clone().expect("a descriptor"),
        secret: *secret.of_direction(role, transcript),
        seen: Vec::new(),
        held: Vec::new(),
    };
    (
        [
            adopt(&left, Role::Initiator, Role::Acceptor),
            adopt(&right, Role::Acceptor, Role::Initiator),
        ],
        [
            direction(&near, &far, Role::Initiator),
            direction(&far, &near, Role::Acceptor),
        ],
    )
}

fn any_packet(random: &mut fastrand::Rng) -> Vec<u8> {
    let bytes = match random.u32(..20) {
        0 => random.usize(..300_000),
        1..5 => random.usize(..20_000),
        _ => random.usize(..200),
    };
    (0..bytes).map(|_| random.u8(..)).collect()
}

/// 1,000 connections are lost, most of them in the middle of a record. All packets arrive once and in order, and what
/// was sealed under one key and nonce is one record.
#[test]
fn no_nonce_is_used_twice_for_different_bytes() {
    let mut random = fastrand::Rng::with_seed(21);
    // (secret, generation, number of the record): its bytes.
    let mut sealed: HashMap<([u8; 32], u32, usize), Vec<u8>> = HashMap::new();
    let mut world = World::new(Cipher::Aes256Gcm, 100_000);
    let mut sent = [Vec::new(), Vec::new()];
    let mut note = |middle: &[Direction; 2]| {
        for direction in middle {
            for (number, record) in direction.records().into_iter().enumerate() {
                let header = Header::parse_first(*record.first_chunk().expect("a header")).expect("a record");
                let before = sealed.insert((direction.secret, header.generation, number), record);
                assert!(before.is_none(), "a key and a nonce were used twice");
            }
        }
    };
    for loss in 0..1000_u32 {
        for _ in 0..random.u32(1..6) {
            for (from, sent) in sent.iter_mut().enumerate() {
                let packet = any_packet(&mut random);
                sent.push(packet.clone());
                world.send(from, packet);
            }
            world.turn().expect("nothing is wrong");
        }
        // The receivers get a part of what is under way.
        world.transmit();
        for direction in &mut world.middle {
            direction.read();
            let passed = random.usize(..=direction.held.len());
            direction.held.truncate(passed);
            direction.pass();
        }
        world.receive().expect("nothing is wrong");
        note(&world.middle);
        world.resume(&loss.to_be_bytes());
    }
    while (0..2).any(|side| world.sides[side].packets.0.len() < sent[1 - side].len()) {
        world.turn().expect("nothing is wrong");
    }
    note(&world.middle);
    for (side, sent) in world.sides.iter().zip(sent.iter().rev()) {
        assert!(side.packets.0 == *sent, "the packets differ");
    }
    assert!(sealed.len() > 5000, "{}", sealed.len());
    assert!(
        sealed.keys().any(|&(_, generation, _)| generation > 2),
        "keys were renewed meanwhile"
    );
}

#[test]
fn both_ciphers_carry_packets_of_any_size() {
    for cipher in Cipher::ALL {
        let mut world = World::new(cipher, u64::MAX);
        let packets: Vec<Vec<u8>> = [0, 1, 4095, 70_000, 1 << 20, 3, 16 << 20, 0]
            .iter()
            .map(|&bytes| vec![bytes as u8; bytes])
            .collect();
        for packet in &packets {
            world.send(1, packet.clone());
        }
        while world.sides[0].packets.0.len() < packets.len() {
            world.turn().expect("nothing is wrong");
        }
        assert!(world.sides[0].packets.0 == packets, "the packets differ");
    }
}

#[test]
fn a_key_that_is_too_old_is_not_used_any_more() {
    let secret = Secret::new(b"cookie", b"nonce", b"nonce of the other");
    let (mut paths, _middle) = connection(Cipher::Aes256Gcm, &secret, u64::MAX, b"begin");
    let key = || Key::new(&[7; 32]).expect("32 bytes");
    paths[0].seal(&Protection {
        cipher: Cipher::Aes256Gcm,
        send_key: key(),
        receive_key: key(),
        renewal: Renewal {
            bytes: u64::MAX,
            age: Some(std::time::Duration::ZERO),
        },
    });
    let mut session = End::new(Role::Initiator, 1 << 20);
    for generation in 0..3 {
        session.tick();
        let _all = paths[0].transmit(&mut session).expect("a connection");
        assert_eq!(paths[0].sealing().expect("sealed").usage.generation, generation);
    }
}

/// A packet and its record, changed in one way, and the next one after it.
fn tampered(tamper: impl FnOnce(&mut World, &mut Vec<u8>)) -> (Vec<Vec<u8>>, Result<(), ReceiveError>) {
    let mut world = World::new(Cipher::Aes256Gcm, u64::MAX);
    world.send(0, b"before".to_vec());
    while world.sides[1].packets.0.is_empty() {
        world.turn().expect("nothing is wrong");
    }
    let mut held = std::mem::take(world.held(b"tampered with"));
    tamper(&mut world, &mut held);
    world.middle[0].held = held;
    let verdict = world.verdict();
    let [_, right] = world.sides;
    (right.packets.0, verdict)
}

fn is_forged((packets, verdict): (Vec<Vec<u8>>, Result<(), ReceiveError>)) {
    assert_eq!(packets, [b"before"], "nothing of it is delivered");
    assert!(
        matches!(verdict, Err(ReceiveError::Record(Violation::RecordForged { .. }))),
        "{verdict:?}"
    );
}

#[test]
fn a_record_with_any_byte_changed_is_refused() {
    let bytes = {
        let mut world = World::new(Cipher::Aes256Gcm, u64::MAX);
        world.held(b"tampered with").len()
    };
    for at in HEADER_BYTES..bytes {
        is_forged(tampered(|_, held| held[at] ^= 1));
    }
    // A size that is not the record's own ends elsewhere; a generation is one that cannot be.
    for at in 0..HEADER_BYTES {
        let (packets, verdict) = tampered(|_, held| held[at] ^= 0x80);
        assert_eq!(packets, [b"before"]);
        if let Ok(()) = verdict {
            assert!(at < 4, "the receiver waits for the rest of a larger record");
        }
    }
}

#[test]
fn a_record_that_is_repeated_is_refused() {
    is_forged(tampered(|world, held| {
        let before = world.middle[0].records().remove(0);
        *held = before;
    }));
}

#[test]
fn records_in_another_order_are_refused() {
    is_forged(tampered(|world, held| {
        let next = std::mem::take(world.held(b"the next one"));
        held.splice(..0, next);
    }));
}

#[test]
fn a_record_of_the_other_direction_is_refused() {
    is_forged(tampered(|world, held| {
        let side = &mut world.sides[1];
        side.session.tick();
        let _all = side.path.transmit(&mut side.session).expect("a connection");
        while world.middle[1].held.is_empty() {
            world.middle[1].read();
        }
        *held = std::mem::take(&mut world.middle[1].held);
    }));
}

#[test]
fn bytes_of_another_session_or_connection_are_refused() {
    is_forged(tampered(|world, held| {
        let other = Secret::new(b"cookie", b"another nonce", b"nonce of the acceptor");
        world.secret = other;
        let mut another = World::new(Cipher::Aes256Gcm, u64::MAX);
        let (paths, middle) = connection(world.cipher, &world.secret, u64::MAX, b"begin");
        another.middle = middle;
        for (side, path) in another.sides.iter_mut().zip(paths) {
            side.path = path;
        }
        *held = std::mem::take(another.held(b"of another session"));
    }));
    // The same session over the connection before.
    let mut world = World::new(Cipher::Aes256Gcm, u64::MAX);
    let old = std::mem::take(world.held(b"sent over the old connection"));
    world.resume(b"the next connection");
    world.middle[0].held = old;
    let verdict = world.verdict();
    assert!(world.sides[1].packets.0.is_empty());
    assert!(
        matches!(verdict, Err(ReceiveError::Record(Violation::RecordForged { .. }))),
        "{verdict:?}"
    );
}

/// One bit of a record has passed TCP's checksum: the path ends, and the session goes on over another one.
#[test]
fn a_record_that_was_changed_costs_a_connection() {
    let mut world = World::new(Cipher::Aes256Gcm, u64::MAX);
    let held = world.held(b"changed on its way");
    *held.last_mut().expect("a record") ^= 1;
    let error = world.verdict().expect_err("it is changed");
    assert!(error.is_damage() && !error.ends_session(), "{error:?}");
    world.resume(b"the next connection");
    while world.sides[1].packets.0.is_empty() {
        world.turn().expect("nothing is wrong");
    }
    assert_eq!(world.sides[1].packets.0, [b"changed on its way"]);
}

/// A record that is cut off says nothing; what it had comes over the next connection.
#[test]
fn a_record_that_is_cut_off_delivers_nothing() {
    let mut world = World::new(Cipher::Aes256Gcm, u64::MAX);
    let held = world.held(b"cut off");
    held.pop();
    assert_eq!(world.verdict(), Ok(()));
    assert!(world.sides[1].packets.0.is_empty());
    world.resume(b"the next connection");
    while world.sides[1].packets.0.is_empty() {
        world.turn().expect("nothing is wrong");
    }
    assert_eq!(world.sides[1].packets.0, [b"cut off"]);
}
