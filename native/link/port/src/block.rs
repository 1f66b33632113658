//! Memory that packets are received into: binaries of the VM's drivers.

use std::ops::Range;
use std::ptr::NonNull;

use bytes::buf::UninitSlice;
use inet_rdma_assembly::Buffer;
use inet_rdma_session::Memory;

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
// SAFETY: `&Block` gives out the pointer, and the bytes, which change under `&mut Block` alone.
unsafe impl Sync for Block {}

impl Block {
    pub(crate) fn as_ptr(&self) -> *mut sys::ErlDrvBinary {
        self.binary.as_ptr()
    }

    /// The bytes of a packet that has arrived: all of them have been written. Panics if the range is not in the block.
    pub(crate) fn packet(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.bytes);
        // SAFETY: the range lies in the binary, by the type's invariant and the line above. Bytes that no packet has
        // filled are what the VM's allocator, foreign code, has left there, and no value of Rust that is not
        // initialized. They do not change while they are borrowed: this code writes only through `memory`, which
        // borrows mutably, and the VM never writes to a binary that it has been given.
        unsafe {
            let first = (&raw const (*self.binary.as_ptr()).orig_bytes).cast::<u8>();
            std::slice::from_raw_parts(first.add(range.start), range.len())
        }
    }
}

impl Memory for Block {
    fn memory(&mut self) -> &mut UninitSlice {
        Buffer::memory(self)
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

    fn memory(&mut self) -> &mut UninitSlice {
        // SAFETY: the binary has `bytes` bytes after its size, by the type's invariant, which may be uninitialized. No
        // other code refers to it while it is borrowed mutably: references are handed out by `Port::deliver`, which
        // borrows it.
        unsafe {
            let first = (&raw mut (*self.binary.as_ptr()).orig_bytes).cast::<u8>();
            UninitSlice::from_raw_parts_mut(first, self.bytes)
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: gives back the reference that this value holds, by the type's invariant.
        unsafe { sys::driver_free_binary(self.binary.as_ptr()) };
    }
}

/// A part of one of the VM's binaries, on its way out.
///
/// # Invariants
/// This value holds a reference to `binary`, and `bytes` bytes from `first` on lie in it. The VM does not change a
/// binary that it has given to a driver.
pub struct Held {
    binary: NonNull<sys::ErlDrvBinary>,
    first: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the count is atomic, `driver_free_binary` may be called from any thread, and the bytes are only read.
unsafe impl Send for Held {}
// SAFETY: `&Held` gives out nothing but the bytes, which do not change.
unsafe impl Sync for Held {}

impl Held {
    /// Takes a reference to the binary in which the bytes of `piece` lie.
    ///
    /// # Safety
    /// `binary` must be alive, and `piece` must lie in it.
    pub(crate) unsafe fn new(binary: NonNull<sys::ErlDrvBinary>, piece: &[u8]) -> Held {
        // SAFETY: the binary is alive, by the caller's promise.
        unsafe { sys::driver_binary_inc_refc(binary.as_ptr()) };
        Held {
            binary,
            first: NonNull::from(piece).cast(),
            bytes: piece.len(),
        }
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the bytes lie in the binary, which this value keeps alive, by the type's invariant.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.bytes) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: gives back the reference that this value holds, by the type's invariant.
        unsafe { sys::driver_free_binary(self.binary.as_ptr()) };
    }
}
