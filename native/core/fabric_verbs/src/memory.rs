//! Registered memory: what the peer writes, and what the device sends from.

use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use inet_rdma_fabric::{FabricError, Memory};
use inet_rdma_stream::RemoteAddress;
use inet_rdma_verbs::memory::{Access, HostMemory, MemoryRegion, Pages};
use inet_rdma_verbs::pd::ProtectionDomain;
use inet_rdma_verbs::window::MemoryWindow;
use parking_lot::Mutex;

use crate::budget::{self, Charge, Need};
use crate::refusal::{self, failed_call};

/// Memory that the peer may write, as the user of a queue pair sees it. The pages outlive their registration: after the
/// end of the queue pair no peer writes, but the bytes that it wrote may still be read.
pub(crate) struct ExposedMemory {
    pages: Arc<Pages>,
    key: u32,
    bytes: usize,
}

impl ExposedMemory {
    pub(crate) fn register(
        account: &Account,
        bytes: usize,
        need: Need,
    ) -> Result<(PinnedRegion, ExposedMemory), FabricError> {
        let region = account.register(bytes, Access::RemoteWrite, need)?;
        let memory = ExposedMemory {
            pages: Arc::clone(region.pages()),
            key: region.remote_key(),
            bytes,
        };
        Ok((region, memory))
    }

    /// Memory that the peer reaches only by the keys of windows.
    pub(crate) fn behind_windows(pages: Arc<Pages>, bytes: usize) -> ExposedMemory {
        ExposedMemory { pages, key: 0, bytes }
    }
}

impl Memory for ExposedMemory {
    fn base(&self) -> *mut u8 {
        self.pages.base()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn remote_address(&self, offset: usize) -> RemoteAddress {
        RemoteAddress {
            key: self.key.into(),
            address: self.pages.base() as u64 + offset as u64,
        }
    }

    fn discard(&self, range: Range<usize>) {
        self.pages.discard(range);
    }
}

/// The regions that were exposed after the queue pair was made. They are dropped with the connection, unless they are
/// revoked before.
#[derive(Default)]
pub(crate) struct Regions(Mutex<Vec<Arc<PinnedRegion>>>);

impl Regions {
    pub(crate) fn add(&self, region: &Arc<PinnedRegion>) {
        self.0.lock().push(Arc::clone(region));
    }

    pub(crate) fn remove(&self, region: &Arc<PinnedRegion>) {
        self.0.lock().retain(|other| !Arc::ptr_eq(other, region));
    }
}

/// Registers memory for one connection, within the bytes that the process may pin.
pub(crate) struct Account {
    pd: Arc<ProtectionDomain>,
    max_bytes: u64,
    pinned: Arc<AtomicU64>,
}

/// A region that counts as pinned as long as it lives.
pub(crate) struct PinnedRegion {
    region: MemoryRegion,
    /// Dropped after the region, whose bytes count until it is deregistered.
    _charge: Charge,
}

impl Deref for PinnedRegion {
    type Target = MemoryRegion;

    fn deref(&self) -> &MemoryRegion {
        &self.region
    }
}

impl Account {
    /// `max_bytes`: see [`inet_rdma_fabric::Parameters::pinned_max_bytes`].
    pub(crate) fn new(pd: Arc<ProtectionDomain>, max_bytes: u64) -> Account {
        Account {
            pd,
            max_bytes,
            pinned: Arc::default(),
        }
    }

    pub(crate) fn register(&self, bytes: usize, access: Access, need: Need) -> Result<PinnedRegion, FabricError> {
        let charge = self.charge(bytes, need)?;
        let region = HostMemory::allocate(bytes)
            .map_err(failed_call)?
            .register(&self.pd, access)
            .map_err(|failed| refusal::registration(bytes, failed))?;
        Ok(PinnedRegion {
            region,
            _charge: charge,
        })
    }

    /// Counts `bytes` as pinned, as long as the result lives.
    pub(crate) fn charge(&self, bytes: usize, need: Need) -> Result<Charge, FabricError> {
        // Whole pages are pinned.
        let pages = bytes.next_multiple_of(rustix::param::page_size());
        budget::take(pages, need, self.max_bytes, &self.pinned)
    }

    /// A window over a part of `pages`, for which there is a charge.
    pub(crate) fn window(&self, pages: &Arc<Pages>, range: Range<usize>) -> Result<MemoryWindow, FabricError> {
        let bytes = range.len();
        MemoryWindow::allocate(&self.pd, pages, range).map_err(|failed| refusal::registration(bytes, failed))
    }

    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.pinned.load(Ordering::Relaxed)
    }
}
