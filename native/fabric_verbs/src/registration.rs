//! A connection's entry in the event registry.

use std::sync::Arc;

use inet_rdma_fabric::FabricError;
use inet_rdma_verbs::cm::CmId;
use inet_rdma_verbs::cq::CompletionQueue;
use inet_rdma_verbs::qp::QueuePair;

use crate::connection_end::{ConnectionEnd, End};
use crate::ended;
use crate::events::Events;
use crate::registry::Names;

/// Held by the connection; the first of its resources that is dropped.
pub(crate) struct Registration {
    events: Arc<Events>,
    end: Arc<ConnectionEnd>,
    names: Names,
    id: Arc<CmId>,
}

impl Registration {
    /// Of a connection in the making: the end of its device, queue pair or completion queues is its own from now on.
    pub(crate) fn new(
        id: &Arc<CmId>,
        queue_pair: &Arc<QueuePair>,
        queues: [&CompletionQueue; 2],
    ) -> Result<Registration, FabricError> {
        let events = Events::running()?;
        let Some(device) = id.device() else {
            return Err(FabricError::PeerGone);
        };
        let names = Names {
            id: id.token(),
            device: device.token(),
            queue_pair: queue_pair.token(),
            completion_queues: queues.map(CompletionQueue::token),
        };
        let end = Arc::new(ConnectionEnd::new(names.id, Some(Arc::clone(queue_pair))));
        events.insert(names, &end, id)?;
        Ok(Registration {
            events,
            end,
            names,
            id: Arc::clone(id),
        })
    }

    /// The connection is up: the peer's end is its own, too.
    pub(crate) fn connected(&self) -> Result<(), FabricError> {
        self.events.adopt(&self.id)
    }

    pub(crate) fn end(&self) -> &ConnectionEnd {
        &self.end
    }

    /// Its end, for a caller that knows that it has come.
    pub(crate) fn why(&self) -> Option<&End> {
        if self.end.get().is_none() {
            self.events.pull(self.names);
        }
        self.end.get()
    }

    /// Sets the end, for a caller that has seen it itself. The teardown thread carries it out: the caller may be a
    /// scheduler that holds a port's lock.
    pub(crate) fn set_end(&self, end: End) {
        if self.end.set(end) {
            ended::have_carried_out(Arc::clone(&self.end));
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.events.remove(self.names, &self.id);
        self.end.release_queue_pair();
    }
}
