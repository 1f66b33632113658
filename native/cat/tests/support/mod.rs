//! Real processes of rdma-cat, each bounded in time.

#![allow(dead_code, reason = "no test uses all of it")]

use std::io::{Read, Write};
use std::process::{Child, ChildStderr, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Nothing that works takes as long as this; whatever takes longer hangs.
pub const BOUND: Duration = Duration::from_secs(60);

/// A process, killed at the latest when this is dropped.
pub struct Cat {
    pub child: Child,
    /// What it said before its port was read.
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

pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rdma-cat"));
    command
        .args(arguments)
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

    /// Starts one that listens on any port; and the port.
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

    /// Waits for the end, and takes all that it says meanwhile.
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
    let to = format!("localhost:{port}");
    let mut sender = Cat::start(command(&[&["send", &to], options].concat()).stdin(Stdio::piped()));
    let (mut pipe, data) = (sender.stdin(), data.to_vec());
    // It ends early where the sender does.
    std::thread::spawn(move || pipe.write_all(&data));
    sender
}
