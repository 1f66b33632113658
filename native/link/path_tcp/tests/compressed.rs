//! Compressed paths over real TCP connections, sealed and not, and peers that break the rules of blocks.

mod support;

use std::io::Write;
use std::net::TcpStream;

use inet_rdma_path_tcp::{BlockViolation, Codec, Compression, Protection, ReceiveError, TURN_PACKETS, TcpPath};
use inet_rdma_records::{Cipher, Key, Renewal};
use inet_rdma_session::Role;
use support::{End, Packets, streams};

fn path(stream: &TcpStream) -> TcpPath {
    stream.set_nonblocking(true).expect("nonblocking");
    TcpPath::adopt(stream.try_clone().expect("a descriptor").into())
}

/// The left side compresses what it sends, and the right one does if `both`.
fn connection(both: bool, connection: u8, is_sealed: bool) -> [TcpPath; 2] {
    let (left, right) = streams();
    let mut paths = [path(&left), path(&right)];
    let key = |direction: u8| Key::new(&[direction ^ (connection << 1); 32]).expect("32 bytes");
    for (side, path) in paths.iter_mut().enumerate() {
        if is_sealed {
            path.seal(&Protection {
                cipher: Cipher::Aes256Gcm,
                send_key: key(side as u8),
                receive_key: key(1 - side as u8),
                renewal: Renewal {
                    bytes: 1 << 20,
                    age: None,
                },
            });
        }
        let (sends, receives) = if side == 0 { (true, both) } else { (both, true) };
        path.compress(Codec::new(sends, receives).expect("memory"));
    }
    paths
}

fn append(session: &mut End, packet: Vec<u8>) {
    session.append(packet.len(), |log| {
        if packet.len() < 2048 {
            log.copy(&packet);
        } else {
            log.hold(packet);
        }
    });
}

fn json(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut text = String::from("[");
    for _ in 0..random.usize(1..20) {
        text += &format!(
            r#"{{"id": {}, "queue": "orders", "state": "running", "messages": {}, "node": "rabbit@host{}"}},"#,
            random.u32(..),
            random.u16(..),
            random.u8(..)
        );
    }
    text.into_bytes()
}

fn noise(random: &mut fastrand::Rng, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|_| random.u8(..)).collect()
}

/// Sends these packets one way; what compression did to them at the sender.
fn carry(paths: &mut [TcpPath; 2], packets: &[Vec<u8>]) -> Compression {
    let mut sessions = [End::new(Role::Initiator, 1 << 26), End::new(Role::Acceptor, 1 << 26)];
    let mut arrived = [Packets::default(), Packets::default()];
    for packet in packets {
        append(&mut sessions[0], packet.clone());
    }
    while arrived[1].0.len() < packets.len() {
        for side in 0..2 {
            let _blocked = paths[side].transmit(&mut sessions[side]).expect("a connection");
            let _all_or_more = paths[side]
                .receive(TURN_PACKETS, &mut sessions[side], &mut arrived[side])
                .expect("nothing is wrong");
        }
    }
    assert!(arrived[1].0 == packets, "the packets differ");
    let sent = paths[0].compression().expect("compressed")[0];
    let received = paths[1].compression().expect("compressed")[1];
    assert_eq!(
        (sent.plain_bytes, sent.wire_bytes),
        (received.plain_bytes, received.wire_bytes)
    );
    sent
}

#[test]
fn text_becomes_a_third_and_noise_stays() {
    let mut random = fastrand::Rng::with_seed(3);
    for is_sealed in [false, true] {
        let texts: Vec<Vec<u8>> = (0..2000).map(|_| json(&mut random)).collect();
        let text = carry(&mut connection(false, 0, is_sealed), &texts);
        assert!(text.wire_bytes * 3 < text.plain_bytes, "{text:?}");
        let noises: Vec<Vec<u8>> = (0..100).map(|_| noise(&mut random, 200_000)).collect();
        let noise = carry(&mut connection(false, 0, is_sealed), &noises);
        assert!(noise.wire_bytes * 1000 < noise.plain_bytes * 1005, "{noise:?}");
    }
}

/// What was skipped is no part of what zstd knows: text after noise is compressed again.
#[test]
fn compression_comes_back_behind_noise() {
    let mut random = fastrand::Rng::with_seed(4);
    let mut packets: Vec<Vec<u8>> = (0..5).map(|_| noise(&mut random, 1_000_000)).collect();
    let texts: Vec<Vec<u8>> = (0..200).map(|_| json(&mut random).repeat(100)).collect();
    let bytes: usize = texts.iter().map(Vec::len).sum();
    packets.extend(texts);
    let both = carry(&mut connection(false, 0, false), &packets);
    assert!(both.wire_bytes < 5_100_000 + bytes as u64 / 2, "{both:?} of {bytes}");
}

#[test]
fn packets_of_any_size_arrive_over_many_connections() {
    let mut random = fastrand::Rng::with_seed(5);
    for is_sealed in [false, true] {
        let mut sessions = [End::new(Role::Initiator, 1 << 24), End::new(Role::Acceptor, 1 << 24)];
        let mut arrived = [Packets::default(), Packets::default()];
        let mut sent = [Vec::new(), Vec::new()];
        let mut paths = connection(true, 0, is_sealed);
        for round in 0..2000_u32 {
            for side in 0..2 {
                if sessions[side].unsent_bytes() < 1 << 20 {
                    let packet = match random.u32(..20) {
                        0 => json(&mut random).repeat(100),
                        1..3 => {
                            let bytes = random.usize(..100_000);
                            noise(&mut random, bytes)
                        }
                        _ => json(&mut random),
                    };
                    sent[side].push(packet.clone());
                    append(&mut sessions[side], packet);
                }
                let _blocked = paths[side].transmit(&mut sessions[side]).expect("a connection");
                let _all_or_more = paths[side]
                    .receive(TURN_PACKETS, &mut sessions[side], &mut arrived[side])
                    .expect("nothing is wrong");
            }
            if random.u32(..20) == 0 {
                let attempt = sessions[0].next_attempt();
                let [left, right] = &mut sessions;
                let of_left = left.suspend(attempt).expect("newest");
                let of_right = right.suspend(attempt).expect("newest");
                assert_eq!(right.resume(attempt, of_left), Ok(false));
                assert_eq!(left.resume(attempt, of_right), Ok(false));
                paths = connection(true, round as u8 | 1, is_sealed);
            }
        }
        while (0..2).any(|side| arrived[side].0.len() < sent[1 - side].len()) {
            for side in 0..2 {
                let _blocked = paths[side].transmit(&mut sessions[side]).expect("a connection");
                let _all_or_more = paths[side]
                    .receive(TURN_PACKETS, &mut sessions[side], &mut arrived[side])
                    .expect("nothing is wrong");
            }
        }
        assert!(arrived[0].0 == sent[1] && arrived[1].0 == sent[0], "the packets differ");
    }
}

/// What a receiver makes of these bytes of a compressing peer.
fn verdict(bytes: &[u8]) -> Result<(), ReceiveError> {
    verdict_of(&bytes.chunks(1 << 16).collect::<Vec<_>>())
}

/// The same of bytes that come in these parts.
fn verdict_of(parts: &[&[u8]]) -> Result<(), ReceiveError> {
    let (mut hostile, stream) = streams();
    let mut path = path(&stream);
    path.compress(Codec::new(false, true).expect("memory"));
    let mut session = End::new(Role::Acceptor, 1 << 20);
    let mut arrived = Packets::default();
    for part in parts {
        hostile.write_all(part).expect("room");
        for _ in 0..100 {
            let _all_or_more = path.receive(TURN_PACKETS, &mut session, &mut arrived)?;
            std::thread::yield_now();
        }
    }
    Ok(())
}

#[test]
fn a_broken_block_costs_a_connection_unless_the_session_has_a_part_of_it() {
    let error = verdict(&block(1, 1000, 1000, &[0x5a; 1000])).expect_err("no zstd");
    assert!(error.is_damage() && !error.ends_session(), "{error:?}");
    // Two frames: the first one gives its bytes before the second is read, as it comes later.
    let frame = zstd(&[0; 1000]);
    let begin = block(1, 2000, (frame.len() + 100) as u32, &frame);
    let error = verdict_of(&[&begin, &[0x5a; 100]]).expect_err("no zstd");
    assert!(error.ends_session() && !error.is_damage(), "{error:?}");
}

fn block(kind: u8, plain: u32, wire: u32, data: &[u8]) -> Vec<u8> {
    let mut block = vec![kind];
    block.extend_from_slice(&plain.to_be_bytes()[1..]);
    block.extend_from_slice(&wire.to_be_bytes()[1..]);
    block.extend_from_slice(data);
    block
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; zstd_safe::compress_bound(bytes.len())];
    let written = zstd_safe::compress(&mut frame[..], bytes, 1).expect("room");
    frame.truncate(written);
    frame
}

#[test]
fn blocks_that_cannot_be_end_the_connection() {
    let is_header = |bytes: &[u8]| {
        let verdict = verdict(bytes);
        assert!(
            matches!(verdict, Err(ReceiveError::Block(BlockViolation::Header { .. }))),
            "{verdict:?}"
        );
    };
    for kind in [2, 3, 200, 255] {
        is_header(&block(kind, 1, 1, b"x"));
    }
    is_header(&block(0, 0, 0, b""));
    is_header(&block(0, 5, 4, b"four"));
    is_header(&block(1, 1 << 20, 1000, b""));
    is_header(&block(1, 1000, 1 << 20, b""));
    is_header(&block(1, 1000, 0, b""));
}

/// A few bytes that become many: at most as many as the block says, and that is bounded.
#[test]
fn a_bomb_makes_no_more_than_its_block_says() {
    let bomb = zstd(&vec![0; 120 << 10]);
    for plain in [1, 1000, 60_000] {
        assert_eq!(
            verdict(&block(1, plain, bomb.len() as u32, &bomb)),
            Err(ReceiveError::Block(BlockViolation::Size(plain as usize)))
        );
    }
    // zstd refuses this one by its window.
    let large = zstd(&vec![0; 100 << 20]);
    let verdict = verdict(&block(1, 60_000, large.len() as u32, &large));
    assert!(
        matches!(verdict, Err(ReceiveError::Block(BlockViolation::Zstd(_)))),
        "{verdict:?}"
    );
}

#[test]
fn a_block_that_gives_less_than_it_says_ends_the_connection() {
    let frame = zstd(b"short");
    let verdict = verdict(&block(1, 6, frame.len() as u32, &frame));
    assert_eq!(verdict, Err(ReceiveError::Block(BlockViolation::Size(6))));
}

#[test]
fn bytes_that_are_no_zstd_end_the_connection() {
    let verdict = verdict(&block(1, 1000, 1000, &[0x5a; 1000]));
    assert!(
        matches!(verdict, Err(ReceiveError::Block(BlockViolation::Zstd(_)))),
        "{verdict:?}"
    );
    // A window that is larger than both sides keep.
    let large = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa0];
    let verdict = self::verdict(&block(1, 1000, large.len() as u32, &large));
    assert!(matches!(verdict, Err(ReceiveError::Block(_))), "{verdict:?}");
}
