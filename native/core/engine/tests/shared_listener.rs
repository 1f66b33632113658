//! Expected peers at the one shm listener of a process.

#[path = "../../fabric/tests/support/mod.rs"]
#[allow(dead_code, reason = "shared with the contract suite, which uses all of it")]
mod support;

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use inet_rdma_engine::attempt::{Attempt, AttemptError, Outcome, token};
use inet_rdma_fabric::{Completion, FabricError, Parameters, QueuePair};
use inet_rdma_fabric_shm::connect_named;
use inet_rdma_fabric_shm::own_name::find;
use inet_rdma_fabric_shm::socket_name::SocketName;

use support::{BOUND, numbered, parameters, poll_one};

fn with_token(token: u64) -> Parameters {
    Parameters { token, ..parameters() }
}

/// A peer that is expected.
struct Expected {
    attempt: Attempt,
    name: SocketName,
    token: u64,
}

fn expect_with(parameters: Parameters, timeout: Duration) -> Expected {
    let (attempt, name) = Attempt::expect_shm(&parameters, timeout).expect("a listener");
    Expected {
        attempt,
        name,
        token: parameters.token,
    }
}

fn expect() -> Expected {
    expect_with(with_token(token()), BOUND)
}

impl Expected {
    /// The receiver that learns of the notifier's call. None: there is an outcome already.
    fn told(&self) -> Option<Receiver<()>> {
        let (sender, receiver) = channel();
        let notify = move || sender.send(()).expect("the test waits");
        self.attempt.notify(Box::new(notify)).then_some(receiver)
    }

    fn outcome(&self) -> Outcome {
        if let Some(told) = self.told() {
            told.recv_timeout(BOUND).expect("the notifier is called");
        }
        self.attempt.take().expect("it is there before the notifier is called")
    }

    fn meet(&self) -> Result<Box<dyn QueuePair>, FabricError> {
        connect(&self.name, self.token)
    }
}

fn connect(name: &SocketName, token: u64) -> Result<Box<dyn QueuePair>, FabricError> {
    connect_named(name, &with_token(token), BOUND)
}

fn is_refused(met: Result<Box<dyn QueuePair>, FabricError>) {
    let met = met.map(|_| ());
    assert!(matches!(met, Err(FabricError::PeerMisbehaved(_))), "{met:?}");
}

#[test]
fn each_peer_gets_the_queue_pair_of_its_token() {
    let expected: Vec<Expected> = (0..50).map(|_| expect()).collect();
    assert!(
        expected.iter().all(|one| one.name == expected[0].name),
        "they share a listener"
    );
    assert!(
        expected.iter().all(|one| one.attempt.take().is_none()),
        "no peer has come"
    );
    std::thread::scope(|scope| {
        for (number, one) in (0..).zip(expected.iter().rev()) {
            scope.spawn(move || {
                let client = one.meet().expect("a connection");
                let (server, why) = one.outcome().expect("a connection");
                assert_eq!(why, "both nodes settled on it: shared memory of this host");
                client.post_control(&numbered(number)).expect("room");
                assert_eq!(poll_one(&*server), Completion::Control(numbered(number)));
            });
        }
    });
}

#[test]
fn strangers_are_refused_and_the_peer_gets_in_once() {
    let expected = expect();
    for stranger in [0, expected.token ^ 1, expected.token ^ 1 << 63] {
        is_refused(connect(&expected.name, stranger));
    }
    let _client = expected.meet().expect("a connection");
    is_refused(expected.meet());
    assert!(expected.outcome().is_ok());
}

#[test]
fn a_peer_that_is_no_longer_expected_is_refused() {
    let other = expect();
    let Expected { attempt, name, token } = expect();
    drop(attempt);
    is_refused(connect(&name, token));
    assert!(other.meet().is_ok());
}

#[test]
fn an_expectation_ends_at_its_deadline_whatever_the_others() {
    let late = expect();
    let told = late.told().expect("no peer has come");
    let early = expect_with(with_token(token()), Duration::from_millis(20));
    assert!(matches!(
        early.outcome(),
        Err(AttemptError::Fabric(FabricError::TimedOut))
    ));
    is_refused(early.meet());
    assert!(told.try_recv().is_err(), "the other one goes on");
    assert!(late.meet().is_ok());
    told.recv_timeout(BOUND).expect("the notifier is called");
}

#[test]
fn a_notifier_that_comes_after_the_outcome_is_not_taken() {
    let expected = expect();
    let first = expected.told().expect("no peer has come");
    let _client = expected.meet().expect("a connection");
    first.recv_timeout(BOUND).expect("the outcome is there");
    assert!(expected.told().is_none());
    assert!(expected.outcome().is_ok());
    assert!(expected.told().is_none());
}

/// The side that listens cannot make its memory.
#[test]
fn a_failure_of_this_side_is_told_to_both() {
    let mut impossible = with_token(token());
    impossible.limits.ring_bytes = 0;
    let expected = expect_with(impossible, BOUND);
    is_refused(expected.meet());
    let outcome = expected
        .attempt
        .take()
        .expect("it is there before the peer's")
        .map(|_| ());
    assert!(
        !matches!(
            outcome,
            Ok(()) | Err(AttemptError::Fabric(FabricError::WrongToken | FabricError::TimedOut))
        ),
        "{outcome:?}"
    );
}

#[test]
fn a_process_has_one_name_and_is_found_by_it() {
    let name = Attempt::own_name().expect("a listener");
    assert_eq!(expect().name, name, "peers connect to that name");
    assert_eq!(Attempt::own_name().expect("a listener"), name);
    let found = find(&name).expect("asked").expect("this process listens");
    assert_eq!(u32::try_from(found.pid), Ok(std::process::id()));
    assert_eq!(found.user, inet_rdma_fabric_shm::user());
    let other = "inet_rdma-00000000000000000000000000000000".parse().expect("a name");
    assert_eq!(find(&other), Ok(None));
}
