//! The switch that stops all deliveries.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use inet_rdma_fabric::FabricError;
use inet_rdma_fabric::event::Event;
use parking_lot::Mutex;

/// Stops and resumes all deliveries of the queue pairs that share it, as if the network or the peer's process stood
/// still. Nothing is lost, and no connection ends by it.
#[derive(Debug, Clone, Default)]
pub struct Stall(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_on: AtomicBool,
    /// One event per queue pair, to wake the sleeping ones when a stall ends.
    resumed: Mutex<Vec<Weak<Event>>>,
}

impl Stall {
    /// Nothing is delivered from now on. A poll that is under way may still deliver.
    pub fn begin(&self) {
        self.0.is_on.store(true, Ordering::SeqCst);
    }

    /// Resumes deliveries; every queue pair gets an event.
    pub fn end(&self) {
        // Off first: a queue pair that is armed after this store is armed with the inner one, and one that was armed
        // before it is woken below.
        self.0.is_on.store(false, Ordering::SeqCst);
        let mut resumed = self.0.resumed.lock();
        resumed.retain(|event| {
            let event = event.upgrade();
            if let Some(event) = &event {
                event.set();
            }
            event.is_some()
        });
    }

    pub(crate) fn is_on(&self) -> bool {
        self.0.is_on.load(Ordering::SeqCst)
    }

    /// The event by which a new queue pair learns that a stall has ended.
    pub(crate) fn enrol(&self) -> Result<Arc<Event>, FabricError> {
        let event = Arc::new(Event::new()?);
        let mut resumed = self.0.resumed.lock();
        resumed.retain(|event| event.strong_count() > 0);
        resumed.push(Arc::downgrade(&event));
        Ok(event)
    }
}
