//! The fabric tcp: software queue pairs over TCP connections, for streams between hosts that no RDMA device connects.
//!
//! A transfer is a frame that names a place in the receiver's memory. The receiver polls: it reads the frame's head,
//! checks that it has exposed that place, and has the kernel copy the bytes there. So only this process writes its
//! memory, only while it polls, and never by a withdrawn key.
//!
//! Its unsafe code is in `memory`, which accesses the memory that is exposed.

mod connect;
mod frame;
mod grants;
mod greeting;
mod interest;
mod listener;
mod memory;
mod queue_pair;
mod receiving;
mod sending;
mod socket;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use inet_rdma_fabric::{Fabric, FabricError, FabricName, ListenOptions, Listener, Parameters, QueuePair};

/// Queue pairs over TCP connections, to any host.
#[derive(Debug, Clone, Copy, Default)]
pub struct TcpFabric;

impl Fabric for TcpFabric {
    fn name(&self) -> FabricName {
        FabricName::Tcp
    }

    fn listen(&self, options: &ListenOptions) -> Result<Box<dyn Listener>, FabricError> {
        Ok(Box::new(listener::TcpListener::listen(options)?))
    }

    fn connect_from(
        &self,
        from: Option<IpAddr>,
        to: SocketAddr,
        parameters: &Parameters,
        timeout: Duration,
    ) -> Result<Box<dyn QueuePair>, FabricError> {
        Ok(Box::new(connect::connect(from, to, parameters, timeout)?))
    }
}
