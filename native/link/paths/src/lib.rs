//! The paths of a distribution link: which of them carries it, and which is suspected. No I/O, and no clock: the caller
//! gives the time.
//!
//! A link has a TCP connection, a queue pair, or both. The peer's *host* answers what is sent over a path: its kernel
//! acknowledges segments, its device completes requests, whether the peer's process runs or not. A path whose host
//! owes an answer for the time of the option `suspect_after_ms` is [suspected](Paths): it still carries, and the guard
//! tries others beside it. A suspicion ends when the path answers ([`Notice::Trusted`]) or when it is lost or given up
//! ([`Paths::remove`]).
//!
//! A path at rest costs nothing, and one that is acknowledged a look in each of these times. The caller reports writes
//! ([`Paths::handle_data_written`], [`Paths::handle_tick_written`]) and looks when [`Paths::at`] has come.
//!
//! Beside it the other questions of time: how long no path carried the link ([`Outage`]), whether the peer takes bytes
//! ([`Stall`]), whether the link's traffic has earned a queue pair ([`TrafficMeter`]), how often bytes were changed on
//! their way ([`Damages`]), and whether a peer that has sent packets has fallen silent ([`Silence`]).
#![forbid(unsafe_code)]

mod damage;
mod look;
mod outage;
mod paths;
mod patience;
mod silence;
mod stall;
mod traffic;
mod watch;

#[cfg(test)]
mod tests;

pub use damage::Damages;
pub use look::{Debt, Look};
pub use outage::Outage;
pub use paths::{CarryingPath, Counts, LinkState, Notice, Path, Paths, State};
pub use silence::Silence;
pub use stall::{Stall, StallChange};
pub use traffic::{EARNED_PACKETS, Traffic, TrafficMeter};
