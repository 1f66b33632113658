//! The TCP connection for orders and results: lines of JSON.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::gauge::Seen;

const LINE_BYTES_MAX: u64 = 65_536;

/// A message of the server.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Connect to this port.
    Port(u16),
    /// The measurement is over; what the server saw.
    Seen(Seen),
    /// The measurement failed; the reason.
    Failed(String),
}

pub struct Control {
    lines: BufReader<TcpStream>,
}

impl Control {
    pub fn new(stream: TcpStream) -> Self {
        Self {
            lines: BufReader::new(stream),
        }
    }

    pub fn say(&mut self, what: &impl Serialize) -> Result<(), Failure> {
        let line = serde_json::to_string(what).map_err(io::Error::from);
        line.and_then(|line| self.lines.get_mut().write_all(format!("{line}\n").as_bytes()))
            .map_err(Failure::control("writing to the other side"))
    }

    /// Whether the other side has hung up. Does not wait.
    pub fn is_over(&self) -> bool {
        let stream = self.lines.get_ref();
        let over = stream.set_nonblocking(true).is_err() || matches!(stream.peek(&mut [0]), Ok(0));
        over || stream.set_nonblocking(false).is_err()
    }

    /// Receives a message of the other side.
    pub fn hear<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let mut line = String::new();
        (&mut self.lines)
            .take(LINE_BYTES_MAX)
            .read_line(&mut line)
            .and_then(|_| serde_json::from_str(&line).map_err(io::Error::from))
            .map_err(Failure::control(
                "reading from the other side, which must be an rdma-perf of the same build",
            ))
    }
}
