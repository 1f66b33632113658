//! What tests of fabrics share: a connected pair, bounded waiting, parameters.

mod post;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use inet_rdma_fabric::{
    Completion, Fabric, FabricError, FabricName, ListenOptions, Listener, Memory, Parameters, QueuePair,
};
use inet_rdma_stream::{CONTROL_BYTES, Limits, Notice, RemoteAddress};
pub use post::Post;
use rustix::event::{PollFd, PollFlags, Timespec};

/// Nothing that works takes as long as this, in a virtual machine beside other work either; whatever takes longer
/// hangs.
pub const BOUND: Duration = Duration::from_secs(90);

/// So often a loop that waits only lets other threads run; then it sleeps between two looks, as an emulated processor
/// has no time for threads that poll.
const YIELDS: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(1);

fn pause(looks: u32) {
    match looks {
        ..YIELDS => std::thread::yield_now(),
        YIELDS.. => std::thread::sleep(PAUSE),
    }
}

/// An address of an RDMA device of this machine, for the tests of the verbs fabric.
const VERBS_ADDRESS: &str = "INET_RDMA_TEST_VERBS";

fn verbs_address() -> Option<IpAddr> {
    let address = std::env::var(VERBS_ADDRESS).ok()?;
    Some(address.parse().expect("an address"))
}

/// Whether this machine has what the fabric needs; says so if not.
pub fn is_here(fabric: &dyn Fabric) -> bool {
    let here = !is_emulated(fabric) || verbs_address().is_some();
    if !here {
        println!("skipped: {VERBS_ADDRESS} names no address of an RDMA device; make test-vm has one");
    }
    here
}

/// Where the fabric's listener with this port is.
pub fn at(fabric: &dyn Fabric, port: u16) -> SocketAddr {
    let ip = match verbs_address() {
        Some(address) if is_emulated(fabric) => address,
        _ => IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    SocketAddr::new(ip, port)
}

fn is_emulated(fabric: &dyn Fabric) -> bool {
    fabric.name() == FabricName::Verbs
}

/// How often to do something: less where a device is emulated in a machine that is emulated.
pub fn times(fabric: &dyn Fabric, often: u64) -> u64 {
    if is_emulated(fabric) { often / 50 } else { often }
}

/// Small, and no number is like another.
pub fn parameters() -> Parameters {
    Parameters {
        landing_area_bytes: 10_000,
        connection_id: 7,
        ..Parameters::of(Limits {
            ring_bytes: 40_000,
            receive_slots: 24,
            adverts: 3,
        })
    }
}

pub fn options(parameters: Parameters) -> ListenOptions {
    ListenOptions {
        address: None,
        ports: 0..=0,
        backlog: 8,
        hello_timeout: BOUND,
        parameters,
    }
}

pub fn listen(fabric: &dyn Fabric, parameters: Parameters) -> Box<dyn Listener> {
    fabric.listen(&options(parameters)).expect("a free port")
}

/// Waits until `fd` is readable; whether it became so within `bound`.
pub fn readable_within(fd: BorrowedFd<'_>, bound: Duration) -> bool {
    let timeout = Timespec::try_from(bound).expect("a small duration");
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    loop {
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(ready) => return ready > 0,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => panic!("poll: {errno}"),
        }
    }
}

/// The next outcome of a listener.
pub fn accept(listener: &mut dyn Listener) -> Result<Box<dyn QueuePair>, FabricError> {
    let end = Instant::now() + BOUND;
    loop {
        if let Some(outcome) = listener.poll_accept() {
            return outcome;
        }
        let now = Instant::now();
        assert!(now < end, "nobody came");
        let wake = listener.next_deadline().unwrap_or(end).min(end);
        readable_within(listener.event_fd(), wake.saturating_duration_since(now));
    }
}

/// Two connected ends: first the end that connected, then the end that accepted.
pub fn pair_of(
    fabric: &dyn Fabric,
    client: Parameters,
    server: Parameters,
) -> (Box<dyn QueuePair>, Box<dyn QueuePair>) {
    join_as(fabric, &mut *listen(fabric, server), client)
}

/// One more connection to a listener.
pub fn join(fabric: &dyn Fabric, listener: &mut dyn Listener) -> (Box<dyn QueuePair>, Box<dyn QueuePair>) {
    join_as(fabric, listener, parameters())
}

fn join_as(
    fabric: &dyn Fabric,
    listener: &mut dyn Listener,
    client: Parameters,
) -> (Box<dyn QueuePair>, Box<dyn QueuePair>) {
    let to = at(fabric, listener.port());
    std::thread::scope(|scope| {
        let connecting = scope.spawn(move || fabric.connect(to, &client, BOUND));
        let accepted = accept(listener).expect("an accepted connection");
        (connecting.join().expect("no panic").expect("a connection"), accepted)
    })
}

pub fn pair(fabric: &dyn Fabric) -> (Box<dyn QueuePair>, Box<dyn QueuePair>) {
    pair_of(fabric, parameters(), parameters())
}

/// Polls until something has come.
pub fn poll_some(queue_pair: &dyn QueuePair, out: &mut [Completion]) -> usize {
    let end = Instant::now() + BOUND;
    let mut looks = 0;
    loop {
        match queue_pair.poll(out).expect("an honest peer") {
            0 => assert!(Instant::now() < end, "nothing came"),
            some => return some,
        }
        pause(looks);
        looks += 1;
    }
}

/// Polls until one completion has come.
pub fn poll_one(queue_pair: &dyn QueuePair) -> Completion {
    let mut out = [Completion::Notice(NOTICE)];
    poll_some(queue_pair, &mut out);
    out[0]
}

/// Bytes that a transfer may have now.
pub fn room_bytes(queue_pair: &dyn QueuePair) -> usize {
    queue_pair.write_room().map_or(0, |room| room.bytes())
}

/// Posts a transfer once there is room, as users do: the device may have sent the bytes of the one before, and not have
/// said so.
pub fn write(queue_pair: &dyn QueuePair, source: &[&[u8]], target: RemoteAddress, notice: Notice) {
    let bytes: usize = source.iter().map(|piece| piece.len()).sum();
    eventually("there is room", || room_bytes(queue_pair) >= bytes.max(1));
    queue_pair
        .post(source, target, notice)
        .expect("the room that was offered");
}

/// Sleeps until the end shows, as users do: arms, waits, drains, polls. What comes before it is dropped.
pub fn await_end(queue_pair: &dyn QueuePair) -> FabricError {
    let mut out = [Completion::Notice(NOTICE)];
    loop {
        match queue_pair.poll(&mut out) {
            Ok(0) => {}
            Ok(_) => continue,
            Err(error) => return error,
        }
        if queue_pair.arm().expect("an honest peer") {
            assert!(
                readable_within(queue_pair.liveness_fd(), BOUND),
                "the end does not show"
            );
            if !queue_pair.drain_event() {
                return queue_pair.check_alive().expect_err("it has come to its end");
            }
        }
    }
}

/// Waits on a condition that other threads or processes bring about.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + BOUND;
    let mut looks = 0;
    while !condition() {
        assert!(Instant::now() < end, "still not so: {what}");
        pause(looks);
        looks += 1;
    }
}

pub const NOTICE: Notice = Notice {
    direct: false,
    bytes: 1,
};

pub fn notice(bytes: usize) -> Notice {
    Notice {
        direct: false,
        bytes: u32::try_from(bytes).expect("a small transfer"),
    }
}

/// Copies from this side's memory.
pub fn read(memory: &Arc<dyn Memory>, offset: usize, bytes: usize) -> Vec<u8> {
    assert!(offset + bytes <= memory.bytes());
    let mut out = vec![0; bytes];
    // SAFETY: the range is inside the memory by the assertion, and the memory lives as long as it is borrowed. The copy
    // goes byte by byte through a raw pointer; the destination is fresh.
    unsafe { std::ptr::copy_nonoverlapping(memory.base().add(offset), out.as_mut_ptr(), bytes) };
    out
}

/// A control message that says its number, and shows when it is torn.
pub fn numbered(number: u64) -> [u8; CONTROL_BYTES] {
    let mut bytes = [number as u8; CONTROL_BYTES];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

pub fn number_of(bytes: &[u8; CONTROL_BYTES]) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|index| bytes[index]))
}
