//! Buffers for messages that come through the ring. They are used again, as in a program that receives without pause.
//! New buffers for each message would measure the allocator and the time to fill them with zeros.

use std::cell::RefCell;

use bytes::buf::UninitSlice;
use inet_rdma_assembly::Buffer;

/// Buffers kept for the next use, per thread. More are freed.
const KEPT_MAX: usize = 64;

thread_local! {
    static KEPT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer from those that were used before.
pub struct Recycled {
    /// At least `bytes` long.
    whole: Vec<u8>,
    bytes: usize,
}

impl Recycled {
    pub fn as_slice(&self) -> &[u8] {
        &self.whole[..self.bytes]
    }
}

impl Buffer for Recycled {
    fn allocate(bytes: usize) -> Option<Self> {
        let mut whole = KEPT.with_borrow_mut(Vec::pop).unwrap_or_default();
        if whole.len() < bytes {
            whole.try_reserve_exact(bytes - whole.len()).ok()?;
            whole.resize(bytes, 0);
        }
        Some(Self { whole, bytes })
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn memory(&mut self) -> &mut UninitSlice {
        UninitSlice::new(&mut self.whole[..self.bytes])
    }
}

impl Drop for Recycled {
    fn drop(&mut self) {
        let whole = std::mem::take(&mut self.whole);
        KEPT.with_borrow_mut(|kept| {
            if kept.len() < KEPT_MAX {
                kept.push(whole);
            }
        });
    }
}
