//! The concurrency primitives of code that loom checks: std's, or loom's when built with `--cfg loom`.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Lets loom check that no thread writes a group of words while another one reads it: loom checks each atomic by
/// itself, and would allow that an entry is overwritten under its reader. Empty in an ordinary build.
#[cfg(not(loom))]
#[derive(Debug, Default)]
pub(crate) struct Witness(());

#[cfg(not(loom))]
impl Witness {
    /// Marks a read of the words.
    #[inline(always)]
    pub(crate) fn reading(&self) {}

    /// Marks a write of the words.
    #[inline(always)]
    pub(crate) fn writing(&self) {}
}

/// As above, under loom: fails the model when a write is not ordered against every other access.
#[cfg(loom)]
#[derive(Debug, Default)]
pub(crate) struct Witness(loom::cell::UnsafeCell<()>);

#[cfg(loom)]
impl Witness {
    pub(crate) fn reading(&self) {
        self.0.with(|_| ());
    }

    pub(crate) fn writing(&self) {
        self.0.with_mut(|_| ());
    }
}

// SAFETY: the cell guards a unit and is never dereferenced; loom only keeps account of the accesses.
#[cfg(loom)]
unsafe impl Sync for Witness {}
