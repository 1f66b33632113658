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

/// The entry of one connection, which drops it before its other resources.
pub(crate) struct Registration {
    events: Arc<Events>,
    end: Arc<ConnectionEnd>,
    names: Names,
    id: Arc<CmId>,
}

impl Registration {
    /// The entry of a connection in the making: from now on it ends with its device, queue pair or completion queues.
    pub(crate) fn new(
        id: &Arc<CmId>,
        queue_pair: &Arc<QueuePair>,
        queues: [&CompletionQueue; 2],
    ) -> Result<Registration, FabricError> {
        let events = Events::running()?;
        let device = id.device().ok_or(FabricError::PeerGone)?;
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

    /// The connection is up: from now on it ends with the peer, too.
    pub(crate) fn connected(&self) -> Result<(), FabricError> {
        self.events.adopt(&self.id)
    }

    pub(crate) fn end(&self) -> &ConnectionEnd {
        &self.end
    }

    /// The end, for a caller that knows that there is one.
    pub(crate) fn why(&self) -> Option<&End> {
        if self.end.get().is_none() {
            self.events.pull(self.names);
        }
        self.end.get()
    }

    /// Sets the end, for a caller that has found it. The teardown thread carries it out, as the caller may be a
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
