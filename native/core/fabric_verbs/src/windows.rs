//! Landing buffers behind memory windows: the peer may write only between open and close.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use inet_rdma_fabric::{FabricError, WindowState};
use inet_rdma_stream::RemoteAddress;
use inet_rdma_verbs::memory::{HostMemory, Pages};
use inet_rdma_verbs::window::MemoryWindow;
use parking_lot::{Mutex, MutexGuard};

use crate::budget::{Charge, Need};
use crate::memory::Account;
use crate::refusal::failed_call;

/// One window. Its state changes under the lock of the connection's sending half.
pub(crate) struct Cell {
    state: AtomicU8,
    keyed: Mutex<Keyed>,
    address: u64,
}

pub(crate) struct Keyed {
    /// The window; None: it was taken apart.
    pub(crate) window: Option<MemoryWindow>,
    /// The key of the last bind that was requested: the window's own key once the request is posted.
    pub(crate) key: u32,
    /// Number of the last work request that was posted for it.
    pub(crate) named_by: u64,
}

const OPEN: u8 = 0;
const CLOSING: u8 = 1;
const CLOSED: u8 = 2;

impl Cell {
    fn new(window: MemoryWindow) -> Cell {
        Cell {
            state: AtomicU8::new(CLOSED),
            address: window.address(),
            keyed: Mutex::new(Keyed {
                key: window.key(),
                window: Some(window),
                named_by: 0,
            }),
        }
    }

    pub(crate) fn state(&self) -> WindowState {
        match self.state.load(Ordering::Acquire) {
            CLOSED => WindowState::Closed,
            CLOSING => WindowState::Closing,
            _ => WindowState::Open,
        }
    }

    pub(crate) fn set_state(&self, state: WindowState) {
        let state = match state {
            WindowState::Open => OPEN,
            WindowState::Closing => CLOSING,
            WindowState::Closed => CLOSED,
        };
        self.state.store(state, Ordering::Release);
    }

    /// Notes that the window with `key` has come to `state`. Does nothing if the window was opened again, with another
    /// key.
    pub(crate) fn settle(&self, key: u32, state: WindowState) {
        if self.state() == WindowState::Closing && self.keyed().key == key {
            self.set_state(state);
        }
    }

    pub(crate) fn keyed(&self) -> MutexGuard<'_, Keyed> {
        self.keyed.lock()
    }

    pub(crate) fn remote_address(&self, key: u32) -> RemoteAddress {
        RemoteAddress {
            key: key.into(),
            address: self.address,
        }
    }
}

/// An area with a window for each of its parts.
pub(crate) struct WindowArea {
    cells: Vec<Arc<Cell>>,
    charge: Mutex<Option<Charge>>,
}

impl WindowArea {
    /// Allocates `bytes`, registers each part of `part_bytes`, and makes the windows, which are closed.
    pub(crate) fn make(account: &Account, bytes: usize, part_bytes: usize) -> Result<(Self, Arc<Pages>), FabricError> {
        let charge = account.charge(bytes, Need::More)?;
        let pages = HostMemory::allocate(bytes).map_err(failed_call)?.into_pages();
        let mut cells = Vec::with_capacity(bytes / part_bytes);
        for part in 0..bytes / part_bytes {
            let start = part * part_bytes;
            let window = account.window(&pages, start..start + part_bytes)?;
            cells.push(Arc::new(Cell::new(window)));
        }
        let charge = Mutex::new(Some(charge));
        Ok((WindowArea { cells, charge }, pages))
    }

    pub(crate) fn has(&self, cell: &Arc<Cell>) -> bool {
        self.cells.iter().any(|own| Arc::ptr_eq(own, cell))
    }

    /// Number of the last work request that was posted for one of its windows.
    pub(crate) fn named_by(&self) -> u64 {
        self.cells.iter().map(|cell| cell.keyed().named_by).max().unwrap_or(0)
    }

    /// Takes the windows and their regions apart. The pages stay.
    pub(crate) fn take_apart(&self) {
        for cell in &self.cells {
            let window = cell.keyed().window.take();
            drop(window);
        }
        drop(self.charge.lock().take());
    }

    /// The windows, one for each part, in the order of parts.
    pub(crate) fn cells(&self) -> &[Arc<Cell>] {
        &self.cells
    }
}

/// The areas with windows of one connection. They go before its queue pair, to which a window of soft-RoCE holds a
/// reference while it is bound.
#[derive(Default)]
pub(crate) struct WindowAreas(Mutex<Vec<Arc<WindowArea>>>);

impl WindowAreas {
    pub(crate) fn add(&self, area: &Arc<WindowArea>) {
        self.0.lock().push(Arc::clone(area));
    }

    /// Takes an area apart that no work request names now ([`crate::sending::SendQueue::has_done_with`]): a
    /// request under way would fail, and end the connection.
    pub(crate) fn remove(&self, area: &Arc<WindowArea>) {
        self.0.lock().retain(|other| !Arc::ptr_eq(other, area));
        area.take_apart();
    }
}

impl Drop for WindowAreas {
    fn drop(&mut self) {
        self.0.get_mut().iter().for_each(|area| area.take_apart());
    }
}
