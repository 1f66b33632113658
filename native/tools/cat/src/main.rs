//! `rdma-cat`: a pipe over RDMA. README.md has what it does.
//!
//! One thread reads the input, one sends; the receiver's thread writes out landed data while the sender fills the
//! other landing buffers. The polling thread wakes them.
#![forbid(unsafe_code)]

mod arguments;
mod connect;
mod failure;
mod frame;
mod input;
mod link;
mod listen;
mod output;
mod packet;
mod recv;
mod relay;
mod report;
mod send;
mod shape;

use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::arguments::{Arguments, Command};
use crate::failure::Failure;

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Send(send) => send::run(&send),
        Command::Recv(recv) => recv::run(&recv),
        Command::Relay(relay) => relay::run(&relay),
        Command::Man { directory } => man(directory.as_deref()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("rdma-cat: {failure}");
            failure.exit_code()
        }
    }
}

fn man(directory: Option<&Path>) -> Result<(), Failure> {
    let command = Arguments::command();
    match directory {
        None => clap_mangen::Man::new(command).render(&mut std::io::stdout()),
        Some(directory) => clap_mangen::generate_to(command, directory),
    }
    .map_err(|error| Failure::local("writing the manual pages", error))
}
