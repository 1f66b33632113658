//! Connections of inet_rdma over whatever fabric leads to the peer: their making, their bytes, and when to look for them.

pub mod acceptor;
mod arrived;
pub mod assembly;
pub mod attempt;
pub mod auto;
pub mod connection;
pub mod endpoint;
pub mod fault;
pub mod gather;
mod keeper;
pub mod landing;
pub mod log_limit;
pub mod looking;
pub mod poller;
mod prefetch;
mod scheduling;
#[cfg(feature = "verbs")]
pub mod verbs;
#[cfg(not(feature = "verbs"))]
#[path = "verbs_left_out.rs"]
pub mod verbs;
