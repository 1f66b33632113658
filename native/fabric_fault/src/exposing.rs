//! Memory that is exposed as a device does it: it takes its time, and may be refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use inet_rdma_fabric::{Exposed, Exposer, FabricError, Parameters};

use crate::windows::Windows;

/// How a queue pair exposes more memory.
#[derive(Debug, Clone, Default)]
pub enum Exposing {
    /// As the wrapped fabric does it.
    #[default]
    AsInner,
    /// As a fabric that pins memory, within these grants.
    Pinning(Arc<Grants>),
    /// As the wrapped fabric does it, but landing buffers have windows.
    Windows(Arc<Windows>),
}

impl Exposing {
    /// What the wrapped fabric begins with: rings as small as those that are pinned, and room in its landing area for larger
    /// ones.
    pub(crate) fn first(&self, parameters: &Parameters) -> Parameters {
        let mut first = *parameters;
        if let Exposing::Pinning(_) = self {
            first.limits.ring_bytes = parameters.first_ring_bytes();
            first.landing_bytes = first.landing_bytes.saturating_add(2 * parameters.limits.ring_bytes);
        }
        first
    }
}

/// The bytes that may be pinned, over all queue pairs that share them.
#[derive(Debug)]
pub struct Grants {
    limit: AtomicU64,
    pinned: AtomicU64,
}

impl Grants {
    /// Up to `limit` bytes.
    pub fn new(limit: u64) -> Arc<Grants> {
        Arc::new(Grants {
            limit: AtomicU64::new(limit),
            pinned: AtomicU64::new(0),
        })
    }

    /// Changes the limit for what is exposed from now on.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::SeqCst);
    }

    /// Bytes that are exposed and not revoked.
    pub fn pinned(&self) -> u64 {
        self.pinned.load(Ordering::SeqCst)
    }
}

pub(crate) struct Granted {
    pub(crate) inner: Arc<dyn Exposer>,
    pub(crate) grants: Arc<Grants>,
}

impl Exposer for Granted {
    fn expose(&self, bytes: usize) -> Result<Box<dyn Exposed>, FabricError> {
        let grants = &self.grants;
        let size = bytes as u64;
        let limit = grants.limit.load(Ordering::SeqCst);
        let more = |pinned: u64| pinned.checked_add(size).filter(|sum| *sum <= limit);
        if grants
            .pinned
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more)
            .is_err()
        {
            let limit = Some(limit);
            return Err(FabricError::LockedMemory { bytes, limit });
        }
        let pin = Pin {
            grants: Arc::clone(grants),
            bytes: size,
        };
        let inner = self.inner.expose(bytes)?;
        Ok(Box::new(Pinned { inner, _pin: pin }))
    }
}

struct Pin {
    grants: Arc<Grants>,
    bytes: u64,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.grants.pinned.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

struct Pinned {
    inner: Box<dyn Exposed>,
    _pin: Pin,
}

impl Exposed for Pinned {
    fn memory(&self) -> &Arc<dyn inet_rdma_fabric::Memory> {
        self.inner.memory()
    }

    fn revoke(self: Box<Self>) {
        self.inner.revoke();
    }
}
