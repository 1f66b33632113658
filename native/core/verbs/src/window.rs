//! Memory windows of type 2: they let the peer write memory until this side invalidates them, while the queue pair goes
//! on.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::{
    bind_mw_t, bind_mw_tso_union_t, ibv_access_flags, ibv_alloc_mw, ibv_dealloc_mw, ibv_dereg_mr, ibv_mr, ibv_mw,
    ibv_mw_bind_info, ibv_mw_type, ibv_reg_mr,
};

use crate::VerbsError;
use crate::memory::Pages;
use crate::pd::ProtectionDomain;

/// A window, and the memory region below it. Each window has a region of its own, as soft-RoCE checks a write against
/// the bounds of the region, and not against those of the window.
///
/// # Invariants
///
/// `region` is the registration of `range` of `pages`, which only a window lets the peer write; `window` is a window of
/// type 2. Both on `_pd`'s device, until drop.
pub struct MemoryWindow {
    window: NonNull<ibv_mw>,
    region: NonNull<ibv_mr>,
    pages: Arc<Pages>,
    range: Range<usize>,
    _pd: Arc<ProtectionDomain>,
}

// SAFETY: libibverbs may be called from any thread; the window's key is changed only through a unique reference.
unsafe impl Send for MemoryWindow {}

impl MemoryWindow {
    /// A window that is not bound. Pins the pages of `range`. See `ibv_reg_mr(3)` and `ibv_alloc_mw(3)`.
    ///
    /// # Panics
    ///
    /// When the range is not inside of the pages.
    pub fn allocate(
        pd: &Arc<ProtectionDomain>,
        pages: &Arc<Pages>,
        range: Range<usize>,
    ) -> Result<MemoryWindow, VerbsError> {
        assert!(pages.contains(range.start, range.len()), "a range inside of its pages");
        let access = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 | ibv_access_flags::IBV_ACCESS_MW_BIND.0;
        // SAFETY: the range is inside of a mapping of this process, which lives until the region is deregistered: the
        // value holds it.
        let region = unsafe {
            let start = pages.base().add(range.start);
            ibv_reg_mr(pd.raw().as_ptr(), start.cast(), range.len(), access as i32)
        };
        let region = NonNull::new(region).ok_or_else(|| VerbsError::last("registering memory"))?;
        // SAFETY: a protection domain that lives. Where the provider has no windows, the function says so.
        let window = unsafe { ibv_alloc_mw(pd.raw().as_ptr(), ibv_mw_type::IBV_MW_TYPE_2) };
        let Some(window) = NonNull::new(window) else {
            let failed = VerbsError::last("allocating a memory window");
            // SAFETY: registered above, and nothing uses it.
            let _ = unsafe { ibv_dereg_mr(region.as_ptr()) };
            return Err(failed);
        };
        Ok(MemoryWindow {
            window,
            region,
            pages: Arc::clone(pages),
            range,
            _pd: Arc::clone(pd),
        })
    }

    /// The key of the last bind; before the first bind, a key that opens no memory.
    pub fn key(&self) -> u32 {
        // SAFETY: allocated until drop.
        unsafe { self.window.as_ref().rkey }
    }

    /// The key of the next bind after a bind with `key`: it repeats after 256 keys.
    pub fn key_after(key: u32) -> u32 {
        key & !0xff | key.wrapping_add(1) & 0xff
    }

    /// The address at which it begins once it is bound, in this side's address space.
    pub fn address(&self) -> u64 {
        self.pages.base() as u64 + self.range.start as u64
    }

    /// The work request's part that binds it to all of its range, for writing by the peer.
    pub(crate) fn bind(&mut self, key: u32) -> bind_mw_tso_union_t {
        bind_mw_tso_union_t {
            bind_mw: bind_mw_t {
                mw: self.window.as_ptr(),
                rkey: key,
                bind_info: ibv_mw_bind_info {
                    mr: self.region.as_ptr(),
                    addr: self.address(),
                    length: self.range.len() as u64,
                    mw_access_flags: ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0,
                },
            },
        }
    }

    /// The work request that binds it with `key` is posted: providers read the last key from the window, and leave it
    /// to the caller to keep.
    pub(crate) fn bound(&mut self, key: u32) {
        // SAFETY: allocated until drop, and the reference is unique.
        unsafe { self.window.as_mut().rkey = key };
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        // SAFETY: allocated and registered in `allocate`, freed once, the window before its region, before `pages` is
        // dropped. Work requests that name them and are still under way fail; no peer writes the pages afterwards.
        unsafe {
            let _ = ibv_dealloc_mw(self.window.as_ptr());
            let _ = ibv_dereg_mr(self.region.as_ptr());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::MemoryWindow;

    #[test]
    fn only_the_lowest_byte_of_a_key_changes() {
        assert_eq!(MemoryWindow::key_after(0x1234_5678), 0x1234_5679);
        assert_eq!(MemoryWindow::key_after(0xffff_ffff), 0xffff_ff00);
    }
}
