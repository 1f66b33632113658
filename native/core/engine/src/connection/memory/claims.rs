//! Claims of memory, which the thread of [`crate::memory_thread`] gets and gives back.

use std::time::{Duration, Instant};

use inet_rdma_fabric::FabricError;

use crate::connection::state::{Connection, Core};
use crate::memory_thread;

/// Time between two attempts to start the memory thread for one connection. Refused memory is asked for again after
/// as long at most: two sweeps of the thread.
const CLAIM_AGAIN_AFTER: Duration = Duration::from_secs(10);

impl Connection {
    /// Has the memory thread get the claimed memory, and sweep from then on. If the thread cannot be started the
    /// claims stay, until [`Self::request_fetch_again`].
    #[cold]
    #[inline(never)]
    pub(crate) fn request_fetch(&self, core: &mut Core) -> Result<(), FabricError> {
        let kept = memory_thread::claim(self.memory_user.clone());
        core.claim_failed_at = kept.is_err().then(Instant::now);
        kept
    }

    /// Called with each look while the memory thread is missing: its start failed at `since`.
    #[cold]
    #[inline(never)]
    pub(crate) fn request_fetch_again(&self, core: &mut Core, since: Instant) {
        if since.elapsed() >= CLAIM_AGAIN_AFTER {
            let _later = self.request_fetch(core);
        }
    }

    #[inline(never)]
    pub(crate) fn note_ring_arrival(&self, core: &mut Core) {
        let (room, bytes) = (core.stream.ring_room_of_peer(), core.stream.ring_bytes());
        if core.ring.note_arrival(room, bytes) {
            let _later = self.request_fetch(core);
        }
    }

    /// Called when a ring was replaced, or read to its end. Has the replaced ring revoked once its last byte is read.
    #[cold]
    #[inline(never)]
    pub(crate) fn release_ring(&self, core: &mut Core) {
        if core.ring.release(core.stream.reads_old_ring()) {
            let _later = self.request_fetch(core);
        }
    }

    /// Claims staging memory of the size of the peer's new ring: much smaller memory would cut transfers, and larger
    /// memory would be useless.
    #[cold]
    #[inline(never)]
    pub(crate) fn claim_staging(&self, core: &mut Core) {
        if !self.qp.capabilities().pins {
            return;
        }
        let bytes = core.stream.peer_ring_bytes().min(self.ring_bytes_max) as usize;
        if core.staging.claim(bytes) {
            let _later = self.request_fetch(core);
        }
    }

    /// Switches to staging memory of `bytes`. Do not call it between an offer of room and the post of its transfer.
    #[cold]
    #[inline(never)]
    pub(crate) fn replace_staging(&self, core: &mut Core, bytes: usize) {
        if core.is_up() {
            self.qp.replace_staging();
        }
        core.staging.replaced(bytes);
        // Wakes no writer that waits for room: completions under way do, and this thread may not wake a link's port.
    }
}
