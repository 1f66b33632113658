//! Memory windows of type 2: they let the peer write memory until this side invalidates them, while the queue pair goes
//! on.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::{
    bind_mw_t, bind_mw_tso_union_t, ibv_access_flags, ibv_alloc_mw, ibv_dealloc_mw, ibv_mw, ibv_mw_bind_info,
    ibv_mw_type,
};

use crate::VerbsError;
use crate::memory::{Pages, Registration};
use crate::pd::ProtectionDomain;

/// A window, and the memory region below it. Each window has a region of its own, as soft-RoCE checks a write against
/// the bounds of the region, and not against those of the window.
///
/// # Invariants
///
/// `region` is the registration of `range`, which only a window lets the peer write; `window` is a window of type 2 on
/// the same device, until drop.
pub struct MemoryWindow {
    window: NonNull<ibv_mw>,
    region: Registration,
    range: Range<usize>,
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
        let access = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 | ibv_access_flags::IBV_ACCESS_MW_BIND.0;
        let region = Registration::new(pd, pages, range.clone(), access)?;
        // SAFETY: a protection domain that lives. Where the provider has no windows, the function says so.
        let window = unsafe { ibv_alloc_mw(pd.raw().as_ptr(), ibv_mw_type::IBV_MW_TYPE_2) };
        Ok(MemoryWindow {
            window: NonNull::new(window).ok_or_else(|| VerbsError::last("allocating a memory window"))?,
            region,
            range,
        })
    }

    /// Allocates a window without memory, and frees it. Err: the device, its driver or its provider has none, whatever
    /// its flags say, or none is left.
    pub fn try_allocation(pd: &ProtectionDomain) -> Result<(), VerbsError> {
        // SAFETY: a protection domain that lives. Where the provider has no windows, the function says so.
        let window = unsafe { ibv_alloc_mw(pd.raw().as_ptr(), ibv_mw_type::IBV_MW_TYPE_2) };
        let window = NonNull::new(window).ok_or_else(|| VerbsError::last("trying to allocate a memory window"))?;
        // SAFETY: allocated above, never bound, freed once.
        let _ = unsafe { ibv_dealloc_mw(window.as_ptr()) };
        Ok(())
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
        self.region.pages().base() as u64 + self.range.start as u64
    }

    /// The work request's part that binds it to all of its range, for writing by the peer.
    pub(crate) fn bind(&mut self, key: u32) -> bind_mw_tso_union_t {
        bind_mw_tso_union_t {
            bind_mw: bind_mw_t {
                mw: self.window.as_ptr(),
                rkey: key,
                bind_info: ibv_mw_bind_info {
                    mr: self.region.raw().as_ptr(),
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
        // SAFETY: allocated in `allocate`, freed once, before its region is dropped. Work requests that name it and are
        // still under way fail; no peer writes the pages afterwards.
        let _ = unsafe { ibv_dealloc_mw(self.window.as_ptr()) };
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
