//! How connections begin and end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use inet_rdma_fabric::{Answer, Completion, Fabric, FabricError, FabricName, ListenOptions, Transport};

use super::support::*;

pub fn a_disconnect_is_seen_by_the_peer(fabric: &dyn Fabric) {
    for by_client in [true, false] {
        let (client, server) = pair(fabric);
        let (here, there) = if by_client {
            (&client, &server)
        } else {
            (&server, &client)
        };
        assert!(here.check_alive().is_ok() && there.check_alive().is_ok());
        assert!(there.arm().expect("an honest peer"));
        assert!(!readable_within(there.liveness_fd(), Duration::ZERO));
        here.disconnect();
        assert!(readable_within(there.liveness_fd(), BOUND));
        assert_eq!(await_end(&**there), FabricError::PeerGone);
        assert!(matches!(there.check_alive(), Err(FabricError::PeerGone)));
        assert!(here.check_alive().is_err());
        assert!(here.post_control(&numbered(0)).is_err(), "it ended here");
    }
}

pub fn the_accepting_side_may_be_the_first_to_send(fabric: &dyn Fabric) {
    let mut listener = listen(fabric, parameters());
    let to = at(fabric, listener.port());
    for round in 0..30 {
        std::thread::scope(|scope| {
            let connecting = scope.spawn(move || fabric.connect(to, &parameters(), BOUND).expect("a connection"));
            let server = accept(&mut *listener).expect("a connection");
            server.post_control(&numbered(round)).expect("room");
            let target = server.remote_hello().ring;
            server.post(&[b"across"], target, notice(6)).expect("room");
            let client = connecting.join().expect("no panic");
            assert_eq!(poll_one(&*client), Completion::Control(numbered(round)));
            assert_eq!(poll_one(&*client), Completion::Notice(notice(6)));
            client.post_control(&numbered(round)).expect("room");
            assert_eq!(poll_one(&*server), Completion::Control(numbered(round)));
        });
    }
}

/// Shared memory and iWARP have no acknowledgement timeout.
pub fn each_side_has_the_ack_timeout_that_it_asks_for(fabric: &dyn Fabric) {
    let asking = |milliseconds: Option<u64>| {
        let mut ours = parameters();
        ours.network.ack_timeout = milliseconds.map(Duration::from_millis);
        ours.network.type_of_service = Some(0x20);
        ours
    };
    let (client, server) = pair_of(fabric, asking(Some(100)), asking(Some(5_000)));
    client.post_control(&numbered(1)).expect("room");
    assert_eq!(poll_one(&*server), Completion::Control(numbered(1)));
    let timeouts = [&client, &server].map(|end| end.capabilities().ack_timeout);
    if client.capabilities().transport == Transport::InfiniBand {
        let unit = Duration::from_nanos(4_096);
        assert_eq!(timeouts, [Some(unit * (1 << 15)), Some(unit * (1 << 21))]);
        let (client, _server) = pair_of(fabric, asking(None), asking(None));
        assert_ne!(client.capabilities().ack_timeout, timeouts[0]);
    } else {
        assert_eq!(timeouts, [None, None]);
    }
}

/// The peer neither polls nor posts. Skips fabrics without a device that answers by itself.
pub fn a_peer_that_does_nothing_answers(fabric: &dyn Fabric) {
    let (client, server) = pair(fabric);
    let is_asked = matches!(
        client.capabilities().transport,
        Transport::InfiniBand | Transport::Iwarp
    );
    let first = if is_asked { Answer::Arrived } else { Answer::NotAsked };
    assert_eq!(client.ask(), first, "nothing was asked before");
    for _ in 0..5 {
        // The last question is under way: a later call finds the answer.
        let start = Instant::now();
        while client.ask() == Answer::Awaited {
            assert!(start.elapsed() < BOUND);
            std::thread::yield_now();
        }
    }
    assert_eq!(
        server.poll(&mut [Completion::Control(numbered(0))]),
        Ok(0),
        "the peer's user sees nothing"
    );
    // Nothing else is held up.
    client.post_control(&numbered(1)).expect("room");
    assert_eq!(poll_one(&*server), Completion::Control(numbered(1)));
    client.disconnect();
    assert_eq!(client.ask(), Answer::NotAsked);
}

pub fn disconnecting_twice_is_once(fabric: &dyn Fabric) {
    let (client, server) = pair(fabric);
    client.disconnect();
    client.disconnect();
    server.disconnect();
    client.disconnect();
    assert!(matches!(client.check_alive(), Err(FabricError::PeerGone)));
    assert!(matches!(server.check_alive(), Err(FabricError::PeerGone)));
}

pub fn dropping_a_queue_pair_disconnects(fabric: &dyn Fabric) {
    let (client, server) = pair(fabric);
    drop(client);
    assert_eq!(await_end(&*server), FabricError::PeerGone);
    assert!(matches!(server.check_alive(), Err(FabricError::PeerGone)));
}

pub fn an_end_before_the_queue_is_armed_is_found(fabric: &dyn Fabric) {
    let (client, server) = pair(fabric);
    drop(client);
    eventually("the end is seen", || server.check_alive().is_err());
    assert_eq!(await_end(&*server), FabricError::PeerGone);
    let mut out = [Completion::Notice(NOTICE)];
    assert!(!matches!(server.poll(&mut out), Ok(1..)), "nothing comes after the end");
    assert_eq!(await_end(&*server), FabricError::PeerGone, "it stays so");
}

/// All receives are used up, so that no flushed receive can report the end.
pub fn an_end_behind_a_full_receive_queue_is_found(fabric: &dyn Fabric) {
    for is_armed in [true, false] {
        let (client, server) = pair(fabric);
        if is_armed {
            assert!(server.arm().expect("an honest peer"));
        }
        let slots = u64::from(server.remote_hello().receive_slots);
        for number in 0..slots {
            client.post_control(&numbered(number)).expect("a slot for each");
        }
        drop(client);
        eventually("the end is seen", || server.check_alive().is_err());
        for number in 0..slots {
            assert_eq!(poll_one(&*server), Completion::Control(numbered(number)));
        }
        assert_eq!(await_end(&*server), FabricError::PeerGone);
    }
}

pub fn many_end_at_once(fabric: &dyn Fabric) {
    const ENDS: usize = 40;
    let mut listener = listen(fabric, parameters());
    let (clients, servers): (Vec<_>, Vec<_>) = (0..ENDS).map(|_| join(fabric, &mut *listener)).unzip();
    for server in &servers {
        assert!(server.arm().expect("an honest peer"));
    }
    drop(clients);
    for server in &servers {
        assert_eq!(await_end(&**server), FabricError::PeerGone);
    }
}

pub fn completions_before_the_end_can_be_polled(fabric: &dyn Fabric) {
    let (client, server) = pair(fabric);
    client
        .post(&[b"last words"], server.memory().remote_address(5), notice(10))
        .expect("room");
    client.post_control(&numbered(9)).expect("room");
    drop(client);
    eventually("the end is seen", || server.check_alive().is_err());
    assert_eq!(poll_one(&*server), Completion::Notice(notice(10)));
    assert_eq!(poll_one(&*server), Completion::Control(numbered(9)));
    assert_eq!(read(server.memory(), 5, 10), b"last words");
}

pub fn memory_outlives_its_queue_pair(fabric: &dyn Fabric) {
    let (client, server) = pair(fabric);
    client
        .post(&[b"keep me"], server.memory().remote_address(0), notice(7))
        .expect("room");
    assert_eq!(poll_one(&*server), Completion::Notice(notice(7)));
    let memory = Arc::clone(server.memory());
    drop((client, server));
    assert_eq!(read(&memory, 0, 7), b"keep me");
}

pub fn a_port_without_a_listener_refuses(fabric: &dyn Fabric) {
    // Port 9 is below the range of any-port listeners, and no test searches there.
    let refused = fabric.connect(at(fabric, 9), &parameters(), BOUND).map(|_| ());
    assert!(matches!(refused, Err(FabricError::Refused(9))), "{refused:?}");
}

/// Shm has no addresses, and looks at none.
pub fn a_connection_begins_at_the_own_address_that_is_given(fabric: &dyn Fabric) {
    let mut listener = listen(fabric, parameters());
    let to = at(fabric, listener.port());
    let server = std::thread::scope(|scope| {
        let connecting = scope.spawn(move || fabric.connect_from(Some(to.ip()), to, &parameters(), BOUND));
        let server = accept(&mut *listener).expect("a connection");
        let client = connecting.join().expect("no panic").expect("a connection");
        assert!(client.addresses().is_none_or(|(own, _)| own.ip() == to.ip()));
        server
    });
    assert!(server.addresses().is_none_or(|(_, peer)| peer.ip() == to.ip()));
    if server.addresses().is_none() {
        return;
    }
    // An address for documentation: no device has it, so the peer sees no connection.
    let nobodys = Some([192, 0, 2, 1].into());
    let refused = fabric.connect_from(nobodys, to, &parameters(), BOUND).map(|_| ());
    assert!(matches!(refused, Err(FabricError::NoRoute(_))), "{refused:?}");
}

pub fn a_listener_that_never_answers_times_out(fabric: &dyn Fabric) {
    let listener = listen(fabric, parameters());
    let outcome = fabric
        .connect(at(fabric, listener.port()), &parameters(), Duration::from_millis(50))
        .map(|_| ());
    assert!(matches!(outcome, Err(FabricError::TimedOut)), "{outcome:?}");
}

pub fn a_range_of_ports_is_searched(fabric: &dyn Fabric) {
    // Search for three free ports in a row: other tests listen, too.
    let mut first = 20_000 + (std::process::id() % 20_000) as u16;
    let on = |first, last| {
        fabric.listen(&ListenOptions {
            ports: first..=last,
            ..options(parameters())
        })
    };
    let listeners = loop {
        let all: Result<Vec<_>, _> = (first..first + 3).map(|port| on(port, port)).collect();
        match all {
            Ok(all) => break all,
            Err(_) => first += 3,
        }
    };
    let last = first + 2;
    let taken = on(first, last).map(|_| ());
    assert!(
        matches!(taken, Err(FabricError::PortsTaken { first: a, last: z }) if (a, z) == (first, last)),
        "{taken:?}"
    );
    assert_eq!(listeners[1].port(), first + 1);
    drop(listeners);
    assert_eq!(on(first, last).expect("all are free again").port(), first);
}

pub fn a_port_is_free_again_when_its_listener_is_gone(fabric: &dyn Fabric) {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // A range of its own, so that no other test takes the port in between.
    let first = 1_024 + (std::process::id() % 1_000) as u16 * 16 + 2 * NEXT.fetch_add(1, Ordering::Relaxed);
    let on = |ports| {
        fabric.listen(&ListenOptions {
            ports,
            ..options(parameters())
        })
    };
    let mut listener = on(first..=first + 1).expect("a free port");
    let port = listener.port();
    let ends = join(fabric, &mut *listener);
    drop(listener);
    drop(ends);
    assert_eq!(on(port..=port).expect("the same port").port(), port);
}

pub fn connections_outlive_their_listener(fabric: &dyn Fabric) {
    let mut listener = listen(fabric, parameters());
    let (client, server) = join(fabric, &mut *listener);
    drop(listener);
    client.post_control(&numbered(3)).expect("room");
    assert_eq!(poll_one(&*server), Completion::Control(numbered(3)));
    assert!(client.check_alive().is_ok() && server.check_alive().is_ok());
}

pub fn many_connect_at_once(fabric: &dyn Fabric) {
    // All of them poll: an emulated processor has too little time for 40.
    let clients: u32 = if fabric.name() == FabricName::Verbs { 12 } else { 40 };
    let mut ours = options(parameters());
    ours.backlog = 64;
    let mut listener = fabric.listen(&ours).expect("a free port");
    let to = at(fabric, listener.port());
    std::thread::scope(|scope| {
        for client in 0..clients {
            scope.spawn(move || {
                let mut ours = parameters();
                ours.connection_id = client;
                let client = u64::from(client);
                let queue_pair = fabric.connect(to, &ours, BOUND).expect("a connection");
                queue_pair.post_control(&numbered(client)).expect("room");
                assert_eq!(poll_one(&*queue_pair), Completion::Control(numbered(client + 1)));
            });
        }
        let mut ends = Vec::new();
        let mut seen = Vec::new();
        for _ in 0..clients {
            let end = accept(&mut *listener).expect("a connection");
            let client = u64::from(end.remote_hello().connection_id);
            assert_eq!(poll_one(&*end), Completion::Control(numbered(client)));
            end.post_control(&numbered(client + 1)).expect("room");
            seen.push(client);
            ends.push(end);
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..u64::from(clients)).collect::<Vec<_>>());
    });
}
