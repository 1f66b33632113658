//! Connected peers that break the rules.

use std::io::{ErrorKind, Write};
use std::net::Shutdown;

use inet_rdma_fabric::{Completion, FabricError, Misbehaviour, QueuePair};
use inet_rdma_fabric_tcp::TcpFabric;
use inet_rdma_stream::{Notice, RemoteAddress};

use crate::raw::*;
use crate::support::{
    NOTICE, Post, eventually, listen, notice, numbered, parameters, poll_one, poll_some, read, room_bytes,
};

/// Polls until the end of the connection, drops completions before it, and returns its reason.
fn end_of(victim: &dyn QueuePair) -> FabricError {
    let mut end = None;
    eventually("it ends", || {
        end = victim.poll(&mut [Completion::Notice(NOTICE)]).err();
        end.is_some()
    });
    let end = end.expect("it has ended");
    assert_eq!(
        victim.poll(&mut [Completion::Notice(NOTICE)]),
        Err(end.clone()),
        "it stays so"
    );
    end
}

/// Sends these bytes after an honest message. Returns the fault that ends the connection. The ring must not change.
fn violated(words: &[u8]) -> Misbehaviour {
    let (mut peer, victim) = joined();
    peer.write_all(&control([5; 40])).expect("room");
    peer.write_all(words).expect("room");
    assert_eq!(poll_one(&*victim), Completion::Control([5; 40]));
    let FabricError::PeerMisbehaved(how) = end_of(&*victim) else {
        panic!("not named");
    };
    assert_eq!(all(&mut peer), [], "the peer sees the end, without more");
    assert!(victim.check_alive().is_err() && victim.post_control(&[0; 40]).is_err());
    let ring = read(victim.memory(), 0, RING_BYTES as usize);
    assert!(ring.iter().all(|byte| *byte == 0));
    how
}

#[test]
fn unknown_kinds_end_the_connection() {
    for said in [0u32, 3, 0x0000_0101, 0xff00_0002] {
        let how = violated(&[&said.to_le_bytes()[..], &[0; 40]].concat());
        assert_eq!(how, Misbehaviour::FrameKind { said });
    }
}

#[test]
fn a_direct_transfer_of_nothing_ends_the_connection() {
    assert!(matches!(
        violated(&head(1 << 31, 0, RING_KEY, 0)),
        Misbehaviour::Stream(_)
    ));
}

#[test]
fn writes_to_other_places_end_the_connection() {
    let end = u64::from(RING_BYTES);
    for (key, address, bytes) in [
        (RING_KEY, end - 9, 10),
        (RING_KEY, end, 1),
        (RING_KEY, end + 1, 0),
        (RING_KEY, u64::MAX, 10),
        (RING_KEY, u64::MAX - 9, 10),
        (RING_KEY, 0, RING_BYTES + 1),
        (RING_KEY, 0, u32::MAX),
        (RING_KEY, 1, RING_BYTES),
        (0, 0, 10),
        (RING_KEY + 1, 0, 10),
        (RING_KEY + (1 << 32), 0, 10),
        (u64::MAX, 0, 10),
    ] {
        // The head alone ends the connection.
        let how = violated(&head(10, bytes, key, address));
        let target = RemoteAddress { key, address };
        let bytes = bytes as usize;
        assert_eq!(how, Misbehaviour::WriteOutside { target, bytes });
    }
}

#[test]
fn a_frame_that_is_cut_short_is_none() {
    let frames = [
        control([9; 40]),
        transfer(&[9; 1_000], RING_KEY, 0),
        transfer(&[9; 30_000], RING_KEY, 0),
    ];
    for frame in &frames {
        for cut in [1, 3, 4, 27, frame.len() - 1] {
            let (mut peer, victim) = joined();
            peer.write_all(&control([5; 40])).expect("room");
            peer.write_all(&frame[..cut]).expect("room");
            peer.shutdown(Shutdown::Both).expect("a connection");
            assert_eq!(poll_one(&*victim), Completion::Control([5; 40]));
            assert_eq!(end_of(&*victim), FabricError::PeerGone);
        }
    }
}

/// Frames give the same completions if they come in pieces of random sizes.
#[test]
fn frames_may_be_cut_anywhere() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut frames = Vec::new();
    let mut expected = Vec::new();
    let mut ring = vec![0; RING_BYTES as usize];
    for number in 0..2_000u64 {
        if random.bool() {
            frames.extend(control(numbered(number)));
            expected.push(Completion::Control(numbered(number)));
        } else {
            let longest = if random.u8(..8) == 0 { 30_000 } else { 300 };
            let mut bytes = vec![0; random.usize(1..longest)];
            random.fill(&mut bytes);
            let at = random.usize(..ring.len() - bytes.len());
            ring[at..at + bytes.len()].copy_from_slice(&bytes);
            frames.extend(transfer(&bytes, RING_KEY, at as u64));
            expected.push(Completion::Notice(notice(bytes.len())));
        }
    }
    for longest in [2, 40, 500, 5_000, 100_000] {
        let (mut peer, victim) = joined();
        std::thread::scope(|scope| {
            let (frames, mut random) = (&frames, random.fork());
            scope.spawn(move || {
                let mut rest = &frames[..];
                // The first hundred thousand bytes in small pieces are enough.
                while !rest.is_empty() {
                    let sent = frames.len() - rest.len();
                    let most = if sent < 100_000 { longest } else { 100_000 };
                    let (piece, behind) = rest.split_at(random.usize(1..=most).min(rest.len()));
                    peer.write_all(piece).expect("room");
                    rest = behind;
                }
                peer
            });
            for (place, expected) in expected.iter().enumerate() {
                assert_eq!(poll_one(&*victim), *expected, "{place} of pieces up to {longest}");
            }
        });
        assert!(read(victim.memory(), 0, ring.len()) == ring, "pieces up to {longest}");
        assert_eq!(end_of(&*victim), FabricError::PeerGone);
    }
}

#[test]
fn garbage_never_does_more_than_end_the_connection() {
    let mut listener = listen(&TcpFabric, parameters());
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut peer, victim) = joined_to(&mut *listener);
        for _ in 0..20 {
            let mut frame = match random.u8(..3) {
                0 => control([random.u8(..); 40]),
                1 => transfer(
                    &[random.u8(..); 100],
                    random.u64(..3),
                    random.u64(..u64::from(RING_BYTES) + 50),
                ),
                _ => head(random.u32(..), random.u32(..), random.u64(..), random.u64(..)),
            };
            let place = random.usize(..frame.len());
            frame[place] ^= if random.u8(..4) == 0 { 1 << random.u8(..8) } else { 0 };
            let _ended = peer.write_all(&frame);
        }
        let _ended = peer.shutdown(Shutdown::Write);
        let end = end_of(&*victim);
        assert!(
            matches!(end, FabricError::PeerMisbehaved(_) | FabricError::PeerGone),
            "{end}"
        );
    }
}

/// When a window is closed in the middle of a transfer, the rest is not written, wherever its bytes wait.
#[test]
fn a_closed_window_takes_no_more_of_a_transfer() {
    for (sent, behind) in [(10, 10), (3_000, 1_000), (20_000, 10_000)] {
        let (mut peer, victim) = joined();
        let area = victim.exposer().expose_windows(40_000, 40_000).expect("memory");
        let window = &area.windows()[0];
        let target = window.open().expect("a window");
        let bytes = vec![b'x'; sent + behind];
        let frame = transfer(&bytes, target.key, target.address);
        peer.write_all(&frame[..frame.len() - behind]).expect("room");
        eventually("a part has come", || {
            assert_eq!(victim.poll(&mut [Completion::Notice(NOTICE)]), Ok(0));
            read(area.memory(), sent - 1, 1) == b"x"
        });
        window.close();
        peer.write_all(&frame[frame.len() - behind..]).expect("room");
        assert!(matches!(
            end_of(&*victim),
            FabricError::PeerMisbehaved(Misbehaviour::WriteOutside { .. })
        ));
        let after = read(area.memory(), sent, 40_000 - sent);
        assert!(after.iter().all(|byte| *byte == 0), "{behind} bytes after {sent}");
    }
}

/// This side's slots and the kernel's buffers bound what a peer can send, however often this side polls.
#[test]
fn a_flood_waits_in_the_kernel() {
    let (mut peer, victim) = joined();
    peer.set_nonblocking(true).expect("a socket");
    let frame = control([7; 40]);
    let mut sent = 0usize;
    let refused = loop {
        match peer.write(&frame.repeat(100)) {
            Ok(bytes) => sent += bytes,
            Err(error) => break error,
        }
        let looked = victim.poll(&mut []);
        assert_eq!(looked, Ok(0));
        assert!(sent < 1 << 30, "a queue without end");
    };
    assert_eq!(refused.kind(), ErrorKind::WouldBlock);
    let mut out = [Completion::Notice(NOTICE); 64];
    let first = poll_some(&*victim, &mut out);
    assert_eq!(first, usize::from(SLOTS));
    let mut left = sent / frame.len() - first;
    while left > 0 {
        let some = poll_some(&*victim, &mut out);
        assert!(
            out[..some]
                .iter()
                .all(|completion| *completion == Completion::Control([7; 40]))
        );
        left -= some;
    }
}

/// For a peer that reads nothing this side keeps a bounded backlog, and the end of the connection waits for nothing.
#[test]
fn a_peer_that_reads_nothing_costs_a_bounded_backlog() {
    let (peer, victim) = joined();
    let bytes = vec![0; 60_000];
    let target = RemoteAddress {
        key: RING_KEY,
        address: 0,
    };
    let post = |bytes: &[u8]| victim.post(&[bytes], target, notice(bytes.len()));
    let mut posted = 0;
    while room_bytes(&*victim) >= bytes.len() {
        post(&bytes).expect("the room that was offered");
        posted += bytes.len();
        assert!(posted < 1 << 30, "room without end");
    }
    // Only a test goes on.
    let full = loop {
        if let Err(error) = post(&bytes) {
            break error;
        }
        posted += bytes.len();
        assert!(posted < 1 << 30, "a backlog without end");
    };
    assert_eq!(full, FabricError::QueueFull);
    victim.post(&[], target, Notice::MARK).expect("a small one");
    victim.disconnect();
    assert_eq!(post(&bytes), Err(FabricError::PeerGone));
    drop((victim, peer));
}
