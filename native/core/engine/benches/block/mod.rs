//! What packets are received into: as a link's driver binaries, one allocation that nothing fills before the packet.

use std::ptr::NonNull;

use bytes::buf::UninitSlice;
use inet_rdma_assembly::Buffer;

/// # Invariants
/// `first` came from `malloc`, and `bytes` bytes from it on are this value's.
pub struct Block {
    first: NonNull<u8>,
    bytes: usize,
}

impl Buffer for Block {
    fn allocate(bytes: usize) -> Option<Self> {
        // SAFETY: any size may be asked for; null means that there is no memory.
        let first = NonNull::new(unsafe { libc::malloc(bytes.max(1)) }.cast())?;
        Some(Block { first, bytes })
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn memory(&mut self) -> &mut UninitSlice {
        // SAFETY: by the type's invariant, and `self` is borrowed mutably for as long.
        unsafe { UninitSlice::from_raw_parts_mut(self.first.as_ptr(), self.bytes) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: by the type's invariant; nothing refers to the bytes now.
        unsafe { libc::free(self.first.as_ptr().cast()) };
    }
}
