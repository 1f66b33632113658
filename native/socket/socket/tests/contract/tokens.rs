//! Listeners for peers with a token.

use inet_rdma_fabric::{Completion, Fabric, FabricError, Listener, Parameters, QueuePair};

use super::support::*;

const TOKEN: u64 = 0x0123_4567_89ab_cdef;

fn with_token(token: u64) -> Parameters {
    Parameters { token, ..parameters() }
}

/// Both ends' outcomes of one connect with this token.
#[allow(clippy::type_complexity, reason = "it is read once, at its use")]
fn meet(
    fabric: &dyn Fabric,
    listener: &mut dyn Listener,
    token: u64,
) -> (
    Result<Box<dyn QueuePair>, FabricError>,
    Result<Box<dyn QueuePair>, FabricError>,
) {
    let to = at(fabric, listener.port());
    std::thread::scope(|scope| {
        let connecting = scope.spawn(move || fabric.connect(to, &with_token(token), BOUND));
        let accepted = accept(listener);
        (connecting.join().expect("no panic"), accepted)
    })
}

fn is_refused(fabric: &dyn Fabric, listener: &mut dyn Listener, token: u64) {
    let (client, server) = meet(fabric, listener, token);
    let (client, server) = (client.map(|_| ()), server.map(|_| ()));
    assert!(matches!(server, Err(FabricError::WrongToken)), "{token:#x}: {server:?}");
    assert!(
        !matches!(client, Ok(()) | Err(FabricError::TimedOut)),
        "{token:#x}: {client:?}"
    );
}

pub fn a_peer_with_another_token_is_refused_and_the_right_one_gets_in(fabric: &dyn Fabric) {
    let mut listener = listen(fabric, with_token(TOKEN));
    for token in [0, TOKEN ^ 1, TOKEN ^ 1 << 63, u64::MAX] {
        is_refused(fabric, &mut *listener, token);
        assert!(!listener.is_over());
    }
    let (client, server) = meet(fabric, &mut *listener, TOKEN);
    let (client, server) = (client.expect("a connection"), server.expect("a connection"));
    assert_eq!(client.remote_hello().token, TOKEN);
    assert_eq!(server.remote_hello().token, TOKEN);
    client.post_control(&numbered(1)).expect("room");
    assert_eq!(poll_one(&*server), Completion::Control(numbered(1)));
}

pub fn a_listener_without_a_token_refuses_peers_with_one(fabric: &dyn Fabric) {
    let mut listener = listen(fabric, parameters());
    is_refused(fabric, &mut *listener, TOKEN);
    drop(join(fabric, &mut *listener));
    assert!(!listener.is_over());
    drop(join(fabric, &mut *listener));
}

pub fn a_listener_with_a_token_takes_one_peer(fabric: &dyn Fabric) {
    let mut listener = listen(fabric, with_token(TOKEN));
    let to = at(fabric, listener.port());
    let ends = meet(fabric, &mut *listener, TOKEN);
    assert!(ends.0.is_ok() && ends.1.is_ok());
    assert!(listener.is_over());
    std::thread::scope(|scope| {
        let second = scope.spawn(move || fabric.connect(to, &with_token(TOKEN), BOUND).map(|_| ()));
        // Until the port is closed the second one may be left without an answer.
        assert!(listener.poll_accept().is_none());
        drop(listener);
        let second = second.join().expect("no panic");
        assert!(!matches!(second, Ok(()) | Err(FabricError::TimedOut)), "{second:?}");
    });
    assert!(ends.0.is_ok_and(|client| client.check_alive().is_ok()));
}

/// The listener cannot make its own memory, so an attempt to do so fails the test.
pub fn a_stranger_costs_no_memory(fabric: &dyn Fabric) {
    let mut impossible = with_token(TOKEN);
    impossible.limits.ring_bytes = 0;
    let mut listener = listen(fabric, impossible);
    is_refused(fabric, &mut *listener, TOKEN ^ 1);
    let (client, server) = meet(fabric, &mut *listener, TOKEN);
    let server = server.map(|_| ());
    assert!(!matches!(server, Ok(()) | Err(FabricError::WrongToken)), "{server:?}");
    assert!(client.is_err());
    assert!(listener.is_over(), "nobody else has the token");
}
