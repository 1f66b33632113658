//! Attempts: the notifications to their users, the end of their threads, and no descriptors or threads left behind.

#[path = "../../fabric/tests/support/mod.rs"]
#[allow(dead_code, reason = "shared with the contract suite, which uses all of it")]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use inet_rdma_engine::attempt::{Attempt, AttemptError, CONNECTS_MAX, Made, Notify, Outcome};
use inet_rdma_fabric::{Completion, Fabric, FabricError, Parameters, QueuePair};
use inet_rdma_fabric_shm::ShmFabric;
use parking_lot::{Condvar, Mutex};

use support::{BOUND, at, eventually, listen, numbered, parameters, poll_one, readable_within};

const TOKEN: u64 = 77;

/// All tests share the threads of one process, and count them.
static ALONE: Mutex<()> = Mutex::new(());

fn with_token(token: u64) -> Parameters {
    Parameters { token, ..parameters() }
}

/// A notifier, and the receiver that learns of its call.
fn notifier() -> (Notify, Receiver<()>) {
    let (sender, receiver) = channel();
    (Box::new(move || sender.send(()).expect("somebody waits")), receiver)
}

struct Begun {
    attempt: Attempt,
    told: Receiver<()>,
}

impl Begun {
    /// The outcome, after the notifier was called.
    fn outcome(&self) -> Outcome {
        self.told.recv_timeout(BOUND).expect("the notifier is called");
        self.attempt.take().expect("it is there before the notifier is called")
    }
}

fn begin(timeout: Duration, connect: impl FnOnce(Duration) -> Result<Made, FabricError> + Send + 'static) -> Begun {
    let (notify, told) = notifier();
    let attempt = Attempt::connect(timeout, connect, notify).expect("a thread");
    Begun { attempt, told }
}

fn connect(port: u16, token: u64, timeout: Duration) -> Begun {
    begin(timeout, move |left| {
        let to = at(&ShmFabric, port);
        let qp = ShmFabric.connect(to, &with_token(token), left)?;
        Ok((qp, "a test".to_owned()))
    })
}

/// An attempt that waits for the peer with the token, and its port.
fn expect(parameters: Parameters, timeout: Duration) -> (Begun, u16) {
    let (notify, told) = notifier();
    let listener = listen(&ShmFabric, parameters);
    let port = listener.port();
    let attempt = Attempt::accept(listener, timeout, notify).expect("a thread");
    (Begun { attempt, told }, port)
}

fn threads(of: &str) -> usize {
    let names = std::fs::read_dir("/proc/self/task").expect("procfs").flatten();
    // A thread may end between the two looks. The kernel keeps 15 bytes of a name.
    let names = names.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with(of)).count()
}

fn all_threads_end() {
    eventually("no thread is left", || threads("inet_rdma/") == 0);
}

fn is_closed(port: u16) -> bool {
    let refused = ShmFabric.connect(at(&ShmFabric, port), &with_token(TOKEN), BOUND);
    matches!(refused, Err(FabricError::Refused(_)))
}

/// Holds connects back until it is opened, and counts them.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    changed: Condvar,
    under_way: AtomicUsize,
    most: AtomicUsize,
}

impl Gate {
    fn pass(&self) -> Result<Made, FabricError> {
        let now = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        let mut is_open = self.is_open.lock();
        while !*is_open {
            self.changed.wait(&mut is_open);
        }
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        Err(FabricError::PeerGone)
    }

    fn open(&self) {
        *self.is_open.lock() = true;
        self.changed.notify_all();
    }
}

fn held_back(gate: &Arc<Gate>, timeout: Duration) -> Begun {
    let gate = Arc::clone(gate);
    begin(timeout, move |_| gate.pass())
}

#[test]
fn both_sides_of_a_settlement_meet() {
    let _alone = ALONE.lock();
    let (expected, port) = expect(with_token(TOKEN), BOUND);
    assert!(expected.attempt.take().is_none(), "nobody has come");
    let (client, _) = connect(port, TOKEN, BOUND).outcome().expect("a connection");
    let (server, why) = expected.outcome().expect("a connection");
    assert_eq!(why, "both nodes settled on it: shared memory of this host");
    client.post_control(&numbered(5)).expect("room");
    assert_eq!(poll_one(&*server), Completion::Control(numbered(5)));
    assert!(is_closed(port));
    all_threads_end();
}

#[test]
fn an_outcome_is_given_once() {
    let _alone = ALONE.lock();
    let begun = connect(9, 0, BOUND);
    assert!(matches!(
        begun.outcome(),
        Err(AttemptError::Fabric(FabricError::Refused(9)))
    ));
    assert!(matches!(begun.attempt.take(), Some(Err(AttemptError::Taken))));
    all_threads_end();
}

#[test]
fn a_stranger_does_not_end_the_wait() {
    let _alone = ALONE.lock();
    let (expected, port) = expect(with_token(TOKEN), BOUND);
    for token in [0, TOKEN + 1] {
        let stranger = connect(port, token, BOUND).outcome().map(|_| ());
        assert!(
            matches!(stranger, Err(AttemptError::Fabric(FabricError::PeerMisbehaved(_)))),
            "{stranger:?}"
        );
    }
    let (_client, _) = connect(port, TOKEN, BOUND).outcome().expect("a connection");
    assert!(expected.outcome().is_ok());
    all_threads_end();
}

#[test]
fn the_failure_of_the_peer_with_the_token_ends_the_wait() {
    let _alone = ALONE.lock();
    let mut impossible = with_token(TOKEN);
    impossible.limits.ring_bytes = 0;
    let (expected, port) = expect(impossible, BOUND);
    let stranger = connect(port, TOKEN + 1, BOUND).outcome();
    assert!(stranger.is_err() && expected.attempt.take().is_none());
    assert!(connect(port, TOKEN, BOUND).outcome().is_err());
    let failed = expected.outcome().map(|_| ());
    assert!(
        matches!(failed, Err(AttemptError::Fabric(FabricError::Limits(_)))),
        "{failed:?}"
    );
    assert!(is_closed(port));
    all_threads_end();
}

#[test]
fn waiting_ends_at_the_deadline() {
    let _alone = ALONE.lock();
    let (nobody, port) = expect(with_token(TOKEN), Duration::from_millis(20));
    assert!(matches!(
        nobody.outcome(),
        Err(AttemptError::Fabric(FabricError::TimedOut))
    ));
    assert!(is_closed(port));
    let (strangers, port) = expect(with_token(TOKEN), Duration::from_secs(2));
    assert!(connect(port, 1, BOUND).outcome().is_err());
    let late = strangers.outcome().map(|_| ());
    assert!(
        matches!(
            &late,
            Err(AttemptError::OnlyStrangers {
                refused: 1,
                last: FabricError::WrongToken
            })
        ),
        "{late:?}"
    );
    all_threads_end();
}

#[test]
fn a_connect_ends_at_its_deadline() {
    let _alone = ALONE.lock();
    // The kernel accepts; the listener is never polled, so it never answers.
    let silent = listen(&ShmFabric, parameters());
    let late = connect(silent.port(), 0, Duration::from_millis(20))
        .outcome()
        .map(|_| ());
    assert!(
        matches!(late, Err(AttemptError::Fabric(FabricError::TimedOut))),
        "{late:?}"
    );
    all_threads_end();
}

#[test]
fn dropping_an_awaited_accept_closes_its_port_at_once() {
    let _alone = ALONE.lock();
    let (Begun { attempt, told }, port) = expect(with_token(TOKEN), Duration::from_secs(3600));
    eventually("it waits", || threads("inet_rdma/accep") == 1);
    drop(attempt);
    all_threads_end();
    assert!(is_closed(port));
    assert!(told.recv().is_err(), "nobody was there to be told");
}

#[test]
fn the_queue_pair_of_a_dropped_attempt_is_closed() {
    let _alone = ALONE.lock();
    for is_there in [false, true] {
        let mut listener = listen(&ShmFabric, parameters());
        let Begun { attempt, told } = connect(listener.port(), 0, BOUND);
        let mut attempt = Some(attempt);
        if !is_there {
            // The thread is at work, and its peer answers only after this.
            assert!(readable_within(listener.event_fd(), BOUND));
            attempt = None;
        }
        let server = support::accept(&mut *listener).expect("it has greeted or will");
        if is_there {
            told.recv_timeout(BOUND).expect("it is connected");
        }
        drop(attempt);
        assert!(readable_within(server.liveness_fd(), BOUND));
        assert!(matches!(server.check_alive(), Err(FabricError::PeerGone)));
        all_threads_end();
    }
}

#[test]
fn connects_are_bounded_and_the_rest_waits_in_order() {
    let _alone = ALONE.lock();
    let gate = Arc::new(Gate::default());
    let first: Vec<Begun> = (0..CONNECTS_MAX).map(|_| held_back(&gate, BOUND)).collect();
    eventually("all threads are at work", || {
        gate.under_way.load(Ordering::SeqCst) == CONNECTS_MAX
    });
    let (sender, order): (Sender<usize>, _) = channel();
    let rest: Vec<Begun> = (0..100)
        .map(|number| {
            let (gate, sender) = (Arc::clone(&gate), sender.clone());
            begin(BOUND, move |_| {
                sender.send(number).expect("the test waits");
                gate.pass()
            })
        })
        .collect();
    assert!(order.try_recv().is_err(), "more than the bound are under way");
    eventually("all have their names", || threads("inet_rdma/conne") >= CONNECTS_MAX);
    assert_eq!(threads("inet_rdma/conne"), CONNECTS_MAX);
    gate.open();
    for begun in first.iter().chain(&rest) {
        assert!(matches!(
            begun.outcome(),
            Err(AttemptError::Fabric(FabricError::PeerGone))
        ));
    }
    assert!(gate.most.load(Ordering::SeqCst) <= CONNECTS_MAX);
    let mut came: Vec<usize> = order.try_iter().collect();
    // Two threads that take their next connects at the same time may report in either order.
    for (place, number) in came.iter().enumerate() {
        assert!(place.abs_diff(*number) <= CONNECTS_MAX, "{came:?}");
    }
    came.sort_unstable();
    assert_eq!(came, (0..100).collect::<Vec<_>>());
    all_threads_end();
}

#[test]
fn a_connect_whose_time_passes_in_the_queue_times_out() {
    let _alone = ALONE.lock();
    let gate = Arc::new(Gate::default());
    let held: Vec<Begun> = (0..CONNECTS_MAX).map(|_| held_back(&gate, BOUND)).collect();
    // The timekeeper sleeps for the first of these when the others come.
    let timeouts = [3_600_000, 200, 50, 100];
    let waiting: Vec<Begun> = timeouts
        .iter()
        .map(|ms| begin(Duration::from_millis(*ms), |_| panic!("its turn has come")))
        .collect();
    for begun in &waiting[1..] {
        assert!(matches!(
            begun.outcome(),
            Err(AttemptError::Fabric(FabricError::TimedOut))
        ));
    }
    assert!(waiting[0].attempt.take().is_none());
    let begun = Instant::now();
    drop(waiting);
    gate.open();
    for begun in &held {
        assert!(begun.outcome().is_err());
    }
    all_threads_end();
    assert!(
        begun.elapsed() < Duration::from_secs(3600),
        "the timekeeper waits for nobody"
    );
}

#[test]
fn awaited_peers_do_not_wait_for_connects() {
    let _alone = ALONE.lock();
    // This process plays many nodes, each of which connects to all others.
    let expected: Vec<_> = (0..3 * CONNECTS_MAX as u64)
        .map(|number| expect(with_token(number + 1), BOUND))
        .collect();
    let connects: Vec<_> = (1..)
        .zip(&expected)
        .map(|(token, (_, port))| connect(*port, token, BOUND))
        .collect();
    for (one, (other, _)) in connects.iter().zip(&expected) {
        let (client, server): (Box<dyn QueuePair>, Box<dyn QueuePair>) = (
            one.outcome().expect("connected").0,
            other.outcome().expect("accepted").0,
        );
        assert!(client.check_alive().is_ok() && server.check_alive().is_ok());
    }
    all_threads_end();
}

#[test]
fn a_panic_is_an_error_and_the_thread_goes_on() {
    let _alone = ALONE.lock();
    let gate = Arc::new(Gate::default());
    let held: Vec<Begun> = (1..CONNECTS_MAX).map(|_| held_back(&gate, BOUND)).collect();
    let panicking: Vec<Begun> = (0..3).map(|_| begin(BOUND, |_| panic!("on purpose"))).collect();
    for begun in &panicking {
        let failed = begun.outcome().map(|_| ());
        assert!(
            matches!(&failed, Err(AttemptError::Fabric(FabricError::Panicked(_)))),
            "{failed:?}"
        );
    }
    gate.open();
    for begun in &held {
        assert!(begun.outcome().is_err());
    }
    all_threads_end();
}

#[test]
fn signals_are_left_to_the_process_own_threads() {
    let _alone = ALONE.lock();
    let (sender, blocked) = channel();
    let begun = begin(BOUND, move |_| {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("procfs");
        sender.send(status).expect("the test waits");
        Err(FabricError::PeerGone)
    });
    assert!(begun.outcome().is_err());
    let status = blocked.recv().expect("said before the outcome");
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigBlk:"))
        .expect("a mask");
    let mask = u64::from_str_radix(mask.trim(), 16).expect("hexadecimal");
    // SIGTERM is 15, its bit 14; SIGKILL and SIGSTOP cannot be blocked.
    assert_ne!(mask & 1 << 14, 0, "{mask:#x}");
    all_threads_end();
}
