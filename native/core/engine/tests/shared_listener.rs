//! Expected peers at the one shm listener of a process.

#[path = "../../fabric/tests/support/mod.rs"]
#[allow(dead_code, reason = "shared with the contract suite, which uses all of it")]
mod support;

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use inet_rdma_engine::attempt::{Attempt, AttemptError, Outcome, token};
use inet_rdma_fabric::{Completion, Fabric, FabricError, Parameters, QueuePair};
use inet_rdma_fabric_shm::ShmFabric;

use support::{BOUND, at, numbered, parameters, poll_one};

fn with_token(token: u64) -> Parameters {
    Parameters { token, ..parameters() }
}

/// A peer that is expected.
struct Expected {
    attempt: Attempt,
    port: u16,
    token: u64,
}

fn expect_with(parameters: Parameters, timeout: Duration) -> Expected {
    let (attempt, port) = Attempt::expect_shm(&parameters, timeout).expect("a listener");
    Expected {
        attempt,
        port,
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
        connect(self.port, self.token)
    }
}

fn connect(port: u16, token: u64) -> Result<Box<dyn QueuePair>, FabricError> {
    ShmFabric.connect(at(&ShmFabric, port), &with_token(token), BOUND)
}

fn is_refused(met: Result<Box<dyn QueuePair>, FabricError>) {
    let met = met.map(|_| ());
    assert!(matches!(met, Err(FabricError::PeerMisbehaved(_))), "{met:?}");
}

#[test]
fn each_peer_gets_the_queue_pair_of_its_token() {
    let expected: Vec<Expected> = (0..50).map(|_| expect()).collect();
    assert!(
        expected.iter().all(|one| one.port == expected[0].port),
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
        is_refused(connect(expected.port, stranger));
    }
    let _client = expected.meet().expect("a connection");
    is_refused(expected.meet());
    assert!(expected.outcome().is_ok());
}

#[test]
fn a_peer_that_is_no_longer_expected_is_refused() {
    let other = expect();
    let Expected { attempt, port, token } = expect();
    drop(attempt);
    is_refused(connect(port, token));
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
