//! The self-test of queue pairs, over devices that do not do what they say: a library that is loaded before all others
//! (`lying_device`, an example of `inet_rdma_verbs`) lies for them. INET_RDMA_TEST_LYING is its path, and
//! INET_RDMA_TEST_VERBS an address of a device.
//!
//! `under_a_profile` runs where that library makes the devices of this process those of a provider, and
//! INET_RDMA_TEST_FINDS says what the self-test has to find there.

#[allow(dead_code, reason = "the contract of fabrics uses the rest")]
#[path = "../../fabric/tests/support/mod.rs"]
mod support;

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use inet_rdma_fabric::{Completion, Fabric, FabricError, Listener, QueuePair, Transport, Tried};
use inet_rdma_fabric_verbs::VerbsFabric;
use support::*;

const SHIM: &str = "INET_RDMA_TEST_LYING";
const LIE: &str = "LYING_DEVICE";
/// Where the other process listens.
const PORT: &str = "INET_RDMA_TEST_LYING_PORT";

/// A process whose devices lie runs `child`, one of the tests that are ignored here. None: there is no device.
fn start(lie: &str, child: &str, port: u16) -> Option<Child> {
    if !is_here(&VerbsFabric) {
        return None;
    }
    let shim = std::env::var(SHIM).expect("the library that lies");
    let program = std::env::current_exe().expect("this program");
    let started = Command::new(program)
        .args([child, "--exact", "--ignored", "--nocapture"])
        .env("LD_PRELOAD", shim)
        .env(LIE, lie)
        .env(PORT, port.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    Some(started.expect("a process"))
}

fn finish(lie: &str, child: Child) {
    let output = child.wait_with_output().expect("its output");
    assert!(
        output.status.success(),
        "{lie}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Both sides lie; what they have to find is in `child`.
fn both_lie(lie: &str) {
    if let Some(child) = start(lie, "child_of_both", 0) {
        finish(lie, child);
    }
}

#[test]
fn inline_bytes_that_are_read_from_memory_are_found() {
    both_lie("inline_ignored");
}

#[test]
fn inline_bytes_that_are_replaced_are_found() {
    both_lie("inline_replaced");
}

#[test]
fn inline_bytes_that_are_refused_after_they_were_granted_are_found() {
    both_lie("inline_refused");
}

#[test]
fn bytes_of_a_second_place_that_are_lost_are_found() {
    both_lie("second_place_lost");
}

#[test]
fn requests_of_two_places_that_are_refused_are_found() {
    both_lie("second_place_refused");
}

#[test]
fn immediates_that_are_zero_are_found() {
    both_lie("immediates_zero");
}

#[test]
fn immediates_that_are_missing_are_found() {
    both_lie("immediates_missing");
}

#[test]
fn binds_that_are_refused_are_found() {
    both_lie("windows_refused");
}

#[test]
fn binds_that_do_nothing_are_found() {
    both_lie("windows_unbound");
}

#[test]
fn invalidations_that_do_nothing_are_found() {
    both_lie("windows_stay");
}

#[test]
fn writes_of_other_bytes_are_found() {
    both_lie("writes_changed");
}

#[test]
fn sends_without_memory_are_found() {
    both_lie("sends_refused");
}

#[test]
fn reads_that_are_refused_are_found() {
    both_lie("reads_refused");
}

#[test]
fn reads_that_never_complete_are_found() {
    both_lie("reads_dropped");
}

#[test]
fn reads_that_the_peer_ends_by_a_terminate_are_found() {
    both_lie("reads_forbidden");
}

/// What a device with this lie fails; nothing: the lie is about something that this kind of device does not have.
fn failed(lie: &str, is_iwarp: bool) -> Vec<Tried> {
    match lie {
        "inline_ignored" | "inline_replaced" | "inline_refused" => vec![Tried::Inline],
        "second_place_lost" | "second_place_refused" => vec![Tried::Gather],
        "writes_changed" => vec![Tried::Gather, Tried::Writes],
        "sends_refused" => vec![Tried::Sends],
        "reads_refused" | "reads_dropped" | "reads_forbidden" if is_iwarp => vec![Tried::Reads],
        "reads_refused" | "reads_dropped" | "reads_forbidden" => vec![],
        _ if is_iwarp => vec![],
        "immediates_zero" | "immediates_missing" => vec![Tried::Immediates],
        "windows_refused" | "windows_unbound" | "windows_stay" => vec![Tried::Windows],
        other => panic!("{other}: no such lie"),
    }
}

type Outcome = Result<Box<dyn QueuePair>, FabricError>;

/// The time of an attempt. It is over before a read that never completes is found.
fn bound() -> Duration {
    match std::env::var(LIE).as_deref() {
        Ok("reads_dropped") => BOUND / 6,
        _ => BOUND,
    }
}

/// One attempt: the outcome of the side that connects, and of the other one.
fn attempt(listener: &mut dyn Listener) -> (Outcome, Outcome) {
    let to = at(&VerbsFabric, listener.port());
    std::thread::scope(|scope| {
        let connecting = scope.spawn(move || VerbsFabric.connect(to, &parameters(), bound()));
        let accepted = accept(listener);
        (connecting.join().expect("no panic"), accepted)
    })
}

/// The outcome of a side whose own device lies.
fn check_own(outcome: &Outcome, failed: &[Tried]) {
    match outcome {
        Err(FabricError::SelfTest {
            device: Some(device),
            tried,
            is_avoidable,
        }) => {
            assert!(!device.is_empty());
            assert_eq!(tried, failed);
            assert_eq!(*is_avoidable, failed.iter().all(|tried| tried.is_avoidable()));
        }
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("the lie was not found"),
    }
}

#[test]
#[ignore = "runs in a process of its own, started by other tests"]
fn child_of_both() {
    let lie = std::env::var(LIE).expect("a lie");
    let mut listener = listen(&VerbsFabric, parameters());
    let (mut client, mut server) = attempt(&mut *listener);
    if lie == "reads_forbidden" && client.is_err() {
        // So ends a connection whose peer is gone: it is no fault of the device yet.
        println!("{:?}, {:?}", client.err(), server.err());
        let (client_without, server_without) = attempt(&mut *listener);
        talk(
            &*client_without.expect("a connection without reads"),
            &*server_without.expect("the same"),
        );
        (client, server) = attempt(&mut *listener);
    }
    if let (Ok(client), Ok(server)) = (&client, &server) {
        let is_iwarp = client.capabilities().transport == Transport::Iwarp;
        assert_eq!(failed(&lie, is_iwarp), [], "{lie} was not found");
        talk(&**client, &**server);
        return;
    }
    // Which kind of device it is does not show; a lie that is none over one kind was found, so it is of the other.
    let failed = [false, true]
        .into_iter()
        .map(|is_iwarp| failed(&lie, is_iwarp))
        .find(|failed| !failed.is_empty())
        .expect("a lie of one kind");
    check_own(&client, &failed);
    let refused = server.err().expect("the connecting side refuses it");
    let (client, server) = attempt(&mut *listener);
    let left: Vec<Tried> = failed.into_iter().filter(|tried| !tried.is_avoidable()).collect();
    if left.is_empty() {
        println!("{refused}");
        talk(&*client.expect("a connection without it"), &*server.expect("the same"));
    } else {
        check_own(&client, &left);
    }
}

/// What the self-test has to find: nothing, `no_rc` (there is no queue pair to be tested), or the names of
/// [`Tried::is_avoidable`] faults.
const FINDS: &str = "INET_RDMA_TEST_FINDS";

#[test]
#[ignore = "runs over devices of a profile: test/vm/driver"]
fn under_a_profile() {
    let finds = std::env::var(FINDS).unwrap_or_default();
    let mut listener = listen(&VerbsFabric, parameters());
    if finds == "no_rc" {
        let refused = VerbsFabric.connect(at(&VerbsFabric, listener.port()), &parameters(), BOUND);
        println!("{}", refused.err().expect("no queue pair"));
        return;
    }
    let expected: Vec<Tried> = finds
        .split(',')
        .filter(|name| !name.is_empty())
        .map(|name| match name {
            "inline" => Tried::Inline,
            "gather" => Tried::Gather,
            "windows" => Tried::Windows,
            other => panic!("{FINDS}: there is no {other}"),
        })
        .collect();
    if !expected.is_empty() {
        let (client, server) = attempt(&mut *listener);
        check_own(&client, &expected);
        println!("{}", server.err().expect("the connecting side refuses it"));
    }
    let (client, server) = attempt(&mut *listener);
    let (client, server) = (client.expect("a connection"), server.expect("the same"));
    println!("{:?}", client.capabilities());
    talk(&*client, &*server);
}

/// Bytes of all sizes, round the end of the staging memory.
fn talk(client: &dyn QueuePair, server: &dyn QueuePair) {
    for (number, bytes) in [1, 40, 200, 9_001, 9_001, 9_001, 9_001, 9_001, 9_001, 20]
        .into_iter()
        .enumerate()
    {
        let sent: Vec<u8> = (0..bytes).map(|byte| (byte + number) as u8).collect();
        let (first, second) = sent.split_at(bytes / 3);
        write(client, &[first, second], client.remote_hello().ring, notice(bytes));
        assert_eq!(poll_one(server), Completion::Notice(notice(bytes)));
        assert_eq!(read(server.memory(), 0, bytes), sent, "transfer {number}");
        server.post_control(&numbered(number as u64)).expect("room");
        assert_eq!(poll_one(client), Completion::Control(numbered(number as u64)));
    }
}

/// The device of the side that connects lies, this side's does not.
fn peer_lies(lie: &str, expected: Tried) {
    let mut listener = listen_if_here();
    let Some(listener) = &mut listener else { return };
    let Some(child) = start(lie, "child_that_connects", listener.port()) else {
        return;
    };
    let outcome = accept(&mut **listener);
    let is_iwarp = outcome
        .as_ref()
        .is_ok_and(|accepted| accepted.capabilities().transport == Transport::Iwarp);
    if failed(lie, is_iwarp).is_empty() {
        finish(lie, child);
        return;
    }
    match outcome {
        Err(FabricError::SelfTest {
            device: None,
            tried,
            is_avoidable: true,
        }) => assert_eq!(tried, [expected]),
        // The peer's end may come before its device has refused the write into the window.
        Err(FabricError::PeerGone) if expected == Tried::Windows => {}
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("the lie was not found"),
    }
    accept(&mut **listener).expect("a connection without it");
    finish(lie, child);
}

fn listen_if_here() -> Option<Box<dyn Listener>> {
    is_here(&VerbsFabric).then(|| listen(&VerbsFabric, parameters()))
}

#[test]
fn a_peer_whose_inline_bytes_are_others_is_named() {
    peer_lies("inline_replaced", Tried::Inline);
}

#[test]
fn a_peer_that_does_not_bind_its_window_is_named() {
    peer_lies("windows_unbound", Tried::Windows);
}

#[test]
#[ignore = "runs in a process of its own, started by other tests"]
fn child_that_connects() {
    let lie = std::env::var(LIE).expect("a lie");
    let port = std::env::var(PORT).expect("a port").parse().expect("a number");
    let to: SocketAddr = at(&VerbsFabric, port);
    let connect = || VerbsFabric.connect(to, &parameters(), BOUND);
    let first = connect();
    if first.is_ok() {
        assert_eq!(failed(&lie, true), []);
        return;
    }
    check_own(&first, &failed(&lie, false));
    connect().expect("a connection without it");
}
