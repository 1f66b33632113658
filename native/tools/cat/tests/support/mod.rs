//! Real processes of rdma-cat, each bounded in time.
//!
//! They use shm; if INET_RDMA_TEST_VERBS is the address of an RDMA device of this host, verbs.

#![allow(dead_code, reason = "no test uses all of it")]

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStderr, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use inet_rdma_engine::VerbsFabric;
use inet_rdma_fabric::Fabric;
use inet_rdma_fabric_shm::ShmFabric;

/// Bound of each wait: a process that takes longer hangs.
pub const BOUND: Duration = Duration::from_secs(300);

/// Bound of connecting: all tests may run at once in an emulated machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(50);

/// A process. Dropping the value kills it.
pub struct Cat {
    pub child: Child,
    /// Its standard error, except for the line with its port.
    stderr: Option<Receiver<String>>,
}

/// How a process ended.
pub struct Ended {
    pub status: ExitStatus,
    pub output: Vec<u8>,
    pub errors: String,
}

impl Ended {
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }

    #[track_caller]
    pub fn assert(&self, code: i32, says: &str) {
        assert_eq!(self.code(), code, "{}", self.errors);
        assert!(self.errors.contains(says), "no {says:?} in {:?}", self.errors);
    }
}

fn verbs_address() -> Option<IpAddr> {
    let address = std::env::var("INET_RDMA_TEST_VERBS").ok()?;
    Some(address.parse().expect("an address"))
}

/// Which fabric is under test.
pub fn fabric() -> Box<dyn Fabric> {
    match verbs_address() {
        Some(_) => Box::new(VerbsFabric),
        None => Box::new(ShmFabric),
    }
}

/// The address of a port of this host.
pub fn at(port: u16) -> SocketAddr {
    let ip = verbs_address().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    SocketAddr::new(ip, port)
}

pub fn command(arguments: &[&str]) -> Command {
    let program = std::env::var("INET_RDMA_TEST_CAT").unwrap_or(env!("CARGO_BIN_EXE_rdma-cat").to_owned());
    let mut command = Command::new(program);
    command.args(arguments);
    let is_given = arguments.contains(&"--fabric");
    if verbs_address().is_some() && !is_given && matches!(arguments, ["send" | "recv" | "relay", ..]) {
        command.args(["--fabric", "verbs"]);
    }
    if matches!(arguments, ["send" | "relay", ..]) && !arguments.contains(&"--connect-timeout") {
        command.args(["--connect-timeout", &CONNECT_TIMEOUT.as_secs().to_string()]);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

impl Cat {
    pub fn start(command: &mut Command) -> Cat {
        let child = command.spawn().expect("rdma-cat starts");
        Cat { child, stderr: None }
    }

    /// Starts a process that listens on any port. Returns the port, too.
    pub fn listening(command: &mut Command) -> (Cat, u16) {
        let mut cat = Self::start(command);
        let lines = lines_of(cat.child.stderr.take().expect("a pipe"));
        let line = lines.recv_timeout(BOUND).expect("it says on which port it listens");
        let port = line.trim().rsplit(' ').next().and_then(|port| port.parse().ok());
        cat.stderr = Some(lines);
        (cat, port.unwrap_or_else(|| panic!("no port in {line:?}")))
    }

    pub fn stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().expect("a pipe")
    }

    /// Waits for the end of the process. Reads its output meanwhile.
    pub fn wait(mut self) -> Ended {
        drop(self.child.stdin.take());
        let output = self.child.stdout.take().map(|mut pipe| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                pipe.read_to_end(&mut bytes).map(|_| bytes)
            })
        });
        let lines = match (self.stderr.take(), self.child.stderr.take()) {
            (Some(lines), _) => Some(lines),
            (None, Some(pipe)) => Some(lines_of(pipe)),
            (None, None) => None,
        };
        let status = self.status();
        let output = output.map_or_else(Vec::new, |thread| thread.join().expect("no panic").expect("its output"));
        let errors = lines.map_or_else(String::new, |lines| lines.iter().collect());
        Ended { status, output, errors }
    }

    fn status(&mut self) -> ExitStatus {
        let end = Instant::now() + BOUND;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status;
            }
            assert!(Instant::now() < end, "it does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Cat {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines_of(pipe: ChildStderr) -> Receiver<String> {
    let (to, lines) = channel();
    std::thread::spawn(move || {
        let mut reader = std::io::BufReader::new(pipe);
        let mut line = String::new();
        while std::io::BufRead::read_line(&mut reader, &mut line).unwrap_or(0) > 0 {
            if to.send(std::mem::take(&mut line)).is_err() {
                return;
            }
        }
    });
    lines
}

pub fn random(seed: u64, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    fastrand::Rng::with_seed(seed).fill(&mut data);
    data
}

/// A receiver on any port.
pub fn recv(options: &[&str]) -> (Cat, u16) {
    Cat::listening(&mut command(&[&["recv", "0"], options].concat()))
}

/// A sender to this host with `data` on its standard input; the input ends with it.
pub fn send(port: u16, options: &[&str], data: &[u8]) -> Cat {
    let to = at(port).to_string();
    let mut sender = Cat::start(command(&[&["send", &to], options].concat()).stdin(Stdio::piped()));
    let (mut pipe, data) = (sender.stdin(), data.to_vec());
    // The write fails if the sender ends early.
    std::thread::spawn(move || pipe.write_all(&data));
    sender
}
