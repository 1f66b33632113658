//! Events of the connection manager and of the device about a connection's life.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, LazyLock};

use inet_rdma_verbs::async_event;
use inet_rdma_verbs::cm::{CmId, EventChannel, Kind};
use inet_rdma_verbs::cq::CompletionQueue;
use inet_rdma_verbs::qp::QueuePair;

use super::fate::{End, Fate, Known, Names};
use crate::fabric::FabricError;

static KNOWN: LazyLock<Known> = LazyLock::new(Known::default);

/// The ear of one connection.
pub(super) struct Life {
    channel: Arc<EventChannel>,
    fate: Arc<Fate>,
    names: Names,
}

impl Life {
    /// Listens for a queue pair of `id` and its completion queues. The events of `id` come through `channel`, now or soon.
    pub(super) fn of(
        id: &CmId,
        channel: Arc<EventChannel>,
        qp: &QueuePair,
        queues: [&CompletionQueue; 2],
    ) -> Result<Life, FabricError> {
        id.watch_device()?;
        let Some(device) = id.device() else {
            return Err(FabricError::PeerGone);
        };
        let fate = Fate::watching(&[channel.as_fd(), device.async_fd()]).map_err(|errno| FabricError::System {
            doing: "watching the life of a connection",
            error: errno.into(),
        })?;
        let fate = Arc::new(fate);
        let names = Names {
            device: device.token(),
            queue_pair: qp.token(),
            completion_queues: queues.map(CompletionQueue::token),
        };
        KNOWN.enter(names, &fate);
        Ok(Life { channel, fate, names })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fate.fd()
    }

    pub(super) fn channel(&self) -> &Arc<EventChannel> {
        &self.channel
    }

    pub(super) fn fate(&self) -> &Fate {
        &self.fate
    }

    /// Takes all that there is to hear.
    pub(super) fn listen(&self, id: &CmId) {
        loop {
            match self.channel.next_event() {
                Ok(None) => break,
                Ok(Some(event)) => match event.kind {
                    Kind::Disconnected => self.fate.tell(End::Peer),
                    Kind::DeviceRemoval => self.fate.tell(End::Failed(FabricError::DeviceRemoved)),
                    Kind::ConnectError | Kind::Unreachable | Kind::Rejected => self.fate.tell(End::Peer),
                    // Events that repeat another one or have no meaning for a connection. After an address change
                    // (bonding) the queue pair stays on its device, and ends with it.
                    Kind::AddressChange
                    | Kind::Established
                    | Kind::TimewaitExit
                    | Kind::AddressResolved
                    | Kind::AddressError
                    | Kind::RouteResolved
                    | Kind::RouteError
                    | Kind::ConnectRequest
                    | Kind::Other(_) => {}
                },
                Err(failed) => {
                    self.fate.tell(End::Failed(FabricError::from(failed)));
                    break;
                }
            }
        }
        if let Some(device) = id.device() {
            KNOWN.tell(device.token(), || device.name(), || async_event::take(device));
        }
        self.fate.hear();
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        KNOWN.leave(self.names);
    }
}
