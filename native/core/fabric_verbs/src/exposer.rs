//! Memory that a connection exposes to its peer beside the first ring, as the user of the connection sees it.

use std::sync::{Arc, Weak};

use inet_rdma_fabric::{Exposed, Exposer, FabricError, Memory, Window, WindowState};
use inet_rdma_stream::RemoteAddress;

use crate::budget::Need;
use crate::connection::Connection;
use crate::memory::{Account, ExposedMemory, PinnedRegion, Regions};
use crate::windows::{Cell, WindowArea, WindowAreas};

/// Registers memory in the protection domain of a queue pair.
pub(crate) struct VerbsExposer {
    account: Weak<Account>,
    regions: Weak<Regions>,
    areas: Weak<WindowAreas>,
    connection: Weak<Connection>,
    peer_ring: RemoteAddress,
}

impl VerbsExposer {
    /// The exposer of a connection whose peer's first ring is `peer_ring`. It keeps none of the connection's resources
    /// alive.
    pub(crate) fn new(connection: &Arc<Connection>, peer_ring: RemoteAddress) -> VerbsExposer {
        VerbsExposer {
            account: Arc::downgrade(&connection.account),
            regions: Arc::downgrade(&connection.regions),
            areas: Arc::downgrade(&connection.areas),
            connection: Arc::downgrade(connection),
            peer_ring,
        }
    }

    /// The windows of an area as the user of the connection sees them.
    fn windows(&self, area: &WindowArea) -> Vec<Arc<dyn Window>> {
        let window = |cell: &Arc<Cell>| -> Arc<dyn Window> {
            Arc::new(VerbsWindow {
                cell: Arc::clone(cell),
                connection: Weak::clone(&self.connection),
            })
        };
        area.cells().iter().map(window).collect()
    }
}

impl Exposer for VerbsExposer {
    fn expose(&self, bytes: usize) -> Result<Box<dyn Exposed>, FabricError> {
        let account = self.account.upgrade().ok_or(FabricError::PeerGone)?;
        let (region, memory) = ExposedMemory::register(&account, bytes, Need::More)?;
        let region = Arc::new(region);
        let regions = self.regions.upgrade().ok_or(FabricError::PeerGone)?;
        regions.add(&region);
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
            windows: self.windows(&area),
            connection: Weak::clone(&self.connection),
            peer_ring: self.peer_ring,
            area,
            memory: Arc::new(ExposedMemory::behind_windows(pages, bytes)),
            areas: Weak::clone(&self.areas),
        }))
    }
}

/// Memory in which the peer may write only through open windows.
struct Windowed {
    windows: Vec<Arc<dyn Window>>,
    area: Arc<WindowArea>,
    memory: Arc<dyn Memory>,
    areas: Weak<WindowAreas>,
    /// As with a window: only calls of the connection come here.
    connection: Weak<Connection>,
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
        self.connection.upgrade().is_none_or(|connection| {
            connection.with_sending(|sending, outlet| sending.has_done_with(outlet, &self.area, self.peer_ring))
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
            regions.remove(&self.region);
        }
    }
}

struct VerbsWindow {
    cell: Arc<Cell>,
    /// Only calls of the connection, which holds its resources, come here: none drops the last reference.
    connection: Weak<Connection>,
}

impl Window for VerbsWindow {
    fn open(&self) -> Result<RemoteAddress, FabricError> {
        let connection = self.connection.upgrade().ok_or(FabricError::PeerGone)?;
        connection.with_sending(|sending, outlet| sending.open_window(outlet, &self.cell))
    }

    fn close(&self) {
        if let Some(connection) = self.connection.upgrade() {
            connection.with_sending(|sending, outlet| sending.close_window(outlet, &self.cell));
        }
    }

    fn state(&self) -> WindowState {
        self.cell.state()
    }
}
