//! The memory of an idle connection over shm. A program of its own, as it counts all mappings of its process.

#[path = "../../fabric/tests/support/mod.rs"]
#[allow(dead_code, reason = "shared with the contract suite, which uses all of it")]
mod support;

use inet_rdma_fabric::{Completion, Parameters};
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_stream::Limits;
use support::*;

/// Memory behind the connections of this process in KiB: each page counted once, however often it is mapped.
fn resident_kib() -> u64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps").expect("procfs");
    let mut ours = false;
    let mut sum = 0;
    for line in smaps.lines() {
        // The first line of a mapping begins with its range, the lines of its numbers with a name and a colon.
        if !line.split_whitespace().next().is_some_and(|word| word.ends_with(':')) {
            ours = line.contains("memfd:inet_rdma");
        } else if let Some(kib) = line.strip_prefix("Pss:").filter(|_| ours) {
            sum += kib.trim().trim_end_matches(" kB").parse::<u64>().expect("a number");
        }
    }
    sum
}

#[test]
fn an_idle_connection_touches_few_pages() {
    let usual = Parameters {
        landing_area_bytes: 32 * 69_632,
        connection_id: 1,
        ..Parameters::of(Limits {
            ring_bytes: 262_144,
            receive_slots: 256,
            adverts: 32,
        })
    };
    assert_eq!(resident_kib(), 0);
    let (client, server) = pair_of(&ShmFabric, usual, usual);
    println!("connected: {} KiB", resident_kib());
    for number in 0..4 {
        for (from, to) in [(&client, &server), (&server, &client)] {
            from.post_control(&numbered(number)).expect("room");
            from.post(&[b"hello"], to.memory().remote_address(0), notice(5))
                .expect("room");
            assert_eq!(poll_one(&**to), Completion::Control(numbered(number)));
            assert_eq!(poll_one(&**to), Completion::Notice(notice(5)));
        }
    }
    let few = resident_kib();
    println!("after a few messages: {few} KiB");
    assert!(few > 0, "the pages were not found");
    assert!(few < 64, "{few} KiB for both sides together");
    for number in 0..1_000 {
        for (from, to) in [(&client, &server), (&server, &client)] {
            from.post_control(&numbered(number)).expect("room");
            assert_eq!(poll_one(&**to), Completion::Control(numbered(number)));
        }
    }
    let many = resident_kib();
    println!("after two thousand messages: {many} KiB");
    assert!(many < 64, "{many} KiB: queues of two sides and a page of each ring");
    drop((client, server));
    assert_eq!(resident_kib(), 0, "a mapping is left");
}
