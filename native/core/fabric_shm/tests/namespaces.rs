//! Peers of other process-id namespaces, as other containers of a pod are: they share user and network namespace, and
//! could not trace this process.

#[path = "../../fabric/tests/support/mod.rs"]
#[allow(dead_code, reason = "shared with the contract suite, which uses all of it")]
mod support;

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use inet_rdma_fabric::{Fabric, Safeguard};
use inet_rdma_fabric_shm::ShmFabric;

use support::{BOUND, accept, at, listen, parameters};

const PORT: &str = "INET_RDMA_TEST_PORT";

/// The safeguards of both ends of a connection. The other end is a process that these programs start.
fn safeguards(under: &[&str]) -> Option<(Safeguard, String)> {
    let mut listener = listen(&ShmFabric, parameters());
    let this = std::env::current_exe().expect("the test's program");
    let mut command = under.iter().map(Into::into).chain([this.into_os_string()]);
    let mut peer = Command::new(command.next().expect("a program"));
    let peer = peer
        .args(command)
        .args(["the_other_end", "--exact", "--ignored", "--nocapture"]);
    let peer = peer.env(PORT, listener.port().to_string());
    let mut peer = peer
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut lines = BufReader::new(peer.stdout.take().expect("piped")).lines();
    // A program that cannot start has ended before it has said a word.
    let begun = lines.any(|line| line.is_ok_and(|line| line.contains("connecting")));
    let met = begun.then(|| accept(&mut *listener).expect("a peer"));
    let said = lines.find_map(|line| line.ok()?.split_once("safeguard ").map(|(_, said)| said.to_owned()));
    let met = met.map(|end| end.capabilities().safeguard).zip(said);
    // The peer ends at the end of its input.
    drop(peer.stdin.take());
    peer.wait().expect("ended");
    met
}

#[test]
#[ignore = "a process of the other tests"]
fn the_other_end() {
    let Ok(port) = std::env::var(PORT) else { return };
    let port = port.parse().expect("a port");
    println!("connecting");
    let connected = ShmFabric
        .connect(at(&ShmFabric, port), &parameters(), BOUND)
        .expect("a listener");
    println!("safeguard {:?}", connected.capabilities().safeguard);
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn a_peer_of_the_same_namespace_is_trusted() {
    let (here, there) = safeguards(&[]).expect("a connection");
    assert_eq!((here, there.as_str()), (Safeguard::Trust, "Trust"));
}

#[test]
fn a_peer_of_another_process_id_namespace_is_not_trusted() {
    for proc in [&[][..], &["--mount-proc"]] {
        let under = [&["unshare", "--pid", "--fork", "--kill-child"], proc].concat();
        match safeguards(&under) {
            Some((here, there)) => assert_eq!((here, there.as_str()), (Safeguard::None, "None")),
            None => println!("skipped: no process-id namespace can be made here"),
        }
    }
}
