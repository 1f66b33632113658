//! Keys by which the peer may write, and the memory and windows behind them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Weak};

use inet_rdma_fabric::{Exposed, Exposer, FabricError, Memory, Misbehaviour, Window, WindowState};
use inet_rdma_stream::RemoteAddress;
use parking_lot::Mutex;

use crate::memory::Pages;

/// The key of the ring in the hello. Later keys count up from it. No key is given twice, so a withdrawn key never leads
/// anywhere again.
pub(crate) const RING_KEY: u64 = 1;

/// The table of a connection's keys. It lives as long as the queue pair.
///
/// Bytes of the peer are written with the table locked, after a check of the key. So once [`Self::withdraw`] has
/// returned no byte is written by that key, even in the middle of a transfer.
pub(crate) struct Grants(Mutex<Table>);

struct Table {
    grants: HashMap<u64, Grant>,
    next_key: u64,
}

struct Grant {
    pages: Arc<Pages>,
    /// The addresses that the peer may write.
    range: Range<usize>,
}

impl Grants {
    pub(crate) fn new() -> Arc<Grants> {
        Arc::new(Grants(Mutex::new(Table {
            grants: HashMap::new(),
            next_key: RING_KEY,
        })))
    }

    /// Lets the peer write into `range`. Returns the key for it.
    fn grant(&self, pages: &Arc<Pages>, range: Range<usize>) -> u64 {
        let mut table = self.0.lock();
        let key = table.take_key();
        let pages = Arc::clone(pages);
        table.grants.insert(key, Grant { pages, range });
        key
    }

    /// Returns a key that leads nowhere.
    fn reserve(&self) -> u64 {
        self.0.lock().take_key()
    }

    fn withdraw(&self, key: u64) {
        self.0.lock().grants.remove(&key);
    }

    /// Calls `write` with the memory of `target` and the offset of `target` in it. Err: the peer may not write `bytes`
    /// bytes there.
    pub(crate) fn write<R>(
        &self,
        target: RemoteAddress,
        bytes: usize,
        write: impl FnOnce(&Pages, usize) -> R,
    ) -> Result<R, Misbehaviour> {
        let table = self.0.lock();
        let place = table.grants.get(&target.key).and_then(|grant| {
            let start = usize::try_from(target.address).ok()?;
            let end = start.checked_add(bytes)?;
            let is_inside = grant.range.start <= start && end <= grant.range.end;
            is_inside.then_some((&grant.pages, start))
        });
        match place {
            Some((pages, offset)) => Ok(write(pages, offset)),
            None => Err(Misbehaviour::WriteOutside { target, bytes }),
        }
    }
}

impl Table {
    fn take_key(&mut self) -> u64 {
        let key = self.next_key;
        self.next_key += 1;
        key
    }
}

/// Memory behind one key: a ring, or an area of landing buffers.
struct ExposedMemory {
    pages: Arc<Pages>,
    key: u64,
}

impl Memory for ExposedMemory {
    fn base(&self) -> *mut u8 {
        self.pages.base()
    }

    fn bytes(&self) -> usize {
        self.pages.bytes()
    }

    fn remote_address(&self, offset: usize) -> RemoteAddress {
        RemoteAddress {
            key: self.key,
            address: offset as u64,
        }
    }

    fn discard(&self, range: Range<usize>) {
        self.pages.discard(range);
    }
}

/// Makes the ring of the hello. `grants` are new, so that its key is [`RING_KEY`].
pub(crate) fn expose_ring(grants: &Grants, bytes: usize) -> Result<Arc<dyn Memory>, FabricError> {
    let pages = Arc::new(Pages::new(bytes)?);
    let key = grants.grant(&pages, 0..bytes);
    Ok(Arc::new(ExposedMemory { pages, key }))
}

/// Exposes memory that the system gives page by page, when the pages are touched.
pub(crate) struct TcpExposer(Weak<Grants>);

impl TcpExposer {
    pub(crate) fn new(grants: &Arc<Grants>) -> TcpExposer {
        TcpExposer(Arc::downgrade(grants))
    }

    fn grants(&self) -> Result<Arc<Grants>, FabricError> {
        self.0.upgrade().ok_or(FabricError::PeerGone)
    }

    fn area(&self, pages: Arc<Pages>, key: u64, windows: Vec<Arc<TcpWindow>>) -> Box<dyn Exposed> {
        Box::new(ExposedArea {
            grants: Weak::clone(&self.0),
            key,
            memory: Arc::new(ExposedMemory { pages, key }),
            windows,
        })
    }
}

impl Exposer for TcpExposer {
    fn expose(&self, bytes: usize) -> Result<Box<dyn Exposed>, FabricError> {
        let grants = self.grants()?;
        let pages = Arc::new(Pages::new(bytes)?);
        let key = grants.grant(&pages, 0..bytes);
        Ok(self.area(pages, key, Vec::new()))
    }

    fn expose_windows(&self, bytes: usize, part_bytes: usize) -> Result<Box<dyn Exposed>, FabricError> {
        let grants = self.grants()?;
        let pages = Arc::new(Pages::new(bytes)?);
        let parts = bytes.checked_div(part_bytes).unwrap_or(0);
        let windows = (0..parts).map(|part| {
            let start = part * part_bytes;
            Arc::new(TcpWindow {
                grants: Weak::clone(&self.0),
                pages: Arc::clone(&pages),
                range: start..start + part_bytes,
                key: Mutex::new(None),
            })
        });
        let windows = windows.collect();
        // The peer may write through windows only: no key leads to the area as a whole.
        let key = grants.reserve();
        Ok(self.area(pages, key, windows))
    }
}

struct ExposedArea {
    grants: Weak<Grants>,
    key: u64,
    memory: Arc<dyn Memory>,
    windows: Vec<Arc<TcpWindow>>,
}

impl Exposed for ExposedArea {
    fn memory(&self) -> &Arc<dyn Memory> {
        &self.memory
    }

    fn windows(&self) -> Vec<Arc<dyn Window>> {
        let windows = self.windows.iter();
        windows.map(|window| Arc::clone(window) as Arc<dyn Window>).collect()
    }

    fn revoke(self: Box<Self>) {
        if let Some(grants) = self.grants.upgrade() {
            grants.withdraw(self.key);
        }
        self.windows.iter().for_each(|window| window.close());
    }
}

/// A part of an area, with a key of its own while it is open. It is closed as soon as [`Window::close`] returns.
struct TcpWindow {
    grants: Weak<Grants>,
    pages: Arc<Pages>,
    range: Range<usize>,
    /// None: the window is closed. Locked while the window is opened or closed.
    key: Mutex<Option<u64>>,
}

impl Window for TcpWindow {
    fn open(&self) -> Result<RemoteAddress, FabricError> {
        let grants = self.grants.upgrade().ok_or(FabricError::PeerGone)?;
        let mut open = self.key.lock();
        let key = grants.grant(&self.pages, self.range.clone());
        if let Some(before) = open.replace(key) {
            grants.withdraw(before);
        }
        Ok(RemoteAddress {
            key,
            address: self.range.start as u64,
        })
    }

    fn close(&self) {
        let mut open = self.key.lock();
        if let (Some(key), Some(grants)) = (*open, self.grants.upgrade()) {
            grants.withdraw(key);
        }
        // Without grants the queue pair is gone, and nothing writes.
        *open = None;
    }

    fn state(&self) -> WindowState {
        match *self.key.lock() {
            Some(_) => WindowState::Open,
            None => WindowState::Closed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may_write(grants: &Grants, target: RemoteAddress, bytes: usize) -> bool {
        grants.write(target, bytes, |_, _| ()).is_ok()
    }

    #[test]
    fn a_write_must_lie_inside_as_a_whole() {
        let grants = Grants::new();
        let ring = expose_ring(&grants, 100).expect("memory");
        assert_eq!(
            ring.remote_address(7),
            RemoteAddress {
                key: RING_KEY,
                address: 7
            }
        );
        for (address, bytes, may) in [
            (0, 0, true),
            (0, 100, true),
            (100, 0, true),
            (99, 1, true),
            (99, 2, false),
            (0, 101, false),
            (101, 0, false),
            (u64::MAX, 1, false),
            (u64::MAX - 3, usize::MAX, false),
        ] {
            let target = RemoteAddress { key: RING_KEY, address };
            assert_eq!(may_write(&grants, target, bytes), may, "{bytes} at {address}");
        }
        for key in [0, RING_KEY + 1, u64::MAX] {
            assert!(!may_write(&grants, RemoteAddress { key, address: 0 }, 1), "{key}");
        }
    }

    #[test]
    fn a_key_leads_nowhere_once_it_is_taken_back() {
        let grants = Grants::new();
        let exposer = TcpExposer::new(&grants);
        let area = exposer.expose(64).expect("memory");
        let target = area.memory().remote_address(0);
        assert!(may_write(&grants, target, 64));
        area.revoke();
        assert!(!may_write(&grants, target, 1));

        let area = exposer.expose_windows(100, 40).expect("memory");
        let windows = area.windows();
        assert_eq!(windows.len(), 2, "whole parts");
        assert!(
            !may_write(&grants, area.memory().remote_address(0), 1),
            "only through windows"
        );
        let first = windows[1].open().expect("a window");
        let second = windows[1].open().expect("a window");
        assert_eq!((first.address, second.address), (40, 40));
        assert!(!may_write(&grants, first, 1) && may_write(&grants, second, 40) && !may_write(&grants, second, 41));
        assert!(!may_write(&grants, RemoteAddress { address: 39, ..second }, 1));
        windows[1].close();
        assert_eq!(windows[1].state(), WindowState::Closed);
        assert!(!may_write(&grants, second, 1));
        let third = windows[1].open().expect("a window");
        area.revoke();
        assert!(!may_write(&grants, third, 1));
        drop(grants);
        assert!(windows[0].open().is_err() && exposer.expose(1).is_err());
        windows[0].close();
    }
}
