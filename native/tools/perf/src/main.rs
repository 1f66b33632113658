//! `rdma-perf`: measures the stream between two processes, of one host or of two. bench/README.md has what it is for.
//!
//! A server waits for orders on a TCP port. A client sends it one, both connect over the fabric under test, and the
//! server answers with its counts. Nothing goes over TCP in between.
#![forbid(unsafe_code)]

mod arguments;
mod blast;
mod buffer;
mod client;
mod control;
mod failure;
mod gauge;
mod link;
mod message;
mod order;
mod pingpong;
mod server;

use std::process::ExitCode;

use clap::Parser;

use crate::arguments::{Arguments, Command};

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Server { on } => server::run(&on),
        Command::Client { to, order } => client::run(&to, &order),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("rdma-perf: {failure}");
            ExitCode::FAILURE
        }
    }
}
