//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use inet_rdma_fabric::FabricName;
use inet_rdma_socket::auto::AutoFabric;

const EXAMPLES: &str = "\
Examples:
  Copy a file to another host (start the receiver first):
    there$ rdma-cat recv 7000 > copy
    here$  rdma-cat send there:7000 < original

  Between two processes of one host, over shared memory:
    rdma-cat recv 7000 | wc -c &
    tar -c directory | rdma-cat send localhost:7000

  Through a host in the middle:
    c$ rdma-cat recv 7000 > copy
    b$ rdma-cat relay 7000 c:7000
    a$ rdma-cat send b:7000 original

  Take whatever comes, one after the other, until interrupted:
    rdma-cat recv --count 0 7000 >> log

Exit status:
  0  everything was sent, received, written and verified
  1  reading the input or writing the output on this side failed
  2  wrong usage
  3  no connection: refused, no route, timed out, port taken, no device
  4  the connection was lost, or the peer is no rdma-cat of this version
  5  the far side failed, and said why
  6  what arrived is not what was sent";

/// A pipe over RDMA: what one side reads from its input the other writes to its output.
#[derive(Debug, Parser)]
#[command(name = "rdma-cat", version, after_help = EXAMPLES, propagate_version = true)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Send the input to a receiver or a relay
    Send(Send),
    /// Receive and write to the output
    Recv(Recv),
    /// Receive and pass on, without a copy in between
    Relay(Relay),
    /// Print the manual page, or write the pages of all commands into a directory
    #[command(hide = true)]
    Man {
        /// Directory for the pages
        directory: Option<PathBuf>,
    },
}

/// Options of `send`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Send {
    /// Host (name, IPv4, or IPv6 in brackets) and port of the receiver
    #[arg(value_name = "HOST:PORT")]
    pub to: String,
    /// Files to send, one after the other as one stream; `-` is the standard input [default: -]
    pub files: Vec<PathBuf>,
    /// Leave out the checksum; the length is verified all the same
    #[arg(long)]
    pub no_verify: bool,
    #[command(flatten)]
    pub connecting: Connecting,
    #[command(flatten)]
    pub common: Common,
}

/// Options of `recv`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Recv {
    /// Port to listen on, and the address if not all of this machine
    #[arg(value_name = "[ADDR:]PORT")]
    pub on: String,
    /// File to write to, emptied first; `-` is the standard output
    #[arg(default_value = "-")]
    pub file: PathBuf,
    /// Wait until the file is on the disk before the sender is told that all is well
    #[arg(long)]
    pub sync: bool,
    #[command(flatten)]
    pub listening: Listening,
    #[command(flatten)]
    pub common: Common,
}

/// Options of `relay`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Relay {
    /// Port to listen on, and the address if not all of this machine
    #[arg(value_name = "[ADDR:]PORT")]
    pub on: String,
    /// Host and port of the receiver, or of the next relay
    #[arg(value_name = "HOST:PORT")]
    pub to: String,
    #[command(flatten)]
    pub listening: Listening,
    #[command(flatten)]
    pub connecting: Connecting,
    #[command(flatten)]
    pub common: Common,
}

/// Options of `recv` and `relay`, which listen.
#[derive(Debug, Args)]
pub struct Listening {
    /// Senders to serve, one after the other, then exit; 0: no end
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub count: u64,
}

/// Options of `send` and `relay`, which connect.
#[derive(Debug, Args)]
pub struct Connecting {
    /// Seconds that connecting may take
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub connect_timeout: u32,
}

impl Connecting {
    /// How long connecting may take.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.connect_timeout.into())
    }
}

/// Options of all commands.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// Which fabric to use: shm leads to processes of this host and user, verbs to wherever an RDMA device leads, tcp
    /// to any host
    #[arg(long, value_parser = fabric_parser(), default_value_t = FabricName::Auto)]
    pub fabric: FabricName,
    /// KiB per buffer (4 to 65536)
    #[arg(long, value_name = "KIB", default_value_t = 256, value_parser = clap::value_parser!(u32).range(4..=65536))]
    pub buffer: u32,
    /// Buffers that are under way while another is read or written (2 to 64)
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(2..=64))]
    pub buffers: u16,
    /// No progress bar and no warnings: nothing but errors on standard error
    #[arg(long, short)]
    pub quiet: bool,
    /// A summary of each transfer on standard error, one line of JSON
    #[arg(long)]
    pub json: bool,
}

impl Common {
    /// The fabrics that may be used.
    pub fn fabric(&self) -> AutoFabric {
        AutoFabric(self.fabric)
    }
}

/// The names of fabrics, with their help.
fn fabric_parser() -> impl TypedValueParser<Value = FabricName> {
    let possible = FabricName::ALL.map(|fabric| {
        PossibleValue::new(fabric.name()).help(match fabric {
            FabricName::Auto => "Whichever leads to the peer",
            FabricName::Shm => "Shared memory only",
            FabricName::Verbs => "RDMA devices only",
            FabricName::Tcp => "TCP only",
        })
    });
    PossibleValuesParser::new(possible).try_map(|name| name.parse::<FabricName>())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Arguments;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
