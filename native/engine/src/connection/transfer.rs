//! A transfer of a write: its post, and what ends a write before that.

use inet_rdma_fabric::FabricError;
use parking_lot::MutexGuard;

use super::closed::Closed;
use super::core::{COPIED_AT_ONCE_BYTES, Core};
use super::shared::Connection;

/// Maximum number of transfers in one write: a peer with a ring of a few bytes, which takes them out at once, would
/// hold the writer, a scheduler with a port's lock, for as many transfers as there are bytes. With the smallest ring
/// that the options allow (4096 bytes, a quarter of which is free before the writer goes on) that many carry a packet
/// of a link's 64 KiB.
pub(super) const TRANSFERS_MAX: usize = 64;

/// How far a write came. If it is neither complete nor blocked it has made as many transfers as one call makes, and the
/// writer tries again after other work.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Written {
    /// Bytes of the gather that are on their way, counted from its start.
    pub at: usize,
    /// The peer has to read first.
    pub blocked: bool,
}

/// Nothing is written any more: the connection is over, or this side's stream has ended. [`Core::why_stopped`] says
/// which. The reason itself is larger than all else that a write returns, and would be moved through each of its steps.
#[derive(Debug)]
pub(super) struct Stopped;

impl Core {
    /// Whether something may be written.
    #[inline(always)]
    pub(super) fn check_writing(&self) -> Result<(), Stopped> {
        match self.is_up() && !self.writer.is_finished() {
            true => Ok(()),
            false => Err(Stopped),
        }
    }

    /// The reason of [`Stopped`].
    #[cold]
    pub(super) fn why_stopped(&self) -> Closed {
        self.closed().cloned().unwrap_or(Closed::Here)
    }
}

impl Connection {
    /// Posts a transfer of this size; a large one with `core` free.
    #[inline(always)]
    pub(super) fn post_transfer(
        &self,
        core: &mut MutexGuard<'_, Core>,
        bytes: usize,
        post: impl FnOnce() -> Result<(), FabricError>,
    ) -> Result<(), Stopped> {
        let posted = if bytes <= COPIED_AT_ONCE_BYTES {
            post()
        } else {
            core.writer.posts_unlocked = true;
            let posted = MutexGuard::unlocked(core, post);
            core.writer.posts_unlocked = false;
            if let Some(bytes) = core.staging.prepared_bytes() {
                self.replace_staging(core, bytes);
            }
            if core.stream.owes_mark() {
                self.post_mark(core);
            }
            posted
        };
        posted.map_err(|error| {
            self.fail(core, error.into());
            Stopped
        })
    }
}
