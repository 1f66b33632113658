//! Landing buffers: slices of equal size of a memory area that the peer may write into. A buffer is taken out of the
//! pool, advertised, filled by the peer, handed to the user without a copy, and returns to the pool when the user drops
//! it.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use inet_rdma_fabric::{FabricError, Memory, Window, WindowState};
use inet_rdma_stream::RemoteAddress;
use parking_lot::Mutex;

/// The landing buffers of one area of memory. A connection has as many areas as it has needed.
pub struct LandingPool {
    memory: Arc<dyn Memory>,
    buffer_bytes: usize,
    /// Number of the first buffer; the earlier areas of the connection have the numbers below it.
    first: u16,
    count: u16,
    /// A window for each buffer. Empty: the peer may write at any time.
    windows: Vec<Arc<dyn Window>>,
    free: Mutex<Vec<u16>>,
}

impl LandingPool {
    /// Cuts `memory` into buffers of `buffer_bytes`, with numbers from `first` on; the rest of the memory stays
    /// unused. The peer may write into a buffer through its window in `windows`; without windows into all buffers.
    pub fn new(memory: Arc<dyn Memory>, windows: Vec<Arc<dyn Window>>, buffer_bytes: usize, first: u16) -> Arc<Self> {
        let count = match buffer_bytes {
            0 => 0,
            size => u16::try_from(memory.bytes() / size).unwrap_or(u16::MAX),
        };
        let count = count.min(u16::MAX - first);
        // The buffer that was freed last is taken first: it is the likeliest to be in the cache.
        let free = Mutex::new((0..count).rev().collect());
        Arc::new(Self {
            memory,
            buffer_bytes,
            first,
            count,
            windows,
            free,
        })
    }

    /// Gives the pages of the free buffers back to the system. The peer must have no right to write into any of them.
    pub fn discard_free(&self) {
        let free = self.free.lock();
        let all = usize::from(self.count) * self.buffer_bytes;
        if free.len() == usize::from(self.count) {
            return self.memory.discard(0..all);
        }
        for place in &*free {
            let start = usize::from(*place) * self.buffer_bytes;
            self.memory.discard(start..start + self.buffer_bytes);
        }
    }

    /// Takes a free buffer out of the pool. None: the peer or the user has all buffers.
    pub fn take(self: &Arc<Self>) -> Option<LandingBuffer> {
        let place = self.free.lock().pop()?;
        Some(LandingBuffer {
            pool: Arc::clone(self),
            place,
        })
    }

    /// Size of each buffer in bytes.
    #[inline]
    pub fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Number of buffers.
    #[inline]
    pub fn count(&self) -> u16 {
        self.count
    }

    /// Number of buffers that the peer or the user has.
    #[inline]
    pub fn used(&self) -> u16 {
        self.count - u16::try_from(self.free.lock().len()).unwrap_or(self.count)
    }
}

/// One landing buffer, taken out of its pool. Dropping it returns the buffer.
///
/// # Invariants
/// `place < pool.count`, and no other `LandingBuffer` of this pool has the same place.
pub struct LandingBuffer {
    pool: Arc<LandingPool>,
    place: u16,
}

impl LandingBuffer {
    /// The number of the buffer in its connection.
    #[inline]
    pub fn index(&self) -> u16 {
        self.pool.first + self.place
    }

    fn offset(&self) -> usize {
        usize::from(self.place) * self.pool.buffer_bytes
    }

    fn window(&self) -> Option<&dyn Window> {
        let window = self.pool.windows.get(usize::from(self.place));
        window.map(|window| &**window)
    }

    /// Lets the peer write into the buffer. Returns the address to advertise.
    pub fn open(&self) -> Result<RemoteAddress, FabricError> {
        match self.window() {
            Some(window) => window.open(),
            None => Ok(self.pool.memory.remote_address(self.offset())),
        }
    }

    /// Closes the buffer's window, if it has one: see [`Self::window_state`].
    pub fn close(&self) {
        if let Some(window) = self.window() {
            window.close();
        }
    }

    /// State of the buffer's window: whether the peer can write.
    #[inline]
    pub fn window_state(&self) -> WindowState {
        self.window().map_or(WindowState::Open, Window::state)
    }

    /// First byte; valid for [`LandingPool::buffer_bytes`] as long as this buffer lives. Unless its window is closed
    /// the peer may still write to it if it breaks the protocol.
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        // SAFETY: by the type's invariant the offset lies inside the pool's memory, which its `Arc` keeps mapped.
        unsafe { self.pool.memory.base().add(self.offset()) }
    }

    /// Copies the bytes from `at` on.
    ///
    /// # Panics
    ///
    /// Where they would not end inside the buffer.
    pub fn copy_out(&self, at: usize, to: &mut [u8]) {
        let source = self.range(at..at.saturating_add(to.len()));
        // SAFETY: `range` gives a part of this buffer, mapped as long as `self` lives; `to` is memory of this process's
        // own. The peer may write the source meanwhile if it breaks the protocol: nothing but this copy looks at it.
        unsafe { std::ptr::copy_nonoverlapping(source, to.as_mut_ptr(), to.len()) };
    }

    /// Writes the bytes `range` to `fd` with one write(2), without a copy in between. Returns the number of written
    /// bytes, which may be smaller.
    ///
    /// # Panics
    ///
    /// Where the range does not end inside the buffer.
    pub fn write_to(&self, range: Range<usize>, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let source = self.range(range.clone());
        // SAFETY: `range` gives a part of this buffer, mapped as long as `self` lives; the system only reads it, and
        // `fd` is open as long as it is borrowed.
        let taken = unsafe { libc::write(fd.as_raw_fd(), source.cast(), range.len()) };
        usize::try_from(taken).map_err(|_| io::Error::last_os_error())
    }

    /// The start of a part of the buffer. As for [`Self::as_ptr`], the peer may still write there.
    ///
    /// # Panics
    ///
    /// Where the part does not end inside the buffer.
    #[inline]
    pub fn range(&self, range: Range<usize>) -> *const u8 {
        assert!(
            range.start <= range.end && range.end <= self.pool.buffer_bytes,
            "{range:?} is not inside a landing buffer of {} bytes",
            self.pool.buffer_bytes
        );
        // SAFETY: the start lies inside the buffer, or at its end, and that inside the mapping or at its end.
        unsafe { self.as_ptr().add(range.start) }
    }
}

impl Drop for LandingBuffer {
    fn drop(&mut self) {
        self.pool.free.lock().push(self.place);
    }
}
