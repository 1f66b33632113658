//! Memory of a connection while the thread that gets it cannot be started. Alone in its process: it limits the address
//! space.

#[path = "../../assembly/tests/support/contents.rs"]
mod contents;
#[path = "support/message.rs"]
mod message;
#[path = "support/pair.rs"]
mod pair;

use std::sync::Arc;
use std::time::Instant;

use inet_rdma_assembly::{ReadLimit, Received};
use inet_rdma_engine::connection::ReadEnd;
use inet_rdma_fabric_fault::{Exposing, FaultFabric, FaultPlan, Grants};
use inet_rdma_fabric_shm::ShmFabric;
use message::Messages;
use pair::{BOUND, Conn, Side};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Less than the stack of a native thread, more than what the test allocates meanwhile.
const SPARE_BYTES: u64 = 128 * 1024;

/// While this value lives the process cannot map another thread's stack.
struct NoMoreStacks(Rlimit);

impl NoMoreStacks {
    fn new() -> Self {
        let before = getrlimit(Resource::As);
        let statm = std::fs::read_to_string("/proc/self/statm").expect("procfs");
        let pages = statm.split(' ').next().expect("the size of the address space");
        let bytes = pages.parse::<u64>().expect("a number") * rustix::param::page_size() as u64;
        let current = Some(bytes + SPARE_BYTES);
        setrlimit(Resource::As, Rlimit { current, ..before }).expect("a lower limit");
        NoMoreStacks(before)
    }
}

impl Drop for NoMoreStacks {
    fn drop(&mut self) {
        setrlimit(Resource::As, self.0).expect("the limit from before");
    }
}

/// Sends bulk while the other side reads. Returns the number of landed packets.
fn carry_bulk(from: &Conn, to: &Conn, seed: u64) -> usize {
    let messages = Messages::new(seed, &[20_000; 20]);
    let gather = messages.gather(true);
    let (mut at, mut received) = (0, Vec::new());
    let end = Instant::now() + BOUND;
    while contents::packets(&received).len() < messages.bodies().len() {
        assert!(Instant::now() < end, "{at} of {} written", gather.total());
        at = from.write(&gather, at, usize::MAX).expect("the peer reads").at;
        while to.read(ReadLimit::bytes(usize::MAX), &mut received) == ReadEnd::More {}
    }
    assert_eq!(contents::packets(&received), messages.bodies());
    let is_landed = |part: &&Received<Vec<u8>>| matches!(part, Received::Landed(..));
    received.iter().filter(is_landed).count()
}

#[test]
fn memory_comes_when_the_thread_that_gets_it_can_be_started() {
    let grants = Grants::new(u64::MAX);
    let plan = FaultPlan {
        exposing: Exposing::Pinning(Arc::clone(&grants)),
        ..FaultPlan::default()
    };
    let side = Side::default();
    let (left, right) = pair::connect(&FaultFabric::new(ShmFabric, plan), &side, &side);
    let no_more_stacks = NoMoreStacks::new();
    assert!(std::thread::Builder::new().stack_size(256 * 1024).spawn(|| ()).is_err());
    assert_eq!(carry_bulk(&left, &right, 1), 0);
    drop(no_more_stacks);
    let end = Instant::now() + BOUND;
    while carry_bulk(&left, &right, 2) == 0 {
        assert!(Instant::now() < end, "no memory comes");
    }
    assert!(grants.pinned() > 0);
}
