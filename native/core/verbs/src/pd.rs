//! Protection domains: memory of one cannot be reached through queue pairs of another.

use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::{ibv_alloc_pd, ibv_dealloc_pd, ibv_pd};

use crate::VerbsError;
use crate::cm::CmId;

/// A protection domain on the device of a connection id.
///
/// # Invariants
///
/// `raw` is allocated until drop, on the context that `id` holds open.
pub struct ProtectionDomain {
    raw: NonNull<ibv_pd>,
    _id: Arc<CmId>,
}

// SAFETY: libibverbs may be called from any thread (ibv_fork_init(3) names the only exception, forking); the pointer is
// only passed to it.
unsafe impl Send for ProtectionDomain {}
// SAFETY: as above.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    /// Allocates a protection domain; `id` must have a device: its address is resolved, or it came with a request.
    pub fn allocate(id: &Arc<CmId>) -> Result<ProtectionDomain, VerbsError> {
        const DOING: &str = "allocating a protection domain";
        let device = id.device().ok_or(VerbsError::of(DOING, libc::ENODEV))?;
        // SAFETY: an open context.
        let raw = unsafe { ibv_alloc_pd(device.context().as_ptr()) };
        Ok(ProtectionDomain {
            raw: NonNull::new(raw).ok_or_else(|| VerbsError::last(DOING))?,
            _id: Arc::clone(id),
        })
    }

    pub(crate) fn raw(&self) -> NonNull<ibv_pd> {
        self.raw
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: allocated in `allocate`, freed once; memory regions and queue pairs of it hold a reference to `self`,
        // so none is left, and it cannot fail.
        let freed = unsafe { ibv_dealloc_pd(self.raw.as_ptr()) };
        debug_assert_eq!(freed, 0, "nothing of the protection domain is left");
    }
}
