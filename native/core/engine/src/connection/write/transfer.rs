//! A transfer of a write: its post, and the conditions that end a write before it.

use inet_rdma_fabric::FabricError;
use parking_lot::MutexGuard;

use crate::connection::closed::{Closed, Ended};
use crate::connection::state::{Connection, Core};

/// Maximum number of transfers in one write. The writer may be a scheduler with a port's lock: without a bound, a peer
/// with a ring of a few bytes, which it empties at once, would hold it for as many transfers as there are bytes. With
/// the smallest ring that the options allow (4096 bytes, a quarter of which is free before the writer goes on) this
/// many transfers carry a link's packet of 64 KiB.
pub(crate) const TRANSFERS_MAX: usize = 64;

/// The progress of a write. If it is neither complete nor blocked, the call has made its maximum of transfers: the
/// writer tries again after other work.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Written {
    /// Bytes of the gather that are sent, counted from its start.
    pub at: usize,
    /// The peer has to read first.
    pub blocked: bool,
}

impl Core {
    /// Err: nothing can be written from now on.
    #[inline(always)]
    pub(crate) fn check_writing(&self) -> Result<(), Ended> {
        if self.is_up() && !self.writer.is_finished() {
            Ok(())
        } else {
            Err(Ended)
        }
    }
}

impl Connection {
    /// The reason why a write has [`Ended`].
    #[cold]
    pub(crate) fn why_no_write(&self) -> Closed {
        self.closed().unwrap_or(Closed::Here)
    }

    /// Posts a transfer of more than [`super::super::state::COPIED_AT_ONCE_BYTES`] with `core` free.
    #[inline(never)]
    pub(crate) fn post_unlocked(
        &self,
        core: &mut MutexGuard<'_, Core>,
        post: impl FnOnce() -> Result<(), Box<FabricError>>,
    ) -> Result<(), Ended> {
        core.writer.posts_unlocked = true;
        let posted = MutexGuard::unlocked(core, post);
        core.writer.posts_unlocked = false;
        if let Some(bytes) = core.staging.prepared_bytes() {
            self.replace_staging(core, bytes);
        }
        if core.stream.owes_mark() {
            self.post_mark(core);
        }
        posted.map_err(|error| self.end(core, (*error).into()))
    }
}
