//! Memory windows: their binds and ends go through the send queue, in one order with the control messages.

use std::sync::Arc;

use inet_rdma_fabric::{FabricError, WindowState};
use inet_rdma_stream::RemoteAddress;
use inet_rdma_verbs::window::MemoryWindow;

use super::{Outlet, SendQueue};
use crate::backlog::Request;
use crate::windows::{Cell, WindowArea};

impl SendQueue {
    /// Opens a window; if it is open already, invalidates it first. Returns the address that the peer must be told.
    pub(crate) fn open_window(&mut self, outlet: &Outlet<'_>, cell: &Arc<Cell>) -> Result<RemoteAddress, FabricError> {
        let before = cell.keyed().key;
        let key = MemoryWindow::key_after(before);
        if cell.state() == WindowState::Open {
            let end = Request::Invalidate {
                cell: Arc::clone(cell),
                key: before,
                awaited: false,
            };
            self.submit(outlet, end)?;
            // The window stays closed if it cannot be bound again.
            cell.set_state(WindowState::Closed);
        }
        self.submit(outlet, Request::Bind(Arc::clone(cell), key))?;
        cell.keyed().key = key;
        cell.set_state(WindowState::Open);
        Ok(cell.remote_address(key))
    }

    /// Closes a window that is open. It stays open if the request cannot be posted.
    pub(crate) fn close_window(&mut self, outlet: &Outlet<'_>, cell: &Arc<Cell>) {
        if cell.state() != WindowState::Open {
            return;
        }
        cell.set_state(WindowState::Closing);
        let key = cell.keyed().key;
        let end = Request::Invalidate {
            cell: Arc::clone(cell),
            key,
            awaited: true,
        };
        if self.submit(outlet, end).is_err() {
            cell.set_state(WindowState::Open);
        }
    }

    /// True if no work request that is under way, or waits for a place, may name a window of the area. Otherwise asks
    /// for a signal after that request, so that a later call finds it complete. `target` is somewhere in the peer's
    /// memory.
    pub(crate) fn has_done_with(&mut self, outlet: &Outlet<'_>, area: &WindowArea, target: RemoteAddress) -> bool {
        self.catch_up(outlet);
        let is_done = !self.waiting.has_window(|cell| area.has(cell)) && self.ledger.is_done(area.named_by());
        if !is_done {
            self.post_end_marker(outlet, target);
        }
        is_done
    }

    /// The requests up to this number are complete, or the queue pair has failed: settles the state of the windows
    /// whose invalidation was posted.
    pub(super) fn settle_windows(&mut self, number: u64, state: WindowState) {
        while let Some((closing, ..)) = self.closing.front() {
            if *closing > number {
                return;
            }
            if let Some((_, cell, key)) = self.closing.pop_front() {
                cell.settle(key, state);
            }
        }
    }
}
