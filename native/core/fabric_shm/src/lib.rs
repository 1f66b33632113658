//! The shm fabric: software queue pairs in shared memory between two processes of one host, run by one user. Processes
//! of several network namespaces, and of users that are allowed, meet in a directory that they share (`directory`).
//!
//! Each side makes one sealed memory file that the peer writes: a receive queue, the ring, the landing area. Both map
//! both files. A transfer is a copy into the peer's memory and an entry in its receive queue; no system call, unless
//! the peer sleeps and wants to be woken. The processes meet over a Unix socket, which then stays open: it carries the
//! wake-ups, and its end-of-file shows the death of either process at once.
//!
//! Its unsafe code is in `memory`, which accesses mapped memory, in `mapping`, which gives pages back, and in
//! `primitive` and `prefetch`.

mod connect;
pub mod directory;
mod exposer;
mod layout;
pub mod listener;
mod mapping;
mod memory;
pub mod own_name;
pub mod peer;
mod prefetch;
mod primitive;
mod queue;
mod queue_pair;
mod rendezvous;
pub mod socket_name;
mod users;
mod wakeup;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use inet_rdma_fabric::{Fabric, FabricError, FabricName, ListenOptions, Listener, Parameters, QueuePair};

use socket_name::SocketName;

/// The effective user of this process.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Connects to the process of this network namespace that has this name; blocks until `timeout` has passed at most.
pub fn connect_named(
    name: &SocketName,
    parameters: &Parameters,
    timeout: Duration,
) -> Result<Box<dyn QueuePair>, FabricError> {
    Ok(Box::new(connect::connect(&name.address()?, 0, parameters, timeout)?))
}

/// Queue pairs in shared memory, between processes of one host.
#[derive(Debug, Clone, Copy, Default)]
pub struct ShmFabric;

impl Fabric for ShmFabric {
    fn name(&self) -> FabricName {
        FabricName::Shm
    }

    fn listen(&self, options: &ListenOptions) -> Result<Box<dyn Listener>, FabricError> {
        Ok(Box::new(listener::ShmListener::listen(options)?))
    }

    fn connect_from(
        &self,
        _from: Option<IpAddr>,
        to: SocketAddr,
        parameters: &Parameters,
        timeout: Duration,
    ) -> Result<Box<dyn QueuePair>, FabricError> {
        let address = rendezvous::address(to.port())?;
        Ok(Box::new(connect::connect(&address, to.port(), parameters, timeout)?))
    }
}
