//! Landing buffers in ordinary memory, in place of a fabric and a peer.

use std::cell::UnsafeCell;
use std::sync::Arc;

use inet_rdma_assembly::{LandingBuffer, LandingPool};
use inet_rdma_fabric::Memory;
use inet_rdma_stream::RemoteAddress;

/// An area of landing buffers.
pub struct HeapMemory(Box<[UnsafeCell<u8>]>);

// SAFETY: the cells are accessed through raw pointers only. The tests write into a buffer before they hand it over,
// from the thread that then reads it.
unsafe impl Sync for HeapMemory {}

impl Memory for HeapMemory {
    fn base(&self) -> *mut u8 {
        // `UnsafeCell<u8>` has the layout of `u8`; derived from the whole slice, so that offsets stay in bounds.
        self.0.as_ptr().cast::<u8>().cast_mut()
    }

    fn bytes(&self) -> usize {
        self.0.len()
    }

    fn remote_address(&self, offset: usize) -> RemoteAddress {
        RemoteAddress {
            key: 1,
            address: offset as u64,
        }
    }

    fn discard(&self, _range: std::ops::Range<usize>) {}
}

/// A pool of `count` landing buffers of `bytes` each.
pub fn pool(count: usize, bytes: usize) -> Arc<LandingPool> {
    let cells = (0..count * bytes).map(|_| UnsafeCell::new(0)).collect();
    LandingPool::new(Arc::new(HeapMemory(cells)), Vec::new(), bytes, 0)
}

/// A buffer of the pool with `bytes` at `offset`, as if a peer had written them.
pub fn filled(pool: &Arc<LandingPool>, offset: usize, bytes: &[u8]) -> LandingBuffer {
    assert!(offset + bytes.len() <= pool.buffer_bytes());
    let buffer = pool.take().expect("a free landing buffer");
    // SAFETY: the range is inside the buffer by the assertion, the buffer is out of its pool and so no other user's,
    // and its memory allows writes through raw pointers (cells).
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.as_ptr().cast_mut().add(offset), bytes.len()) };
    buffer
}
