//! A connection's place among those whose ends are watched.

use std::sync::Arc;

use inet_rdma_fabric::FabricError;
use inet_rdma_verbs::cm::CmId;
use inet_rdma_verbs::cq::CompletionQueue;
use inet_rdma_verbs::qp::QueuePair;

use crate::events::Events;
use crate::fate::{End, Fate};
use crate::known::Names;

/// Held by the connection; the first of its parts that goes.
pub(crate) struct Life {
    events: Arc<Events>,
    fate: Arc<Fate>,
    names: Names,
    id: Arc<CmId>,
}

impl Life {
    /// Of a connection in the making: the end of its device, queue pair or completion queues is its own from now on.
    pub(crate) fn of(
        id: &Arc<CmId>,
        queue_pair: &Arc<QueuePair>,
        queues: [&CompletionQueue; 2],
    ) -> Result<Life, FabricError> {
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
        let fate = Arc::new(Fate::of(names.id, Some(Arc::clone(queue_pair))));
        events.enter(names, &fate, id)?;
        Ok(Life {
            events,
            fate,
            names,
            id: Arc::clone(id),
        })
    }

    /// The connection is up: the peer's end is its own, too.
    pub(crate) fn begin(&self) -> Result<(), FabricError> {
        self.events.adopt(&self.id)
    }

    pub(crate) fn fate(&self) -> &Fate {
        &self.fate
    }

    /// Its end, for a caller that knows that it has come.
    pub(crate) fn why(&self) -> Option<&End> {
        if self.fate.end().is_none() {
            self.events.pull(self.names);
        }
        self.fate.end()
    }

    /// Ends it, for a caller that has seen the end itself. Asks nothing of the kernel.
    pub(crate) fn end(&self, end: End) {
        self.fate.tell_and_have_woken(end);
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.events.leave(self.names, &self.id);
        self.fate.let_go();
    }
}
