//! Registered memory: what the peer writes, and what the device sends from.

use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use inet_rdma_fabric::budget::{self, Charge, Need};
use inet_rdma_fabric::{Exposed, Exposer, FabricError, Memory, Window};
use inet_rdma_stream::RemoteAddress;
use inet_rdma_verbs::memory::{Access, HostMemory, MemoryRegion, Pages};
use inet_rdma_verbs::pd::ProtectionDomain;
use inet_rdma_verbs::window::MemoryWindow;
use parking_lot::Mutex;

use crate::parts::Parts;
use crate::refusal::{self, failed_call};
use crate::windows::{WindowArea, WindowAreas};

/// Memory that the peer may write, as the user of a queue pair sees it. The pages outlive their registration: when the queue
/// pair is gone no peer writes any more, but what it wrote may still be read.
pub(crate) struct ExposedMemory {
    pages: Arc<Pages>,
    key: u32,
    bytes: usize,
}

impl ExposedMemory {
    /// Allocates and registers `bytes`.
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

/// The regions of a queue pair that were exposed after it was made. They go with its parts, unless they are revoked before.
#[derive(Default)]
pub(crate) struct Regions(Mutex<Vec<Arc<PinnedRegion>>>);

/// Registers memory in the protection domain of a queue pair.
pub(crate) struct VerbsExposer {
    pub(crate) account: Weak<Account>,
    pub(crate) regions: Weak<Regions>,
    pub(crate) areas: Weak<WindowAreas>,
    pub(crate) parts: Weak<Parts>,
    /// The peer's first ring.
    pub(crate) peer_ring: RemoteAddress,
}

impl Exposer for VerbsExposer {
    fn expose(&self, bytes: usize) -> Result<Box<dyn Exposed>, FabricError> {
        let account = self.account.upgrade().ok_or(FabricError::PeerGone)?;
        let (region, memory) = ExposedMemory::register(&account, bytes, Need::More)?;
        let region = Arc::new(region);
        let regions = self.regions.upgrade().ok_or(FabricError::PeerGone)?;
        regions.0.lock().push(Arc::clone(&region));
        Ok(Box::new(Registered {
            region,
            memory: Arc::new(memory),
            regions: Weak::clone(&self.regions),
        }))
    }

    fn expose_windows(&self, bytes: usize, part_bytes: usize) -> Result<Box<dyn Exposed>, FabricError> {
        let account = self.account.upgrade().ok_or(FabricError::PeerGone)?;
        let Ok((area, pages)) = WindowArea::make(&account, bytes, part_bytes) else {
            return self.expose(bytes);
        };
        let area = Arc::new(area);
        self.areas.upgrade().ok_or(FabricError::PeerGone)?.add(&area);
        Ok(Box::new(Windowed {
            windows: area.windows(&self.parts),
            parts: Weak::clone(&self.parts),
            peer_ring: self.peer_ring,
            area,
            memory: Arc::new(ExposedMemory { pages, key: 0, bytes }),
            areas: Weak::clone(&self.areas),
        }))
    }
}

/// Memory of which the peer may write what its windows open.
struct Windowed {
    windows: Vec<Arc<dyn Window>>,
    area: Arc<WindowArea>,
    memory: Arc<dyn Memory>,
    areas: Weak<WindowAreas>,
    /// As a window's: only calls of the connection come here.
    parts: Weak<Parts>,
    peer_ring: RemoteAddress,
}

impl Exposed for Windowed {
    fn memory(&self) -> &Arc<dyn Memory> {
        &self.memory
    }

    fn windows(&self) -> Vec<Arc<dyn Window>> {
        self.windows.clone()
    }

    fn is_unused(&self) -> bool {
        self.parts.upgrade().is_none_or(|parts| {
            parts.with_sending(|sending, outlet| sending.has_done_with(outlet, &self.area, self.peer_ring))
        })
    }

    fn revoke(self: Box<Self>) {
        if let Some(areas) = self.areas.upgrade().filter(|_| self.is_unused()) {
            areas.remove(&self.area);
        }
    }
}

struct Registered {
    region: Arc<PinnedRegion>,
    memory: Arc<dyn Memory>,
    regions: Weak<Regions>,
}

impl Exposed for Registered {
    fn memory(&self) -> &Arc<dyn Memory> {
        &self.memory
    }

    fn revoke(self: Box<Self>) {
        if let Some(regions) = self.regions.upgrade() {
            regions.0.lock().retain(|region| !Arc::ptr_eq(region, &self.region));
        }
    }
}

/// Registers memory for one connection, within what the process may pin.
pub(crate) struct Account {
    pd: Arc<ProtectionDomain>,
    max_bytes: u64,
    pinned: Arc<AtomicU64>,
}

/// A region that counts as pinned as long as it lives.
pub(crate) struct PinnedRegion {
    region: MemoryRegion,
    /// After the region: it counts until it is deregistered.
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

    /// Fresh memory, registered.
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

    /// Bytes that are pinned for the connection.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.pinned.load(Ordering::Relaxed)
    }
}
