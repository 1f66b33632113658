//! Round trips on a connection over verbs beside peers that connect, and end, all at once:
//! `cargo run --release --example connecting_peers ADDRESS [peers [rounds [COMMAND...]]]`.
//!
//! `ADDRESS` is one of an RDMA device of this host. This process is the node: a listener with its thread, pollers
//! with one polling thread, and a connection to a second process, which answers packets of 64 bytes. A third process
//! connects `peers` times (default 100) at once, keeps the connections for a while, and ends all of them at once;
//! `COMMAND` starts it elsewhere, such as `ssh guest2`. Prints the round trips' times in each of some rounds (default
//! 5): quiet, while the peers connect, while they end; then the medians of the rounds' ratios. In microseconds.

#[path = "../tests/support/attached.rs"]
mod attached;
#[path = "../../../core/engine/tests/support/message.rs"]
mod message;
#[path = "../tests/support/pair.rs"]
mod pair;
#[path = "../tests/support/process.rs"]
mod process;

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use attached::Attached;
use inet_rdma_assembly::{Framing, ReadLimit};
use inet_rdma_engine::VerbsFabric;
use inet_rdma_fabric::{Fabric, FabricError, ListenOptions, QueuePair};
use inet_rdma_socket::acceptor::{AcceptWaker, Acceptor};
use inet_rdma_socket::endpoint::Pollers;
use inet_rdma_socket::poller::Polling;
use message::Messages;
use pair::Side;
use parking_lot::Mutex;

/// How long round trips are measured with nothing else going on.
const QUIET: Duration = Duration::from_secs(5);

/// Nothing that works takes as long as this.
const BOUND: Duration = Duration::from_secs(120);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["echo", to] => echo(to.parse().expect("an address and a port")),
        ["crowd", to, peers] => crowd(
            to.parse().expect("an address and a port"),
            peers.parse().expect("a number"),
        ),
        [address, ref rest @ ..] => {
            let number =
                |index: usize, default| rest.get(index).map_or(default, |text| text.parse().expect("a number"));
            let prefix = rest.get(2..).unwrap_or_default();
            node(
                address.parse().expect("an address"),
                number(0, 100),
                number(1, 5),
                prefix,
            );
        }
        [] => panic!("the address of an RDMA device is missing"),
    }
}

/// As a distribution link has it: without landing buffers.
fn side() -> Side {
    Side {
        ring_bytes: 524_288,
        landing_buffers: 0,
        ..Side::default()
    }
}

fn pollers() -> Arc<Pollers> {
    let spin = Duration::from_micros(20);
    Arc::new(Pollers::start(1, Polling::Adaptive { spin }).expect("a thread"))
}

/// Gives on what the listener's thread accepts.
struct Accepted(Mutex<SyncSender<()>>);

impl AcceptWaker for Accepted {
    fn accepted(&self) {
        let _ = self.0.lock().try_send(());
    }

    fn refused(&self, error: &FabricError) {
        eprintln!("refused: {error}");
    }
}

/// The node whose round trips are measured.
fn node(address: IpAddr, peers: usize, rounds: usize, prefix: &[&str]) {
    process::allow_descriptors(2 * peers as u64 + 200);
    let pollers = pollers();
    let options = ListenOptions {
        address: Some(address),
        ports: 0..=0,
        backlog: u16::try_from(peers + 1).expect("not so many peers"),
        hello_timeout: BOUND,
        parameters: side().parameters(),
    };
    let listener = VerbsFabric.listen(&options).expect("a free port");
    let (accepted, wakes) = sync_channel(1);
    let wakes = Mutex::new(wakes);
    let acceptor = Acceptor::start(listener, peers + 1, Box::new(Accepted(Mutex::new(accepted)))).expect("a thread");
    let to = SocketAddr::new(address, acceptor.port()).to_string();
    let _echo = Peer::start(&[], &["echo", &to]);
    let established = Attached::new(&pollers, side().connection(next(&acceptor, &wakes)));
    round_trips(&established, |start| start.elapsed() < QUIET / 5);
    println!("{peers} peers, round trips in µs: median, 99th percentile, most (number)");
    let mut ratios = [Vec::new(), Vec::new()];
    for round in 1..=rounds {
        let quiet = Times::of(round_trips(&established, |start| start.elapsed() < QUIET));
        let mut crowd = Peer::start(prefix, &["crowd", &to, &peers.to_string()]);
        crowd.expect("ready");
        let up = AtomicUsize::new(0);
        let (connecting, took, ends) = std::thread::scope(|scope| {
            let accepting = scope.spawn(|| {
                let accept = || {
                    let end = Attached::new(&pollers, side().connection(next(&acceptor, &wakes)));
                    up.fetch_add(1, Ordering::Relaxed);
                    end
                };
                (0..peers).map(|_| accept()).collect::<Vec<_>>()
            });
            let start = Instant::now();
            crowd.order();
            let times = round_trips(&established, |_| up.load(Ordering::Relaxed) < peers);
            (times, start.elapsed(), accepting.join().expect("no panic"))
        });
        let connecting = Times::of(connecting);
        crowd.expect("connected");
        let start = Instant::now();
        crowd.order();
        let is_up = |end: &Attached| end.socket.connection().closed().is_none();
        let ending = Times::of(round_trips(&established, |_| ends.iter().any(is_up)));
        println!(
            "round {round}: quiet {quiet}; {:.2} s of connecting {connecting}; {:.2} s of ending {ending}",
            took.as_secs_f64(),
            start.elapsed().as_secs_f64()
        );
        ratios[0].push(connecting.p99 / quiet.p99);
        ratios[1].push(ending.p99 / quiet.p99);
        drop(ends);
        crowd.0.wait().expect("an exit status");
    }
    let [connecting, ending] = ratios.map(|mut ratios| {
        ratios.sort_by(f64::total_cmp);
        format!(
            "{:.2} ({:.2} to {:.2})",
            ratios[rounds / 2],
            ratios[0],
            ratios[rounds - 1]
        )
    });
    println!("99th percentile to the quiet one: {connecting} while peers connect, {ending} while they end");
    established.socket.close();
}

fn next(acceptor: &Acceptor, wakes: &Mutex<Receiver<()>>) -> Box<dyn QueuePair> {
    loop {
        if let Some(queue_pair) = acceptor.accept().expect("a listener") {
            return queue_pair;
        }
        wakes.lock().recv_timeout(BOUND).expect("a peer");
    }
}

/// Times of round trips, in microseconds.
struct Times {
    count: usize,
    p50: f64,
    p99: f64,
    most: f64,
}

impl Times {
    fn of(mut times: Vec<f64>) -> Times {
        times.sort_by(f64::total_cmp);
        let at = |percent: usize| times[(times.len() - 1) * percent / 100];
        Times {
            count: times.len(),
            p50: at(50),
            p99: at(99),
            most: at(100),
        }
    }
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.0}, {:.0}, {:.0} ({})", self.p50, self.p99, self.most, self.count)
    }
}

/// Sends and waits for the answer while the condition holds, which gets the start; at least once.
fn round_trips(end: &Attached, goes_on: impl Fn(Instant) -> bool) -> Vec<f64> {
    let packet = Messages::new(1, &[64]);
    let start = Instant::now();
    let mut times = Vec::new();
    loop {
        let sent = Instant::now();
        send(end, &packet);
        end.read(ReadLimit::bytes(4_096)).expect("it is up");
        times.push(sent.elapsed().as_secs_f64() * 1e6);
        if !goes_on(start) {
            return times;
        }
        assert!(start.elapsed() < BOUND, "the peers do not come");
    }
}

fn send(end: &Attached, messages: &Messages) {
    let framed = end.socket.framing() == Framing::Length4;
    end.write(&messages.gather(framed), usize::MAX).expect("it is up");
}

/// A process with the other end of connections; killed when dropped.
struct Peer(Child, ChildStdin, BufReader<std::process::ChildStdout>);

impl Peer {
    fn start(prefix: &[&str], arguments: &[&str]) -> Peer {
        let this = std::env::current_exe().expect("a program");
        let words: Vec<&std::ffi::OsStr> = prefix
            .iter()
            .map(std::ffi::OsStr::new)
            .chain([this.as_os_str()])
            .collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a process");
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        Peer(child, stdin.expect("piped"), BufReader::new(stdout.expect("piped")))
    }

    /// It goes on with its next step.
    fn order(&mut self) {
        self.1.write_all(b"\n").expect("it lives");
    }

    fn expect(&mut self, word: &str) {
        let mut line = String::new();
        self.2.read_line(&mut line).expect("it lives");
        assert_eq!(line.trim_end(), word, "of a peer");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Answers until its peer ends the connection.
fn echo(to: SocketAddr) {
    let queue_pair = VerbsFabric.connect(to, &side().parameters(), BOUND).expect("the node");
    let end = Attached::new(&pollers(), side().connection(queue_pair));
    let packet = Messages::new(1, &[64]);
    while end.read(ReadLimit::bytes(4_096)).is_ok() {
        send(&end, &packet);
    }
}

/// Connects, and ends the connections, each when the node says so.
fn crowd(to: SocketAddr, peers: usize) {
    process::allow_descriptors(3 * peers as u64 + 200);
    let ordered = || {
        let read = std::io::stdin().read_line(&mut String::new()).expect("standard input");
        assert!(read > 0, "the node has ended");
    };
    let has_begun = AtomicBool::new(false);
    let ends: Vec<_> = std::thread::scope(|scope| {
        let connect = || {
            while !has_begun.load(Ordering::Relaxed) {
                std::thread::park();
            }
            VerbsFabric.connect(to, &side().parameters(), BOUND).expect("the node")
        };
        let threads: Vec<_> = (0..peers).map(|_| scope.spawn(connect)).collect();
        println!("ready");
        ordered();
        has_begun.store(true, Ordering::Relaxed);
        threads.iter().for_each(|thread| thread.thread().unpark());
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    println!("connected");
    ordered();
    drop(ends);
    // Until the node has said goodbye to all.
    std::thread::sleep(Duration::from_secs(3));
}
