//! The memory that the peer writes.

use std::sync::Arc;

use inet_rdma_stream::RemoteAddress;
use inet_rdma_verbs::memory::{Access, HostMemory, MemoryRegion, Pages};
use inet_rdma_verbs::pd::ProtectionDomain;

use super::refusal;
use crate::fabric::{FabricError, Memory, Parameters};

/// Ring and landing area, as the user of a queue pair sees them. The pages outlive their registration: when the queue pair
/// is gone no peer writes any more, but what it wrote may still be read.
pub(super) struct ExposedMemory {
    pages: Arc<Pages>,
    key: u32,
    ring_bytes: usize,
    landing_offset: usize,
    landing_bytes: usize,
}

impl ExposedMemory {
    /// Allocates and registers ring and landing area of the sizes in the parameters.
    pub(super) fn register(
        pd: &Arc<ProtectionDomain>,
        parameters: &Parameters,
    ) -> Result<(MemoryRegion, ExposedMemory), FabricError> {
        let ring_bytes = parameters.limits.ring_bytes as usize;
        let landing_offset = ring_bytes.next_multiple_of(rustix::param::page_size());
        let landing_bytes = parameters.landing_bytes as usize;
        let region = register(pd, landing_offset + landing_bytes, Access::RemoteWrite)?;
        let memory = ExposedMemory {
            pages: Arc::clone(region.pages()),
            key: region.remote_key(),
            ring_bytes,
            landing_offset,
            landing_bytes,
        };
        Ok((region, memory))
    }
}

impl Memory for ExposedMemory {
    fn base(&self) -> *mut u8 {
        self.pages.base()
    }

    fn ring_bytes(&self) -> usize {
        self.ring_bytes
    }

    fn landing_offset(&self) -> usize {
        self.landing_offset
    }

    fn landing_bytes(&self) -> usize {
        self.landing_bytes
    }

    fn remote_address(&self, offset: usize) -> RemoteAddress {
        RemoteAddress {
            key: self.key.into(),
            address: self.pages.base() as u64 + offset as u64,
        }
    }
}

/// Fresh memory, registered.
pub(super) fn register(pd: &Arc<ProtectionDomain>, bytes: usize, access: Access) -> Result<MemoryRegion, FabricError> {
    let memory = HostMemory::allocate(bytes)?;
    memory
        .register(pd, access)
        .map_err(|failed| refusal::registration(bytes, failed))
}
