//! The landing area of a memory file, from which parts are exposed.

use std::sync::{Arc, Weak};

use inet_rdma_fabric::{Exposed, Exposer, FabricError, Memory};
use parking_lot::Mutex;

use crate::memory::{ExposedMemory, LandingArea};

/// Exposes parts of the landing area, which lies in the memory file from the start: exposing costs nothing. A part can
/// be exposed again once neither the engine nor the user uses any part.
pub(crate) struct ShmExposer {
    memory: Weak<ExposedMemory>,
    /// The parts in use, in their order.
    given: Mutex<Vec<Weak<LandingArea>>>,
}

impl ShmExposer {
    pub(crate) fn new(memory: &Arc<ExposedMemory>) -> ShmExposer {
        ShmExposer {
            memory: Arc::downgrade(memory),
            given: Mutex::new(Vec::new()),
        }
    }
}

impl Exposer for ShmExposer {
    fn expose(&self, bytes: usize) -> Result<Box<dyn Exposed>, FabricError> {
        let memory = self.memory.upgrade().ok_or(FabricError::PeerGone)?;
        let mut given = self.given.lock();
        while given.last().is_some_and(|last| last.strong_count() == 0) {
            given.pop();
        }
        let start = given.last().and_then(Weak::upgrade).map_or(0, |last| last.end());
        let area = LandingArea::of(&memory, start, bytes).ok_or(FabricError::SharedMemory { bytes: bytes as u64 })?;
        let area = Arc::new(area);
        given.push(Arc::downgrade(&area));
        Ok(Box::new(ExposedArea(area)))
    }
}

struct ExposedArea(Arc<dyn Memory>);

impl Exposed for ExposedArea {
    fn memory(&self) -> &Arc<dyn Memory> {
        &self.0
    }

    fn revoke(self: Box<Self>) {
        // Nothing to do: the peer has the whole file mapped, and cannot lose the right to write.
    }
}
