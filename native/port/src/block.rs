//! Memory that packets are received into: binaries of the VM's drivers.

use std::ptr::NonNull;

use inet_rdma_assembly::Buffer;

use crate::sys;

/// A driver binary. The VM counts its references: messages that refer to its bytes keep it.
///
/// # Invariants
/// `binary` came from `driver_alloc_binary(bytes)`, and this value holds one reference to it.
pub struct Block {
    binary: NonNull<sys::ErlDrvBinary>,
    bytes: usize,
}

// SAFETY: `driver_free_binary` may be called from any thread, and a binary's bytes belong to no thread.
unsafe impl Send for Block {}
// SAFETY: `&Block` gives out nothing but the pointer.
unsafe impl Sync for Block {}

impl Block {
    /// The binary, for the VM.
    pub(crate) fn as_ptr(&self) -> *mut sys::ErlDrvBinary {
        self.binary.as_ptr()
    }

    /// Its size in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

impl Buffer for Block {
    fn allocate(bytes: usize) -> Option<Self> {
        // SAFETY: the function may be called from any thread; null means that there is no memory.
        let binary = NonNull::new(unsafe { sys::driver_alloc_binary(bytes) })?;
        Some(Block { binary, bytes })
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the binary has `bytes` bytes behind its size, by the type's invariant. No other code refers to it
        // while it is borrowed mutably: references are handed out by `Port::deliver`, which borrows it.
        unsafe {
            let first = (&raw mut (*self.binary.as_ptr()).orig_bytes).cast::<u8>();
            std::slice::from_raw_parts_mut(first, self.bytes)
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: gives back the reference that this value holds, by the type's invariant.
        unsafe { sys::driver_free_binary(self.binary.as_ptr()) };
    }
}
