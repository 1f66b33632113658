//! Connections that end while bytes wait at either side.

#[path = "../../../core/fabric/tests/support/mod.rs"]
#[allow(dead_code, reason = "shared with the contract suite, which uses all of it")]
mod support;

use inet_rdma_fabric::{Completion, FabricError, QueuePair};
use inet_rdma_fabric_tcp::TcpFabric;
use support::*;

const BLOCK: usize = 30_000;

/// Posts blocks until the socket and the backlog are full. Returns their number.
fn fill(sender: &dyn QueuePair) -> usize {
    let target = sender.remote_hello().ring;
    let block = vec![b'x'; BLOCK];
    let mut posted = 0;
    while room_bytes(sender) >= BLOCK {
        sender
            .post(&[&block], target, notice(BLOCK))
            .expect("the room that was offered");
        posted += 1;
    }
    posted
}

/// Takes all blocks up to the end. Returns their number.
fn drain(receiver: &dyn QueuePair) -> usize {
    let mut out = [Completion::Notice(NOTICE); 8];
    let mut came = 0;
    eventually("the end has come", || match receiver.poll(&mut out) {
        Ok(some) => {
            assert!(
                out[..some]
                    .iter()
                    .all(|completion| *completion == Completion::Notice(notice(BLOCK)))
            );
            came += some;
            false
        }
        Err(error) => {
            assert_eq!(error, FabricError::PeerGone);
            true
        }
    });
    came
}

#[test]
fn bytes_that_wait_at_the_end_arrive() {
    for by_dropping in [true, false] {
        let (client, server) = pair(&TcpFabric);
        let posted = fill(&*client);
        client.disconnect();
        let client = if by_dropping { None } else { Some(client) };
        assert_eq!(drain(&*server), posted);
        drop(client);
    }
}

/// The closing side still reads bytes of the peer, so that no reset destroys its own bytes under way.
#[test]
fn bytes_that_the_peer_sends_meanwhile_destroy_none_under_way() {
    let (client, server) = pair(&TcpFabric);
    let (posted, against) = (fill(&*client), fill(&*server));
    assert!(against > 0);
    drop(client);
    assert_eq!(drain(&*server), posted);
}

#[test]
fn both_may_end_at_once_with_all_under_way() {
    let (client, server) = pair(&TcpFabric);
    fill(&*client);
    fill(&*server);
    client.disconnect();
    server.disconnect();
    for end in [client, server] {
        assert_eq!(end.poll(&mut [Completion::Notice(NOTICE)]), Err(FabricError::PeerGone));
    }
}

/// New room makes an event for a writer that found none, though nothing is received.
#[test]
fn room_to_write_makes_an_event() {
    let (client, server) = pair(&TcpFabric);
    let posted = fill(&*client);
    while room_bytes(&*client) == 0 {
        let is_armed = client.arm().expect("an honest peer");
        let taken = server
            .poll(&mut [Completion::Notice(NOTICE); 8])
            .expect("an honest peer");
        if is_armed && taken == 0 {
            assert!(readable_within(client.event_fd(), BOUND), "room makes no event");
        }
        client.drain_event();
        assert_eq!(client.poll(&mut []), Ok(0));
    }
    assert!(posted > 0);
}

/// A connection that was armed before its socket was full sends the rest by its own event.
#[test]
fn a_backlog_behind_arming_is_sent_by_an_event() {
    let (client, server) = pair(&TcpFabric);
    assert!(client.arm().expect("an honest peer"));
    let posted = fill(&*client);
    client.post_control(&numbered(1)).expect("room");
    std::thread::scope(|scope| {
        // As a polling thread does: it polls only after an event.
        let serving = scope.spawn(|| {
            loop {
                assert!(readable_within(client.event_fd(), BOUND), "a wake-up was lost");
                client.drain_event();
                let mut out = [Completion::Notice(NOTICE)];
                while client.poll(&mut out).expect("an honest peer") > 0 {
                    if out[0] == Completion::Control(numbered(2)) {
                        return;
                    }
                }
                while !client.arm().expect("an honest peer") {
                    if client.poll(&mut out).expect("an honest peer") > 0 {
                        assert_eq!(out[0], Completion::Control(numbered(2)));
                        return;
                    }
                }
            }
        });
        for _ in 0..posted {
            assert_eq!(poll_one(&*server), Completion::Notice(notice(BLOCK)));
        }
        assert_eq!(poll_one(&*server), Completion::Control(numbered(1)));
        server.post_control(&numbered(2)).expect("room");
        serving.join().expect("no panic");
    });
}
