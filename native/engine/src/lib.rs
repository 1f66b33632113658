//! Connections, polling threads and fabrics of inet_rdma.

pub mod acceptor;
mod arrived;
pub mod assembly;
pub mod attempt;
pub mod auto;
#[cfg_attr(not(feature = "verbs"), allow(dead_code, reason = "only verbs pins memory"))]
pub mod budget;
pub mod connection;
pub mod endpoint;
mod event;
pub mod fabric;
pub mod fault;
pub mod gather;
mod keeper;
pub mod landing;
pub mod log_limit;
pub mod looking;
mod misbehaviour;
pub mod poller;
mod primitive;
mod scheduling;
pub mod shm;
mod signals;
mod threads;
#[cfg(feature = "verbs")]
pub mod verbs;
#[cfg(not(feature = "verbs"))]
#[path = "verbs_left_out.rs"]
pub mod verbs;
mod waiting;

/// The effective user of this process, whom a peer over shm must share.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}
