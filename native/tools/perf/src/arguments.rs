//! The command line.

use clap::{Parser, Subcommand};

use crate::order::Order;

/// Measures the stream between two processes, of one host or of two.
#[derive(Debug, Parser)]
#[command(name = "rdma-perf", version)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Take orders on a TCP port, one after the other, until killed
    Server {
        /// Where: address and port; port 0 is any free one, which is printed
        #[arg(value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
        on: String,
    },
    /// Give a server an order, do this side's part, print what both sides saw as a line of JSON
    Client {
        /// Host and port of the server; the host's address decides over which fabric
        #[arg(value_name = "HOST:PORT")]
        to: String,
        /// What is measured, and how
        #[command(flatten)]
        order: Order,
    },
}
