//! Exposes memory as a device does: pinned within a limit, so that it can be refused, or behind windows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use inet_rdma_fabric::{Exposed, Exposer, FabricError, Memory, Parameters};
use parking_lot::Mutex;

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
    /// Parameters for the wrapped fabric: a ring as small as a pinned first ring, and a landing area with room for
    /// larger rings.
    pub(crate) fn first(&self, parameters: &Parameters) -> Parameters {
        let mut first = *parameters;
        if let Exposing::Pinning(_) = self {
            first.limits.ring_bytes = parameters.first_ring_bytes();
            first.landing_area_bytes = first
                .landing_area_bytes
                .saturating_add(2 * parameters.limits.ring_bytes);
        }
        first
    }
}

/// The limit of pinned bytes that several queue pairs share.
#[derive(Debug)]
pub struct Grants {
    limit: AtomicU64,
    pinned: AtomicU64,
    staging: AtomicU64,
    staging_refusals: AtomicU64,
}

impl Grants {
    /// Grants up to `limit` bytes.
    pub fn new(limit: u64) -> Arc<Grants> {
        Arc::new(Grants {
            limit: AtomicU64::new(limit),
            pinned: AtomicU64::new(0),
            staging: AtomicU64::new(0),
            staging_refusals: AtomicU64::new(0),
        })
    }

    /// Changes the limit for later calls.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::SeqCst);
    }

    /// Bytes that are exposed and not revoked.
    pub fn pinned(&self) -> u64 {
        self.pinned.load(Ordering::SeqCst)
    }

    /// Bytes of staging memory, without the first one of each queue pair: in use, or replaced and not released yet.
    pub fn staging(&self) -> u64 {
        self.staging.load(Ordering::SeqCst)
    }

    /// Number of refusals of staging memory.
    pub fn staging_refusals(&self) -> u64 {
        self.staging_refusals.load(Ordering::SeqCst)
    }

    /// Err: `bytes` more are beyond the limit.
    fn check(&self, bytes: usize) -> Result<(), FabricError> {
        let limit = self.limit.load(Ordering::SeqCst);
        match self.pinned().checked_add(bytes as u64) {
            Some(sum) if sum <= limit => Ok(()),
            _ => Err(FabricError::LockedMemory {
                bytes,
                limit: Some(limit),
            }),
        }
    }
}

/// The staging memory of a queue pair. It must fit into the grants, but does not count as pinned.
#[derive(Debug)]
pub(crate) struct Staging(Mutex<Staged>);

#[derive(Debug)]
struct Staged {
    bytes: usize,
    prepared: Option<Held>,
    /// The present staging memory. None: the first one of the queue pair.
    present: Option<Held>,
    replaced: Vec<Held>,
}

/// Bytes that one of the grants' counts has until this is dropped.
#[derive(Debug)]
struct Held {
    grants: Arc<Grants>,
    of: fn(&Grants) -> &AtomicU64,
    bytes: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        (self.of)(&self.grants).fetch_sub(self.bytes as u64, Ordering::SeqCst);
    }
}

impl Staging {
    /// As large as the first ring.
    pub(crate) fn new(first: &dyn Memory) -> Staging {
        Staging(Mutex::new(Staged {
            bytes: first.bytes(),
            prepared: None,
            present: None,
            replaced: Vec::new(),
        }))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.lock().bytes
    }

    pub(crate) fn prepare(&self, bytes: usize, grants: &Arc<Grants>) -> Result<(), FabricError> {
        if let Err(refused) = grants.check(bytes) {
            grants.staging_refusals.fetch_add(1, Ordering::SeqCst);
            return Err(refused);
        }
        grants.staging.fetch_add(bytes as u64, Ordering::SeqCst);
        self.0.lock().prepared = Some(Held {
            grants: Arc::clone(grants),
            of: |grants| &grants.staging,
            bytes,
        });
        Ok(())
    }

    pub(crate) fn replace(&self) {
        let mut staged = self.0.lock();
        let Some(prepared) = staged.prepared.take() else { return };
        staged.bytes = prepared.bytes;
        let before = staged.present.replace(prepared);
        staged.replaced.extend(before);
    }

    pub(crate) fn release(&self) {
        self.0.lock().replaced.clear();
    }
}

pub(crate) struct Granted {
    pub(crate) inner: Arc<dyn Exposer>,
    pub(crate) grants: Arc<Grants>,
}

impl Exposer for Granted {
    fn expose(&self, bytes: usize) -> Result<Box<dyn Exposed>, FabricError> {
        let limit = self.grants.limit.load(Ordering::SeqCst);
        let more = |pinned: u64| pinned.checked_add(bytes as u64).filter(|sum| *sum <= limit);
        let pinned = self
            .grants
            .pinned
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        pinned.map_err(|_| FabricError::LockedMemory {
            bytes,
            limit: Some(limit),
        })?;
        let pin = Held {
            grants: Arc::clone(&self.grants),
            of: |grants| &grants.pinned,
            bytes,
        };
        let inner = self.inner.expose(bytes)?;
        Ok(Box::new(Pinned { inner, _pin: pin }))
    }
}

struct Pinned {
    inner: Box<dyn Exposed>,
    _pin: Held,
}

impl Exposed for Pinned {
    fn memory(&self) -> &Arc<dyn Memory> {
        self.inner.memory()
    }

    fn revoke(self: Box<Self>) {
        self.inner.revoke();
    }
}
