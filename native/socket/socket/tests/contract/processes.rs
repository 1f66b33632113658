//! Two processes: this test binary, and itself again as a child that runs one ignored test.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use inet_rdma_fabric::{Completion, Fabric, FabricError, FabricName, QueuePair, crash};

use super::support::*;

const PORT: &str = "INET_RDMA_TEST_PORT";

/// The emulator of another machine's programs with its arguments (`scripts/cross`), without which the kernel starts
/// none of them.
const RUNNER: &str = "INET_RDMA_TEST_RUNNER";

/// A child process; killed when dropped.
pub struct Running(Child);

/// Starts the ignored test `name` in a process of its own; it finds `port` by [`port_of_parent`].
pub fn run_child(name: &str, port: u16) -> Running {
    let this = std::env::current_exe().expect("a test binary");
    let runner = std::env::var(RUNNER).unwrap_or_default();
    let mut words = runner.split_whitespace().map(OsString::from).chain([this.into()]);
    let mut command = Command::new(words.next().expect("this program at least"));
    command
        .args(words)
        .args([name, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command
        .env(PORT, port.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    Running(command.spawn().expect("a child process"))
}

impl Running {
    fn wait(&mut self) -> ExitStatus {
        self.wait_for(3 * BOUND)
    }

    fn wait_for(&mut self, bound: Duration) -> ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.0);
        let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).expect("a process");
        assert!(readable_within(process.as_fd(), bound), "the child hangs");
        self.0.wait().expect("an exit status")
    }

    /// Waits until the child has ended by itself. It must have succeeded.
    pub fn expect_success(mut self) {
        // Hundreds of connections take an emulated device half a minute on an idle host.
        let status = self.wait_for(20 * BOUND);
        assert!(status.success(), "the child says {status}; its complaint is above");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// In a child: the port of the test that started it. Asks the kernel to end this process with its parent.
fn port_of_parent() -> u16 {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).expect("a signal");
    std::env::var(PORT)
        .expect("started by another test")
        .parse()
        .expect("a port")
}

fn echoes(fabric: &dyn Fabric) -> u64 {
    times(fabric, 20_000)
}

pub fn two_processes_talk(fabric: &dyn Fabric, child: &str) {
    let mut listener = listen(fabric, parameters());
    let child = run_child(child, listener.port());
    let end = accept(&mut *listener).expect("the child");
    let memory = end.memory();
    for number in 0..echoes(fabric) {
        let offset = 8 * (number as usize % 100);
        let target = end.remote_hello().ring;
        let target = inet_rdma_stream::RemoteAddress {
            address: target.address + offset as u64,
            ..target
        };
        write(&*end, &[&number.to_le_bytes()], target, notice(8 + offset));
        assert_eq!(poll_one(&*end), Completion::Notice(notice(8 + offset)));
        assert_eq!(read(memory, offset, 8), (!number).to_le_bytes());
    }
    drop(end);
    child.expect_success();
}

/// Sends every number back to the same place with all bits inverted, until the parent hangs up.
pub fn echoing_child(fabric: &dyn Fabric) {
    let end = fabric
        .connect(at(fabric, port_of_parent()), &parameters(), BOUND)
        .expect("the parent");
    let mut echoed = 0;
    while end.check_alive().is_ok() {
        let mut out = [Completion::Notice(NOTICE)];
        match end.poll(&mut out) {
            Ok(0) => continue,
            Ok(_) => {}
            Err(FabricError::PeerGone) => break,
            Err(error) => panic!("{error}"),
        }
        let Completion::Notice(notice) = out[0] else {
            panic!("{:?}", out[0])
        };
        let offset = notice.bytes as usize - 8;
        let turned: Vec<u8> = read(end.memory(), offset, 8).iter().map(|byte| !byte).collect();
        let target = end.remote_hello().ring;
        let target = inet_rdma_stream::RemoteAddress {
            address: target.address + offset as u64,
            ..target
        };
        write(&*end, &[&turned], target, notice);
        echoed += 1;
    }
    assert_eq!(echoed, echoes(fabric));
}

/// More bytes than a fabric may keep in a queue entry until a poll.
const LAST: [u8; 100] = [b'!'; 100];

/// The byte of a second write, after the bytes of `LAST`.
const MARK: [u8; 1] = [b'?'];

pub fn a_killed_process_is_seen_at_once(fabric: &dyn Fabric, child: &str) {
    let mut listener = listen(fabric, parameters());
    let mut child = run_child(child, listener.port());
    let end = accept(&mut *listener).expect("the child");
    // The child posts 20 messages, a write and a second one. When the byte of the second write is here, all before it
    // are in the queue, from which nothing was taken yet.
    eventually("the child has posted all", || {
        // Over TCP bytes come into memory as this side polls.
        end.poll(&mut []).expect("an honest peer");
        read(end.memory(), LAST.len(), 1) == MARK
    });
    assert!(end.check_alive().is_ok());
    let killed = Instant::now();
    child.0.kill().expect("a living child");
    eventually("the end is seen", || end.check_alive().is_err());
    assert!(matches!(end.check_alive(), Err(FabricError::PeerGone)));
    println!("seen after {:?}", killed.elapsed());
    for number in 0..20 {
        assert_eq!(poll_one(&*end), Completion::Control(numbered(number)));
    }
    assert_eq!(poll_one(&*end), Completion::Notice(notice(LAST.len())));
    assert_eq!(read(end.memory(), 0, LAST.len()), LAST);
    assert!(!child.wait().success());
    // The dead peer does not hinder the next one.
    let (client, server) = join(fabric, &mut *listener);
    client.post_control(&numbered(1)).expect("room");
    assert_eq!(poll_one(&*server), Completion::Control(numbered(1)));
}

pub fn waiting_child(fabric: &dyn Fabric) {
    let end = fabric
        .connect(at(fabric, port_of_parent()), &parameters(), BOUND)
        .expect("the parent");
    for number in 0..20 {
        end.post_control(&numbered(number)).expect("room");
    }
    let target = end.remote_hello().ring;
    write(&*end, &[&LAST], target, notice(LAST.len()));
    let target = inet_rdma_stream::RemoteAddress {
        address: target.address + LAST.len() as u64,
        ..target
    };
    write(&*end, &[&MARK], target, notice(LAST.len() + MARK.len()));
    await_end(&*end);
}

/// As of a VM that writes its crash dump.
pub fn a_crashed_process_is_seen_while_it_lives(fabric: &dyn Fabric, child: &str) {
    let mut listener = listen(fabric, parameters());
    let mut child = run_child(child, listener.port());
    let end = accept(&mut *listener).expect("the child");
    assert_eq!(poll_one(&*end), Completion::Control(numbered(1)));
    end.post_control(&numbered(2)).expect("room");
    assert_eq!(await_end(&*end), FabricError::PeerGone);
    assert_eq!(child.0.try_wait().expect("a child"), None);
}

pub fn crashing_child(fabric: &dyn Fabric) {
    let end = fabric
        .connect(at(fabric, port_of_parent()), &parameters(), BOUND)
        .expect("the parent");
    end.post_control(&numbered(1)).expect("room");
    assert_eq!(poll_one(&*end), Completion::Control(numbered(2)));
    crash::shut_down_all();
    loop {
        std::thread::park();
    }
}

/// Connects and disconnects a thousand times and compares the resources of this process. Runs in a process of its own,
/// as other tests open and close descriptors at the same time. Over a device, which is emulated, 200 times:
/// descriptors, threads and pinned memory have to be the same after any number, and a connection that stays takes
/// 40 KiB or more.
pub fn leak_child(fabric: &dyn Fabric) {
    let mut listener = listen(fabric, parameters());
    let mut cycle = |times: u64| {
        for number in 0..times {
            let (client, server) = join(fabric, &mut *listener);
            client.post_control(&numbered(number)).expect("room");
            assert_eq!(poll_one(&*server), Completion::Control(numbered(number)));
            if number % 2 == 0 {
                drop((client, server));
            } else {
                server.disconnect();
                drop((server, client));
            }
        }
    };
    let (first, more) = match fabric.name() {
        FabricName::Verbs => (50, 200),
        FabricName::Auto | FabricName::Shm | FabricName::Tcp => (100, 1_000),
    };
    cycle(first);
    let before = Held::settled();
    cycle(more);
    let after = Held::settled();
    println!("{before:?} became {after:?}");
    assert_eq!((after.descriptors, after.threads), (before.descriptors, before.threads));
    // Bytes that a device holds in memory: none where it holds no connection.
    assert_eq!(after.pinned_kb, before.pinned_kb);
    // Less than two KiB for each of a thousand connections: the allocator keeps some memory.
    assert!(
        after.anonymous_kb <= before.anonymous_kb + 2 * 1_024,
        "{} KiB of memory were {}",
        after.anonymous_kb,
        before.anonymous_kb
    );
    // The allocator and thread stacks may take a mapping or two, but not one per connection.
    assert!(
        after.mappings <= before.mappings + 20,
        "{} mappings were {}",
        after.mappings,
        before.mappings
    );
}

/// Runs in a process of its own, as [`leak_child`].
pub fn descriptors_child(fabric: &dyn Fabric) {
    const CONNECTIONS: usize = 10;
    let mut listener = listen(fabric, parameters());
    // Descriptors of the process itself, and of the device.
    let first = join(fabric, &mut *listener);
    let before = Held::settled();
    let ends: Vec<_> = (0..CONNECTIONS).map(|_| join(fabric, &mut *listener)).collect();
    let after = Held::settled();
    let each = match fabric.name() {
        // The fault-injecting wrapper has three of its own: see its fields.
        _ if is_wrapped(&*first.0) => 6,
        // Room to send is another event of the socket than bytes to read: an epoll set watches both.
        FabricName::Tcp => 2,
        // A socket for each direction of wake-ups, and an epoll set.
        FabricName::Shm => 3,
        _ => 1,
    };
    assert_eq!(after.descriptors, before.descriptors + 2 * each * CONNECTIONS);
    assert_eq!(after.threads, before.threads);
    drop((first, ends));
}

/// True if this queue pair wraps another one, which has an event fd of its own.
fn is_wrapped(queue_pair: &dyn QueuePair) -> bool {
    queue_pair.event_fd().as_raw_fd() != queue_pair.liveness_fd().as_raw_fd()
}

#[derive(Debug)]
struct Held {
    descriptors: usize,
    threads: usize,
    mappings: usize,
    pinned_kb: u64,
    anonymous_kb: u64,
}

impl Held {
    /// The counts when they no longer change: a fabric may end connections in the background.
    fn settled() -> Held {
        let mut last = Held::count();
        loop {
            std::thread::sleep(Duration::from_millis(200));
            let now = Held::count();
            if (now.descriptors, now.pinned_kb) == (last.descriptors, last.pinned_kb) {
                return now;
            }
            last = now;
        }
    }

    fn count() -> Held {
        let entries = |path| std::fs::read_dir(path).expect("procfs").count();
        let mappings = std::fs::read_to_string("/proc/self/maps")
            .expect("procfs")
            .lines()
            .count();
        let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
        let kilobytes = |name: &str| {
            let line = status
                .lines()
                .find(|line| line.starts_with(name))
                .expect("a line of it");
            let number = line.split_whitespace().nth(1).expect("a number");
            number.parse().expect("a number")
        };
        Held {
            descriptors: entries("/proc/self/fd"),
            threads: entries("/proc/self/task"),
            mappings,
            pinned_kb: kilobytes("VmPin:"),
            anonymous_kb: kilobytes("RssAnon:"),
        }
    }
}
