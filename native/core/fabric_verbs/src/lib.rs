//! The verbs fabric: reliable connected queue pairs of an RDMA device (InfiniBand, RoCE, iWARP), made by the connection
//! manager.
//!
//! Each side registers three pieces of memory at the start: the ring, which the peer may write, the staging area that
//! outgoing bytes are copied to (the user's memory is not registered), and the slots of control messages. Landing
//! buffers and larger rings are registered later. A transfer is one RDMA write with the notice as its immediate; iWARP
//! has no immediates, so there a send of four bytes follows. Controls are sends. A queue pair belongs to a protection
//! domain of its own, so that a peer's key is worth nothing on another connection.
//!
//! The unsafe code is in the crate `inet_rdma_verbs`.
#![forbid(unsafe_code)]

mod backlog;
mod budget;
mod connect;
mod connection;
mod connection_end;
mod devices;
mod ended;
mod events;
mod exposer;
mod gather;
mod listener;
mod mailbox;
mod memory;
mod network;
mod ports;
mod queue_pair;
mod receiving;
mod refusal;
mod registration;
mod registry;
mod sending;
mod staging;
mod teardown;
mod trial;
mod trial_report;
mod windows;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use inet_rdma_fabric::{Fabric, FabricError, FabricName, ListenOptions, Listener, Parameters, QueuePair, Tried};
use inet_rdma_verbs::cm::{CmId, EventChannel};

/// Queue pairs of RDMA devices.
#[derive(Debug, Clone, Copy, Default)]
pub struct VerbsFabric;

impl VerbsFabric {
    /// Whether this machine has the libraries, modules and devices that the fabric needs.
    pub fn check(self) -> Result<(), FabricError> {
        refusal::check_machine()
    }

    /// Bytes that this process has pinned for devices.
    pub fn pinned_bytes(self) -> u64 {
        budget::pinned_bytes()
    }

    /// What connections of this process on the device of this name do without: it has failed a self-test, or its driver
    /// is known not to do it.
    pub fn without(self, device: &str) -> Vec<Tried> {
        devices::without(device)
    }

    /// Which of these addresses of this machine belong to an RDMA device, in their order. Loopback addresses do not:
    /// the kernel lends them to any device. Nor do link-local ones, which no peer can name without an interface.
    /// librdmacm opens each device that it finds so, and keeps it open until the device is removed.
    pub fn addresses_of_devices(self, addresses: &[IpAddr]) -> Result<Vec<IpAddr>, FabricError> {
        let channel = Arc::new(EventChannel::create().map_err(refusal::no_connection_manager)?);
        let belongs = |address: IpAddr| {
            let is_usable = match address {
                IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_unspecified(),
                IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unspecified() && !v6.is_unicast_link_local(),
            };
            // Binding fails if the address belongs to no device, or to another machine.
            is_usable
                && CmId::create(&channel).is_ok_and(|id| {
                    let is_bound = id.bind(SocketAddr::new(address, 0)).is_ok() && id.device().is_some();
                    // Where the thread hangs, the removal of the device waits for the end of this process.
                    if let (true, Ok(running)) = (is_bound, events::Events::running()) {
                        running.watch_for_removal(&id);
                    }
                    is_bound
                })
        };
        Ok(addresses.iter().copied().filter(|address| belongs(*address)).collect())
    }
}

impl Fabric for VerbsFabric {
    fn name(&self) -> FabricName {
        FabricName::Verbs
    }

    fn listen(&self, options: &ListenOptions) -> Result<Box<dyn Listener>, FabricError> {
        Ok(Box::new(listener::VerbsListener::listen(options)?))
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
