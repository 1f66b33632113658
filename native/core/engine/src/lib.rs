//! Connections of inet_rdma over any fabric: how their queue pairs are made, and how bytes move. Links and streams are
//! above it.

pub mod attempt;
pub mod connection;
pub mod local;
mod memory_thread;
mod prefetch;
#[cfg(not(feature = "verbs"))]
mod verbs_left_out;

/// The fabric of RDMA devices. In a build without the cargo feature `verbs` each call of it fails.
#[cfg(feature = "verbs")]
pub use inet_rdma_fabric_verbs::VerbsFabric;
#[cfg(not(feature = "verbs"))]
pub use verbs_left_out::VerbsFabric;
