//! The memory that the windows of all links may have together, beyond the first window of each.

use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes of one node.
pub(crate) struct Windows {
    /// The option `node_window_max_bytes`, as of the newest link.
    max: AtomicU64,
    /// Bytes of all shares. No memory is handed over with them: `Relaxed` is enough for both numbers.
    taken: AtomicU64,
}

/// Those of this node.
pub(crate) static WINDOWS: Windows = Windows {
    max: AtomicU64::new(0),
    taken: AtomicU64::new(0),
};

/// The part of one link, which its drop gives back.
pub(crate) struct Share {
    of: &'static Windows,
    bytes: usize,
}

impl Windows {
    pub fn set_max(&self, bytes: u64) {
        self.max.store(bytes, Ordering::Relaxed);
    }

    pub fn share(&'static self) -> Share {
        Share { of: self, bytes: 0 }
    }
}

impl Share {
    /// Makes the share this large, or as large as the others allow. One that is to grow stays at least as
    /// large as it is. Returns its size.
    pub fn resize(&mut self, bytes: usize) -> usize {
        if bytes <= self.bytes {
            let less = self.bytes - bytes;
            self.of.taken.fetch_sub(less as u64, Ordering::Relaxed);
            self.bytes = bytes;
            return bytes;
        }
        let wanted = (bytes - self.bytes) as u64;
        let max = self.of.max.load(Ordering::Relaxed);
        let granted = |taken: u64| wanted.min(max.saturating_sub(taken));
        let before = self
            .of
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                Some(taken + granted(taken))
            });
        let (Ok(taken) | Err(taken)) = before;
        self.bytes += granted(taken) as usize;
        self.bytes
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_bytes(max: u64) -> &'static Windows {
        let windows = Windows {
            max: AtomicU64::new(max),
            taken: AtomicU64::new(0),
        };
        Box::leak(Box::new(windows))
    }

    #[test]
    fn shares_have_no_more_than_the_bound_together() {
        let windows = of_bytes(10);
        let (mut first, mut second) = (windows.share(), windows.share());
        assert_eq!((first.resize(7), second.resize(7)), (7, 3));
        assert_eq!(first.resize(2), 2);
        assert_eq!(second.resize(7), 7);
        drop(second);
        assert_eq!(first.resize(20), 10);
    }

    #[test]
    fn a_smaller_bound_leaves_the_shares_that_there_are() {
        let windows = of_bytes(10);
        let mut share = windows.share();
        assert_eq!(share.resize(8), 8);
        windows.set_max(4);
        assert_eq!(share.resize(9), 8);
        assert_eq!(share.resize(1), 1);
        assert_eq!(share.resize(9), 4);
    }

    #[test]
    fn links_side_by_side_take_no_byte_twice() {
        let windows = of_bytes(1000);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut share = windows.share();
                    for bytes in (0..600).chain(0..600) {
                        share.resize(bytes);
                        assert!(windows.taken.load(Ordering::Relaxed) <= 1000);
                    }
                });
            }
        });
        assert_eq!(windows.taken.load(Ordering::Relaxed), 0);
    }
}
