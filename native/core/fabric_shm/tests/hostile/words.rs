//! Peers that send a right greeting and then write anything into the shared memory.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use inet_rdma_fabric::{Completion, FabricError, QueuePair};
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_stream::{CONTROL_BYTES, RemoteAddress};

use crate::raw::*;
use crate::support::{self, BOUND, NOTICE, Post, accept, parameters, readable_within};

/// A connection with one hostile end.
struct Hostile {
    /// Wakes the honest end.
    waking: OwnedFd,
    /// Both ends of the pair by which the honest end wakes the hostile side.
    pair: (OwnedFd, OwnedFd),
    /// The hostile side's own memory, where the honest end's posts arrive.
    own: Words,
    /// The honest end's memory, where the hostile side's posts go.
    peers: Words,
    honest: Box<dyn QueuePair>,
}

fn hostile() -> Hostile {
    let mut listener = support::listen(&ShmFabric, parameters());
    let socket = call(listener.port());
    let own = memory(FILE_BYTES, SEALS);
    let pair = pair();
    say(&socket, &hello().emit(), &[own.as_fd(), pair.1.as_fd()]);
    let honest = accept(&mut *listener).expect("a right greeting");
    let (_, came) = hear(&socket);
    let [memory, waking] = <[OwnedFd; 2]>::try_from(came).expect("two descriptors");
    Hostile {
        waking,
        pair,
        own: Words::of(&own),
        peers: Words::of(&memory),
        honest,
    }
}

fn misbehaved<T>(outcome: Result<T, FabricError>, what: &str) {
    match outcome {
        Err(FabricError::PeerMisbehaved(_)) => {}
        Err(other) => panic!("{what}: {other}"),
        Ok(_) => panic!("{what}: not noticed"),
    }
}

#[test]
fn the_layout_is_the_documented_one() {
    let hostile = hostile();
    hostile.peers.entry(0, 1, 1 << 32 | 5);
    let mut out = [Completion::Notice(NOTICE); 2];
    assert_eq!(hostile.honest.poll(&mut out).expect("a right entry"), 1);
    assert_eq!(out[0], Completion::Notice(support::notice(5)));
}

#[test]
fn wild_stamps_are_noticed() {
    for stamp in [2, 33, u64::MAX, 1 << 32, 1 << 63] {
        let hostile = hostile();
        hostile.peers.entry(0, stamp, 1 << 32 | 5);
        misbehaved(hostile.honest.poll(&mut [Completion::Notice(NOTICE)]), "poll");
        misbehaved(hostile.honest.arm(), "arm");
    }
}

#[test]
fn wild_kinds_are_noticed_after_what_came_before() {
    for kind in [0, 5, 4 << 32, u64::MAX, (1 << 32) + (1 << 31)] {
        let hostile = hostile();
        hostile.peers.entry(0, 1, 1 << 32 | 5);
        hostile.peers.entry(1, 2, kind);
        let mut out = [Completion::Notice(NOTICE); 4];
        assert_eq!(hostile.honest.poll(&mut out).expect("one right entry"), 1);
        for _ in 0..3 {
            misbehaved(hostile.honest.poll(&mut out), "poll");
        }
    }
}

#[test]
fn bytes_in_an_entry_go_into_the_ring_or_nowhere() {
    let hostile = hostile();
    let end = u64::from(RING_BYTES);
    hostile.peers.inline(0, 7, end - 7);
    let mut out = [Completion::Notice(NOTICE); 2];
    assert_eq!(hostile.honest.poll(&mut out).expect("they fit"), 1);
    assert_eq!(out[0], Completion::Notice(support::notice(7)));
    let memory = hostile.honest.memory();
    assert_eq!(support::read(memory, RING_BYTES as usize - 7, 7), [0xAB; 7]);
    let landing = 10 * 4_096;
    for (bytes, address) in [(7, end - 6), (41, 0), (7, landing), (7, u64::MAX), ((1 << 31) - 1, 0)] {
        hostile.peers.inline(1, bytes, address);
        for _ in 0..3 {
            misbehaved(hostile.honest.poll(&mut out), &format!("{bytes} at {address}"));
        }
    }
    let area = hostile.honest.exposer().expose(4_096).expect("a landing area");
    assert_eq!(support::read(area.memory(), 0, 7), [0; 7]);
}

#[test]
fn wild_heads_are_noticed() {
    for head in [25, u64::MAX, 1 << 63, 1 << 40] {
        let hostile = hostile();
        hostile.own.set(HEAD, head);
        for _ in 0..SLOTS {
            hostile
                .honest
                .post_control(&[1; CONTROL_BYTES])
                .expect("slots are free");
        }
        misbehaved(hostile.honest.post_control(&[1; CONTROL_BYTES]), "post");
    }
}

#[test]
fn a_head_that_goes_back_is_noticed() {
    let hostile = hostile();
    let post = || hostile.honest.post_control(&[1; CONTROL_BYTES]);
    (0..SLOTS).for_each(|_| post().expect("slots are free"));
    hostile.own.set(HEAD, 20);
    (0..20).for_each(|_| post().expect("slots are free again"));
    hostile.own.set(HEAD, 19);
    misbehaved(post(), "post");
}

#[test]
fn targets_outside_of_the_peers_file_are_refused() {
    let hostile = hostile();
    let ends = [(1, u64::from(RING_BYTES)), (2, 3 * 4_096)];
    for (key, end) in ends {
        for address in [end, end - 3, u64::MAX - 3, 1 << 63, 0u64.wrapping_sub(4_096)] {
            let target = RemoteAddress { key, address };
            misbehaved(hostile.honest.post(&[b"four"], target, NOTICE), "write");
        }
        let address = end - 4;
        hostile
            .honest
            .post(&[b"four"], RemoteAddress { key, address }, NOTICE)
            .expect("the last four bytes");
    }
    for key in [0, 3, u64::MAX] {
        let target = RemoteAddress { key, address: 0 };
        misbehaved(hostile.honest.post(&[b"four"], target, NOTICE), "key");
    }
}

/// The hostile side wakes without a cause: the victim polls and finds nothing.
#[test]
fn wake_ups_without_a_cause_are_no_more() {
    let Hostile { waking, honest, .. } = hostile();
    for wakes in [1, 1, 10, 1] {
        assert!(!readable_within(honest.event_fd(), Duration::ZERO));
        (0..wakes).for_each(|_| wake(&waking));
        assert!(readable_within(honest.event_fd(), BOUND));
        assert!(honest.drain_event());
        assert_eq!(honest.poll(&mut [Completion::Notice(NOTICE)]).expect("no fault"), 0);
        honest.check_alive().expect("it does not end");
    }
    drop(waking);
    assert!(matches!(honest.check_alive(), Err(FabricError::PeerGone)));
    assert!(readable_within(honest.event_fd(), BOUND));
    assert!(!honest.drain_event());
}

/// A message that holds the hostile side's own end would hide its death.
#[test]
fn no_descriptor_can_be_left_with_the_victim() {
    let Hostile { waking, honest, .. } = hostile();
    assert_eq!(
        try_to_say(&waking, b"keep me", &[waking.as_fd()]),
        Err(rustix::io::Errno::PIPE)
    );
    drop(waking);
    assert!(matches!(honest.check_alive(), Err(FabricError::PeerGone)));
}

/// The close of a TCP socket with SO_LINGER waits until its peer has taken all bytes: an hour here.
#[test]
fn a_file_left_in_a_message_does_not_hold_the_end() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let mut lingering = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
    let (receiver, _) = listener.accept().expect("a connection");
    lingering.set_nonblocking(true).expect("set");
    while lingering.write(&[0; 65536]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&lingering, Some(Duration::from_secs(3600))).expect("set");

    let Hostile { pair, honest, .. } = hostile();
    say(&pair.0, b"x", &[lingering.as_fd()]);
    drop(lingering);
    // The honest end has the last copy of its socket.
    drop(pair.1);
    drop(honest);
    // This ends the wait of the thread that closes.
    drop(receiver);
}

/// The hostile side makes every open file description that both sides share blocking, fills what it can, and takes no
/// wake-up.
#[test]
fn a_peer_that_takes_no_wake_up_blocks_nobody() {
    const POSTS: usize = 5_000;
    let Hostile {
        waking,
        pair,
        own,
        honest,
        ..
    } = hostile();
    let flags = rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::DONTWAIT;
    while rustix::net::send(&pair.0, &[0; 4_096], flags).is_ok() {}
    for shared in [&waking, &pair.0, &pair.1] {
        rustix::fs::fcntl_setfl(shared, rustix::fs::OFlags::empty()).expect("a socket");
    }
    let own = own.addresses();
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let own = Words::again(own);
        for posted in 1..=POSTS {
            own.set(ARMED, 1);
            honest.post_control(&[1; CONTROL_BYTES]).expect("a free slot");
            own.set(HEAD, posted as u64);
        }
        // There is nothing to take, and the call does not wait.
        assert!(honest.drain_event());
        done.send(honest.wakeups_sent())
    });
    let wakeups = is_done.recv_timeout(BOUND).expect("a post that never returns");
    assert_eq!(wakeups, POSTS as u64);
}

/// A thread fills all shared memory with changing noise while the honest end works.
#[test]
fn noise_in_all_words_ends_in_errors_only() {
    let seed = 0x9e37_79b9_7f4a_7c15;
    for round in 0..50 {
        let hostile = hostile();
        let mut random = fastrand::Rng::with_seed(seed + round);
        let (own, peers) = (hostile.own.addresses(), hostile.peers.addresses());
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (own, peers) = (Words::again(own), Words::again(peers));
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let offset = 8 * random.usize(0..(ENTRIES + 32 * 64) / 8);
                    let value = if random.bool() {
                        random.u64(0..40)
                    } else {
                        random.u64(..)
                    };
                    own.set(offset, value);
                    peers.set(offset, value);
                }
            });
            let honest = &*hostile.honest;
            let mut faults = 0;
            let mut out = [Completion::Notice(NOTICE); 8];
            support::eventually("the noise is noticed a few times", || {
                faults += u32::from(matches!(honest.poll(&mut out), Err(FabricError::PeerMisbehaved(_))));
                let _ = honest.arm();
                let _ = honest.post_control(&[3; CONTROL_BYTES]);
                let _ = honest.post(&[b"x"], RemoteAddress { key: 1, address: 0 }, NOTICE);
                honest.check_alive().expect("nobody ends it");
                faults > 10
            });
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}
