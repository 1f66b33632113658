//! Memory before and after a device may touch it.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};
use rdma_sys::{ibv_access_flags, ibv_dereg_mr, ibv_mr, ibv_reg_mr, ibv_sge};

use crate::VerbsError;
use crate::pd::ProtectionDomain;

/// Pages of this process: a private anonymous mapping for reading and writing, of at most `isize::MAX` bytes.
#[derive(Debug)]
pub struct Pages(MmapRaw);

impl Pages {
    /// First byte. A device or a peer may write at any time: no reference may be made, only copies through raw
    /// pointers.
    pub fn base(&self) -> *mut u8 {
        self.0.as_mut_ptr()
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// Gives the pages that lie in `range` as a whole back to the system: they are zeros from then on. Not for
    /// registered pages: this process would see zeros, but the device goes on using the old pages.
    pub fn discard(&self, range: Range<usize>) {
        // SAFETY: sysconf only reads; the page size is a power of two that fits.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let start = range.start.next_multiple_of(page);
        let end = range.end.min(self.bytes()) / page * page;
        if start < end {
            let bytes = end - start;
            // SAFETY: the range lies inside of this private anonymous mapping, whose bytes are only copied through raw
            // pointers: they become zeros, and stay accessible. If it fails the pages stay.
            let _stays = unsafe { self.0.unchecked_advise_range(UncheckedAdvice::DontNeed, start, bytes) };
        }
    }

    /// Copies from `offset` to `to`.
    ///
    /// # Panics
    ///
    /// When that is not inside.
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        assert!(self.contains(offset, to.len()), "a copy inside of its pages");
        // SAFETY: the source is inside of the mapping; no reference to the mapping exists anywhere, so `to` is
        // elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(self.base().add(offset), to.as_mut_ptr(), to.len()) };
    }

    pub(crate) fn contains(&self, offset: usize, bytes: usize) -> bool {
        offset.checked_add(bytes).is_some_and(|end| end <= self.bytes())
    }
}

/// Memory that only this process touches.
#[derive(Debug)]
pub struct HostMemory(Pages);

/// The accesses that a memory region allows, and to which side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The device reads it to send.
    Read,
    /// The device also writes received messages.
    Receive,
    /// The peer may write into it by RDMA, too.
    RemoteWrite,
}

impl HostMemory {
    /// Zeros, on pages of their own that a forked process does not inherit.
    pub fn allocate(bytes: usize) -> Result<HostMemory, VerbsError> {
        let system = |doing| move |error: std::io::Error| VerbsError { doing, error };
        let mapped = MmapOptions::new().len(bytes).no_reserve_swap().map_anon();
        let pages = MmapRaw::from(mapped.map_err(system("mapping memory"))?);
        pages
            .advise(Advice::DontFork)
            .map_err(system("keeping memory from forked processes"))?;
        Ok(HostMemory(Pages(pages)))
    }

    /// The pages, to be registered in parts: see [`crate::window::MemoryWindow`].
    pub fn into_pages(self) -> Arc<Pages> {
        Arc::new(self.0)
    }

    /// Hands it to the device of `pd`. Pins all its pages: limited by RLIMIT_MEMLOCK for those without CAP_IPC_LOCK.
    /// See `ibv_reg_mr(3)`.
    pub fn register(self, pd: &Arc<ProtectionDomain>, access: Access) -> Result<MemoryRegion, VerbsError> {
        let flags = match access {
            Access::Read => 0,
            Access::Receive => ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0,
            Access::RemoteWrite => {
                ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0
            }
        };
        let pages = self.into_pages();
        let range = 0..pages.bytes();
        Registration::new(pd, &pages, range, flags).map(MemoryRegion)
    }
}

/// Pages that are registered, and pinned.
///
/// # Invariants
///
/// `raw` is the registration of a range of `pages`, on `_pd`'s device, until drop.
pub(crate) struct Registration {
    raw: NonNull<ibv_mr>,
    pages: Arc<Pages>,
    _pd: Arc<ProtectionDomain>,
}

// SAFETY: libibverbs may be called from any thread; the keys that are read from the registration do not change.
unsafe impl Send for Registration {}
// SAFETY: as above; the pages are only copied from and to.
unsafe impl Sync for Registration {}

impl Registration {
    /// `access`: of `ibv_reg_mr(3)`.
    ///
    /// # Panics
    ///
    /// When the range is not inside of the pages.
    pub(crate) fn new(
        pd: &Arc<ProtectionDomain>,
        pages: &Arc<Pages>,
        range: Range<usize>,
        access: u32,
    ) -> Result<Registration, VerbsError> {
        assert!(pages.contains(range.start, range.len()), "a range inside of its pages");
        // SAFETY: the range is inside of a mapping of this process, which lives until it is deregistered: the value
        // holds it.
        let raw = unsafe {
            let start = pages.base().add(range.start);
            ibv_reg_mr(pd.raw().as_ptr(), start.cast(), range.len(), access as i32)
        };
        Ok(Registration {
            raw: NonNull::new(raw).ok_or_else(|| VerbsError::last("registering memory"))?,
            pages: Arc::clone(pages),
            _pd: Arc::clone(pd),
        })
    }

    pub(crate) fn raw(&self) -> NonNull<ibv_mr> {
        self.raw
    }

    pub(crate) fn pages(&self) -> &Arc<Pages> {
        &self.pages
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: registered in `new`, deregistered once before `pages` is dropped. Work requests that name it and are
        // still under way fail; the device does not touch the pages afterwards.
        let _ = unsafe { ibv_dereg_mr(self.raw.as_ptr()) };
    }
}

/// Memory that a device may touch at any time: all of its pages are registered.
pub struct MemoryRegion(Registration);

/// A scatter/gather element (`ibv_sge`): a part of a memory region, for a work request.
#[derive(Debug, Clone, Copy)]
pub struct Sge {
    address: u64,
    bytes: u32,
    key: u32,
}

impl Sge {
    /// An element of no bytes.
    pub const NONE: Sge = Sge {
        address: 0,
        bytes: 0,
        key: 0,
    };

    pub(crate) fn raw(self) -> ibv_sge {
        ibv_sge {
            addr: self.address,
            length: self.bytes,
            lkey: self.key,
        }
    }
}

impl MemoryRegion {
    /// The key by which the peer names the region.
    pub fn remote_key(&self) -> u32 {
        // SAFETY: registered until drop.
        unsafe { self.0.raw.as_ref().rkey }
    }

    /// The pages below, which may outlive the registration.
    pub fn pages(&self) -> &Arc<Pages> {
        &self.0.pages
    }

    /// A part of the region.
    ///
    /// # Panics
    ///
    /// If the part is not inside of the region.
    pub fn sge(&self, offset: usize, bytes: usize) -> Sge {
        assert!(self.0.pages.contains(offset, bytes), "a part inside of its region");
        Sge {
            address: self.0.pages.base() as u64 + offset as u64,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            // SAFETY: registered until drop.
            key: unsafe { self.0.raw.as_ref().lkey },
        }
    }

    /// Copies `from` to `offset`. The device must not be using these bytes, or it sends a mixture.
    ///
    /// # Panics
    ///
    /// When that is not inside.
    pub fn write(&self, offset: usize, from: &[u8]) {
        assert!(self.0.pages.contains(offset, from.len()), "a copy inside of its region");
        // SAFETY: the target is inside of the mapping; no reference to the mapping exists anywhere, so `from` is
        // elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.0.pages.base().add(offset), from.len()) };
    }

    /// Copies from `offset` to `to`.
    ///
    /// # Panics
    ///
    /// When that is not inside.
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        self.0.pages.read(offset, to);
    }
}
