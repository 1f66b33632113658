//! Memory windows as a device has them, over a fabric that has none.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use inet_rdma_fabric::{Exposed, Exposer, FabricError, Memory, Misbehaviour, Window, WindowState};
use inet_rdma_stream::RemoteAddress;
use parking_lot::Mutex;

/// The windows of all queue pairs of one fabric, and how they fail. By default each is closed after one poll.
#[derive(Debug, Default)]
pub struct Windows {
    table: Mutex<Vec<Entry>>,
    holds: AtomicBool,
    refuses_open: AtomicBool,
    refuses_close: AtomicBool,
}

#[derive(Debug)]
struct Entry {
    /// The window's place in the wrapped fabric.
    target: RemoteAddress,
    bytes: u64,
    /// The lowest byte of the window's key.
    generation: u8,
    state: WindowState,
    owner: Owner,
}

/// A queue pair that windows belong to, as long as it lives.
type Owner = Weak<()>;

/// Keys of windows begin here; the wrapped fabric's are lower.
const FIRST_KEY: u64 = 1 << 8;

impl Windows {
    /// While it is on, no window becomes closed: all stay `Closing`.
    pub fn hold(&self, on: bool) {
        self.holds.store(on, Ordering::SeqCst);
    }

    /// Opening fails from now on.
    pub fn refuse_open(&self) {
        self.refuses_open.store(true, Ordering::SeqCst);
    }

    /// Closing fails from now on: windows stay open.
    pub fn refuse_close(&self) {
        self.refuses_close.store(true, Ordering::SeqCst);
    }

    /// The address of each window as the peer was told last.
    pub fn targets(&self) -> Vec<RemoteAddress> {
        let table = self.table.lock();
        (0..table.len()).map(|index| address(&table, index)).collect()
    }

    /// Number of windows in this state.
    pub fn count(&self, state: WindowState) -> usize {
        self.table.lock().iter().filter(|entry| entry.state == state).count()
    }

    /// The place to which a write to `target` goes; Err: the peer's device refuses it.
    pub(crate) fn resolve(&self, target: RemoteAddress, bytes: usize) -> Result<RemoteAddress, FabricError> {
        if target.key < FIRST_KEY {
            return Ok(target);
        }
        let table = self.table.lock();
        let index = usize::try_from(target.key / FIRST_KEY - 1).unwrap_or(usize::MAX);
        let found = table.get(index).filter(|entry| {
            let end = target.address.checked_add(bytes as u64);
            entry.state != WindowState::Closed
                && address(&table, index).key == target.key
                && target.address >= entry.target.address
                && end.is_some_and(|end| end <= entry.target.address + entry.bytes)
        });
        let found = found.ok_or(FabricError::PeerMisbehaved(Misbehaviour::TargetOutside { target }))?;
        Ok(RemoteAddress {
            key: found.target.key,
            ..target
        })
    }

    /// Called by a poll of `owner`: closes the windows that are due.
    pub(crate) fn poll(&self, owner: &Arc<()>) {
        if self.holds.load(Ordering::SeqCst) {
            return;
        }
        for entry in &mut *self.table.lock() {
            if entry.is_closing(owner) {
                entry.state = WindowState::Closed;
            }
        }
    }

    /// Whether the next poll of `owner` closes a window.
    pub(crate) fn is_due(&self, owner: &Arc<()>) -> bool {
        !self.holds.load(Ordering::SeqCst) && self.table.lock().iter().any(|entry| entry.is_closing(owner))
    }
}

impl Entry {
    fn is_closing(&self, owner: &Arc<()>) -> bool {
        self.state == WindowState::Closing && std::ptr::eq(self.owner.as_ptr(), Arc::as_ptr(owner))
    }
}

fn address(table: &[Entry], index: usize) -> RemoteAddress {
    let entry = &table[index];
    RemoteAddress {
        key: (index as u64 + 1) * FIRST_KEY + u64::from(entry.generation),
        address: entry.target.address,
    }
}

pub(crate) struct Windowing {
    pub(crate) inner: Arc<dyn Exposer>,
    pub(crate) windows: Arc<Windows>,
    pub(crate) owner: Owner,
}

impl Exposer for Windowing {
    fn expose(&self, bytes: usize) -> Result<Box<dyn Exposed>, FabricError> {
        self.inner.expose(bytes)
    }

    fn expose_windows(&self, bytes: usize, part_bytes: usize) -> Result<Box<dyn Exposed>, FabricError> {
        let inner = self.inner.expose(bytes)?;
        let mut table = self.windows.table.lock();
        let windows = (0..bytes / part_bytes).map(|part| -> Arc<dyn Window> {
            table.push(Entry {
                target: inner.memory().remote_address(part * part_bytes),
                bytes: part_bytes as u64,
                generation: 0,
                state: WindowState::Closed,
                owner: Weak::clone(&self.owner),
            });
            Arc::new(FaultWindow {
                windows: Arc::clone(&self.windows),
                index: table.len() - 1,
            })
        });
        let windows = windows.collect();
        Ok(Box::new(Windowed { inner, windows }))
    }
}

struct Windowed {
    inner: Box<dyn Exposed>,
    windows: Vec<Arc<dyn Window>>,
}

impl Exposed for Windowed {
    fn memory(&self) -> &Arc<dyn Memory> {
        self.inner.memory()
    }

    fn windows(&self) -> Vec<Arc<dyn Window>> {
        self.windows.clone()
    }

    fn revoke(self: Box<Self>) {
        self.inner.revoke();
    }
}

struct FaultWindow {
    windows: Arc<Windows>,
    index: usize,
}

impl Window for FaultWindow {
    fn open(&self) -> Result<RemoteAddress, FabricError> {
        let mut table = self.windows.table.lock();
        let entry = &mut table[self.index];
        if self.windows.refuses_open.load(Ordering::SeqCst) || entry.owner.strong_count() == 0 {
            return Err(FabricError::PeerGone);
        }
        entry.generation = entry.generation.wrapping_add(1);
        entry.state = WindowState::Open;
        Ok(address(&table, self.index))
    }

    fn close(&self) {
        if self.windows.refuses_close.load(Ordering::SeqCst) {
            return;
        }
        let entry = &mut self.windows.table.lock()[self.index];
        if entry.state == WindowState::Open {
            entry.state = WindowState::Closing;
        }
    }

    fn state(&self) -> WindowState {
        self.windows.table.lock()[self.index].state
    }
}
