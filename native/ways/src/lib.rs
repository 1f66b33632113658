//! The paths of a distribution link: which of them carries it, and which is suspected. No I/O, and no clock: the caller
//! gives the time.
//!
//! A link has a TCP connection, a queue pair, or both. The peer's *host* answers what is sent over a path: its kernel
//! acknowledges segments, its device completes requests, whether the peer's process runs or not. A path whose host
//! owes an answer for the time of the option `dead_after_ms` is [suspected](Ways): it carries on, and the carrier
//! tries others beside it. A suspicion ends when the path answers ([`Notice::Trusted`]) or when it is lost or given up
//! ([`Ways::remove`]).
//!
//! A path at rest costs nothing, and one that is acknowledged a look in each of these times. The caller tells of writes
//! ([`Ways::handle_loud`], [`Ways::handle_quiet`]) and looks when [`Ways::at`] has come.
#![forbid(unsafe_code)]

mod look;
mod patience;
mod state;
mod watch;
mod ways;

#[cfg(test)]
mod tests;

pub use look::{Debt, Look};
pub use state::{Carrier, LinkState, State};
pub use ways::{Counts, Notice, Way, Ways};
