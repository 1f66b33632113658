//! Connections, polling threads and fabrics of inet_rdma.

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
mod primitive;
mod scheduling;
pub mod shm;
#[cfg(feature = "verbs")]
pub mod verbs;
#[cfg(not(feature = "verbs"))]
#[path = "verbs_left_out.rs"]
pub mod verbs;

/// The effective user of this process, whom a peer over shm must share.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}
