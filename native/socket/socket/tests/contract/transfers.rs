//! Writes, notices and control messages between two ends.

use inet_rdma_fabric::{Completion, Exposed, Fabric, FabricError, FabricName, Memory, Parameters, QueuePair};
use inet_rdma_stream::{CONTROL_BYTES, Notice, RemoteAddress};

use super::support::*;

pub fn each_side_learns_the_others_hello(fabric: &dyn Fabric) {
    let mut ours = parameters();
    ours.limits.ring_bytes = 12_345;
    ours.limits.receive_slots = 17;
    ours.limits.adverts = 9;
    ours.connection_id = 0x1122_3344;
    let (client, server) = pair_of(fabric, ours, parameters());
    let seen = server.remote_hello();
    assert_eq!((seen.ring_bytes, seen.receive_slots, seen.adverts), (12_345, 17, 9));
    assert_eq!(seen.connection_id, 0x1122_3344);
    let seen = client.remote_hello();
    assert_eq!((seen.ring_bytes, seen.receive_slots, seen.adverts), (40_000, 24, 3));
    assert_eq!(seen.connection_id, 7);
    assert_eq!(client.memory().bytes(), 12_345);
}

pub fn a_write_lands_where_it_was_sent(fabric: &dyn Fabric) {
    let (client, server) = pair(fabric);
    for (from, to) in [(&client, &server), (&server, &client)] {
        let target = RemoteAddress {
            address: from.remote_hello().ring.address + 777,
            ..from.remote_hello().ring
        };
        assert_eq!(target, to.memory().remote_address(777));
        from.post(&[b"across"], target, notice(6)).expect("room");
        assert_eq!(poll_one(&**to), Completion::Notice(notice(6)));
        assert_eq!(read(to.memory(), 776, 8), b"\0across\0");
    }
}

/// Size of the landing area of [`parameters`], in whole buffers of 1,000 bytes.
const AREA_BYTES: usize = 10_000;

const DIRECT: Notice = Notice {
    direct: true,
    bytes: 10,
};

pub fn a_write_lands_in_memory_that_was_exposed_later(fabric: &dyn Fabric) {
    let (client, server) = pair(fabric);
    let area = server.exposer().expose(AREA_BYTES).expect("memory");
    assert!(area.memory().bytes() >= AREA_BYTES);
    assert_eq!(read(area.memory(), 9_980, 20), [0; 20]);
    client
        .post(&[b"0123456789"], area.memory().remote_address(9_990), DIRECT)
        .expect("room");
    assert_eq!(poll_one(&*server), Completion::Notice(DIRECT));
    assert_eq!(read(area.memory(), 9_990, 10), b"0123456789");
}

/// The areas do not overlap, and revoked memory can still be read.
pub fn memory_can_be_exposed_again(fabric: &dyn Fabric) {
    let (client, server) = pair(fabric);
    let exposer = server.exposer();
    let post = |to: &std::sync::Arc<dyn Memory>| {
        write(&*client, &[b"0123456789"], to.remote_address(7), DIRECT);
        assert_eq!(poll_one(&*server), Completion::Notice(DIRECT));
        assert_eq!(read(to, 7, 10), b"0123456789");
    };
    for _ in 0..3 {
        let areas = [4_096, 8_192].map(|bytes| exposer.expose(bytes).expect("memory"));
        let memories = areas.each_ref().map(|area| std::sync::Arc::clone(area.memory()));
        post(&memories[1]);
        assert_eq!(read(&memories[0], 7, 10), [0; 10]);
        post(&memories[0]);
        areas.into_iter().for_each(|area| area.revoke());
        for memory in &memories {
            assert_eq!(read(memory, 7, 10), b"0123456789");
            memory.discard(0..memory.bytes());
            assert!(read(memory, 0, memory.bytes()).iter().all(|byte| *byte == 0));
        }
    }
    drop((client, server));
    eventually("the queue pair is gone", || exposer.expose(4_096).is_err());
}

pub fn a_transfer_of_no_bytes_is_a_notice(fabric: &dyn Fabric) {
    let (client, server) = pair(fabric);
    let area = server.exposer().expose(AREA_BYTES).expect("memory");
    for memory in [server.memory(), area.memory()] {
        client.post(&[], memory.remote_address(0), Notice::MARK).expect("room");
        assert_eq!(poll_one(&*server), Completion::Notice(Notice::MARK));
        assert_eq!(read(memory, 0, 10), [0; 10]);
    }
}

pub fn a_write_gathers_its_pieces(fabric: &dyn Fabric) {
    let (client, server) = pair(fabric);
    let pieces: [&[u8]; 5] = [b"one", b"", b"two", b"three", b""];
    client
        .post(&pieces, server.memory().remote_address(0), notice(11))
        .expect("room");
    assert_eq!(poll_one(&*server), Completion::Notice(notice(11)));
    assert_eq!(read(server.memory(), 0, 11), b"onetwothree");
}

/// Writes of few bytes, at any place: a fabric may send few bytes in another way than many.
pub fn small_writes_land_as_large_ones_do(fabric: &dyn Fabric) {
    let (client, server) = pair(fabric);
    let memory = server.memory();
    let area = server.exposer().expose(AREA_BYTES).expect("memory");
    let bytes: Vec<u8> = (1..=72).collect();
    for count in 1..=bytes.len() {
        let ring_end = parameters().limits.ring_bytes as usize - count;
        for (memory, offset) in [(memory, 0), (memory, 3), (memory, ring_end), (area.memory(), 0)] {
            let (front, back) = bytes[..count].split_at(count / 3);
            write(&*client, &[front, back], memory.remote_address(offset), notice(count));
            assert_eq!(poll_one(&*server), Completion::Notice(notice(count)));
            assert_eq!(read(memory, offset, count), bytes[..count], "{count} at {offset}");
        }
    }
}

pub fn a_write_may_fill_the_ring(fabric: &dyn Fabric) {
    let (client, server) = pair(fabric);
    let bytes: Vec<u8> = (0..40_000u32).map(|i| (i % 251) as u8).collect();
    client
        .post(&[&bytes], server.memory().remote_address(0), notice(40_000))
        .expect("room");
    assert_eq!(poll_one(&*server), Completion::Notice(notice(40_000)));
    assert_eq!(read(server.memory(), 0, 40_000), bytes);
}

/// Such a write is refused on this side, or by the peer's device, which ends the connection. Over TCP the peer's poll
/// acts as its device.
pub fn writes_outside_of_the_peers_memory_go_nowhere(fabric: &dyn Fabric) {
    let ring_bytes = parameters().limits.ring_bytes as usize;
    type Wrong = fn(RemoteAddress) -> RemoteAddress;
    let wrong: [(Wrong, &str); 5] = [
        (
            |right| at(right, right.address + 40_000 / 4096 * 4096 + 4096),
            "after the end",
        ),
        (|right| at(right, right.address.wrapping_sub(8)), "before the ring"),
        (|right| at(right, u64::MAX - 3), "wrapping round the address space"),
        (
            |right| RemoteAddress {
                key: right.key.wrapping_add(77),
                ..right
            },
            "in a region that does not exist",
        ),
        (
            |right| RemoteAddress {
                key: right.key + (1 << 32),
                ..right
            },
            "with a key that no device has",
        ),
    ];
    for (target, what) in wrong {
        let (client, server) = pair(fabric);
        let posted = client.post(&[&[b'x'; 10]], target(server.memory().remote_address(0)), notice(10));
        match posted {
            Err(FabricError::PeerMisbehaved(_)) => {
                // Nothing was sent, and the connection still works.
                client.post_control(&[9; CONTROL_BYTES]).expect("room");
                assert_eq!(poll_one(&*server), Completion::Control([9; CONTROL_BYTES]), "{what}");
            }
            Err(other) => panic!("{what}: {other}"),
            Ok(()) => eventually(what, || {
                let _ended = server.poll(&mut []);
                client.poll(&mut [Completion::Notice(NOTICE)]).is_err() || client.check_alive().is_err()
            }),
        }
        assert!(
            read(server.memory(), 0, ring_bytes).iter().all(|byte| *byte == 0),
            "{what}"
        );
    }
}

fn at(right: RemoteAddress, address: u64) -> RemoteAddress {
    RemoteAddress { address, ..right }
}

pub fn order_is_kept_among_writes_and_controls(fabric: &dyn Fabric) {
    let (client, server) = pair(fabric);
    let slots = u64::from(client.remote_hello().receive_slots);
    let mut out = [Completion::Notice(NOTICE); 5];
    let (mut sent, mut got) = (0u64, 0u64);
    let messages = times(fabric, 10_000);
    while got < messages {
        while sent < messages && sent - got < slots {
            if sent % 3 == 0 {
                client.post_control(&numbered(sent)).expect("a free slot");
            } else {
                let target = server.memory().remote_address((sent % slots) as usize * 8);
                write(&*client, &[&sent.to_le_bytes()], target, notice(8 + sent as usize % 7));
            }
            sent += 1;
        }
        let some = poll_some(&*server, &mut out);
        for completion in &out[..some] {
            match completion {
                Completion::Control(bytes) => assert_eq!((*bytes, 0), (numbered(got), got % 3)),
                Completion::Notice(seen) => {
                    assert_eq!(*seen, notice(8 + got as usize % 7));
                    assert_eq!(read(server.memory(), (got % slots) as usize * 8, 8), got.to_le_bytes());
                }
            }
            got += 1;
        }
    }
    assert_eq!(server.poll(&mut out).expect("an honest peer"), 0);
}

pub fn a_poll_takes_no_more_than_asked_for(fabric: &dyn Fabric) {
    let (client, server) = pair(fabric);
    for number in 0..5 {
        client.post_control(&numbered(number)).expect("room");
    }
    let mut got = Vec::new();
    let mut out = [Completion::Notice(NOTICE); 2];
    while got.len() < 5 {
        let some = poll_some(&*server, &mut out);
        got.extend_from_slice(&out[..some]);
    }
    assert_eq!(server.poll(&mut []).expect("an honest peer"), 0);
    assert_eq!(
        got,
        (0..5)
            .map(|number| Completion::Control(numbered(number)))
            .collect::<Vec<_>>()
    );
}

pub fn a_full_queue_is_an_error_and_not_a_loss(fabric: &dyn Fabric) {
    let (client, server) = pair(fabric);
    let mut sent = 0u64;
    // Over TCP the system's buffers are part of the queue: up to 10 MB in 44-byte frames (tcp_rmem, tcp_wmem).
    let most = if fabric.name() == FabricName::Tcp {
        1_000_000
    } else {
        1_000
    };
    // More messages than the peer has slots for, which only a test sends.
    let full = loop {
        match client.post_control(&numbered(sent)) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent <= most, "a queue without end");
    };
    assert!(matches!(full, FabricError::QueueFull), "{full}");
    assert!(sent >= 24, "the peer promised 24 slots, {sent} could be used");
    let mut out = [Completion::Notice(NOTICE)];
    let mut got = 0;
    let mut is_alive = true;
    eventually("all has arrived, or the connection has ended", || {
        is_alive = is_alive && server.check_alive().is_ok();
        // Messages without a place in the queue go out when this side polls.
        let _ = client.poll(&mut []);
        while let Ok(1) = server.poll(&mut out) {
            assert_eq!(out[0], Completion::Control(numbered(got)));
            got += 1;
        }
        got == sent || !is_alive
    });
    if got < sent {
        // iWARP has no "not ready": a message without a receive ends the connection.
        println!("the connection ended after {got} of {sent} messages");
        return;
    }
    eventually("the slots are free again", || {
        client.post_control(&numbered(sent)).is_ok()
    });
    assert_eq!(poll_one(&*server), Completion::Control(numbered(sent)));
}

/// Slots of the peer of [`busy_pair`], and its memory. An emulated device takes hundreds of milliseconds to send that
/// much.
const PEER_SLOTS: u64 = 250;
const PEER_AREA_BYTES: usize = 16 << 20;

/// The side that connects, the side that accepts, and much memory of that side.
type BusyPair = (Box<dyn QueuePair>, Box<dyn QueuePair>, Box<dyn Exposed>);

/// A pair whose connecting side has few receive slots and its peer has many. What the connecting side posts waits in
/// its send queue, behind a transfer of `bytes` that the device has yet to send.
fn busy_pair(fabric: &dyn Fabric, bytes: usize) -> BusyPair {
    let with_slots = |receive_slots| {
        let mut unequal = parameters();
        unequal.limits.receive_slots = receive_slots;
        unequal.landing_area_bytes = PEER_AREA_BYTES as u32;
        unequal
    };
    let (client, server) = pair_of(fabric, with_slots(5), with_slots(PEER_SLOTS as u16));
    let area = server.exposer().expose(PEER_AREA_BYTES).expect("memory");
    client.prepare_staging(PEER_AREA_BYTES).expect("memory");
    client.replace_staging();
    client
        .post(&[&vec![b'x'; bytes]], area.memory().remote_address(0), notice(bytes))
        .expect("a fresh queue");
    (client, server, area)
}

/// The peer's memory is many times as large as this side's staging memory, which is used again as soon as the device
/// allows.
pub fn posted_bytes_arrive_though_their_memory_is_used_again(fabric: &dyn Fabric) {
    const BLOCK: usize = 36_000;
    const BLOCKS: usize = 20;
    let with_area = Parameters {
        landing_area_bytes: (BLOCK * BLOCKS) as u32,
        ..parameters()
    };
    let (client, server) = pair_of(fabric, parameters(), with_area);
    let area = server.exposer().expose(BLOCK * BLOCKS).expect("memory");
    let fill = |round: usize, block: usize| vec![(round * BLOCKS + block) as u8; BLOCK];
    for round in 0..40 {
        for block in 0..BLOCKS {
            let target = area.memory().remote_address(block * BLOCK);
            write(&*client, &[&fill(round, block)], target, notice(BLOCK));
            while server
                .poll(&mut [Completion::Notice(NOTICE); 8])
                .expect("an honest peer")
                > 0
            {}
        }
        let last = [round as u8; CONTROL_BYTES];
        client.post_control(&last).expect("room");
        while poll_one(&*server) != Completion::Control(last) {}
        for block in 0..BLOCKS {
            let arrived = read(area.memory(), block * BLOCK, BLOCK);
            assert!(arrived == fill(round, block), "block {block} of round {round}");
        }
    }
}

/// Transfers under way are sent from the old memory, transfers posted after the change from the new one.
pub fn staging_memory_is_replaced_while_transfers_are_under_way(fabric: &dyn Fabric) {
    const BLOCK: usize = 8_000;
    let (client, server) = pair(fabric);
    let blocks: Vec<Vec<u8>> = (1..=4u8).map(|number| vec![number; BLOCK]).collect();
    let post = |number: usize| {
        let target = server.memory().remote_address(number * BLOCK);
        write(&*client, &[&blocks[number]], target, notice(BLOCK));
    };
    let mut posted = 0;
    for bytes in [100_000, 40_000] {
        post(posted);
        client.prepare_staging(bytes).expect("memory");
        client.replace_staging();
        post(posted + 1);
        posted += 2;
    }
    for _ in 0..posted {
        assert_eq!(poll_one(&*server), Completion::Notice(notice(BLOCK)));
    }
    assert_eq!(read(server.memory(), 0, 4 * BLOCK), blocks.concat());
    eventually("the old memory is given back", || client.release_staging());
}

/// Polls until this many controls, in order, and this many notices have come.
fn expect_all(client: &dyn QueuePair, server: &dyn QueuePair, controls: u64, notices: u64) {
    let mut out = [Completion::Notice(NOTICE); 16];
    let mut seen = (0, 0);
    eventually("all has arrived", || {
        // Controls for which the send queue has no place go out when this side polls.
        client.poll(&mut []).expect("an honest peer");
        let some = server.poll(&mut out).expect("an honest peer");
        for completion in &out[..some] {
            match completion {
                Completion::Control(bytes) => {
                    assert_eq!(*bytes, numbered(seen.0));
                    seen.0 += 1;
                }
                Completion::Notice(_) => seen.1 += 1,
            }
        }
        seen == (controls, notices)
    });
}

pub fn the_peers_slots_say_how_many_controls_may_be_posted(fabric: &dyn Fabric) {
    let (client, server, _area) = busy_pair(fabric, PEER_AREA_BYTES);
    let controls = PEER_SLOTS - 1;
    for number in 0..controls {
        client.post_control(&numbered(number)).expect("a slot of the peer's");
    }
    expect_all(&*client, &*server, controls, 1);
}

pub fn controls_leave_a_transfer_the_room_that_it_was_offered(fabric: &dyn Fabric) {
    let (client, server, area) = busy_pair(fabric, PEER_AREA_BYTES / 4 * 3);
    let room = client.write_room().expect("a quarter of the memory is free");
    let bytes = room.bytes().min(PEER_AREA_BYTES / 4);
    // Enough to fill the send queue of an iWARP device, which has 20 entries for 5 receive slots.
    let controls = 18;
    for number in 0..controls {
        client.post_control(&numbered(number)).expect("a slot of the peer's");
    }
    client
        .post_write(
            room,
            &[&vec![b'y'; bytes]],
            area.memory().remote_address(0),
            notice(bytes),
        )
        .expect("the room that was offered");
    expect_all(&*client, &*server, controls, 2);
}
