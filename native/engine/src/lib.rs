//! Connections of inet_rdma over any fabric: how they are made, how bytes move, and when to look for them.

pub mod acceptor;
pub mod attempt;
pub mod auto;
pub mod connection;
pub mod endpoint;
pub mod log_limit;
pub mod looking;
mod memory_thread;
pub mod poller;
mod prefetch;
mod scheduling;
pub mod stream_socket;
#[cfg(not(feature = "verbs"))]
mod verbs_left_out;

/// The fabric of RDMA devices. In a build without the cargo feature `verbs` each call of it fails.
#[cfg(feature = "verbs")]
pub use inet_rdma_fabric_verbs::VerbsFabric;
#[cfg(not(feature = "verbs"))]
pub use verbs_left_out::VerbsFabric;
