//! What the connection manager and the device say about a connection's life.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, LazyLock, Weak};

use inet_rdma_verbs::async_event::{self, Concerns};
use inet_rdma_verbs::cm::{CmId, EventChannel, Kind};
use inet_rdma_verbs::qp::QueuePair;
use parking_lot::Mutex;
use rustix::event::epoll;

use super::refusal;
use crate::fabric::FabricError;

/// How a connection ended, as far as it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// The peer disconnected, or its process ended.
    Peer,
    /// Something else.
    Failed(FabricError),
}

/// The end of one connection, told by whoever hears of it: every connection of a device reads the same descriptor.
#[derive(Default)]
pub(super) struct Fate(Mutex<Option<End>>);

impl Fate {
    /// The first word counts.
    pub(super) fn tell(&self, end: End) {
        self.0.lock().get_or_insert(end);
    }

    pub(super) fn end(&self) -> Option<End> {
        self.0.lock().clone()
    }
}

/// Whom an asynchronous event is about: by the queue pair's token; with it the device's.
type Known = HashMap<usize, (usize, Weak<Fate>)>;

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

/// The ear of one connection.
pub(super) struct Life {
    channel: Arc<EventChannel>,
    /// Readable when the connection manager or the device has something to say.
    both: OwnedFd,
    fate: Arc<Fate>,
    token: usize,
}

impl Life {
    /// Listens for a queue pair of `id`, whose events come through `channel`, now or soon.
    pub(super) fn of(id: &CmId, channel: Arc<EventChannel>, qp: &QueuePair) -> Result<Life, FabricError> {
        id.watch_device().map_err(refusal::system)?;
        let Some(device) = id.device() else {
            return Err(FabricError::PeerGone);
        };
        let system = |errno: rustix::io::Errno| FabricError::System {
            doing: "watching the life of a connection",
            error: errno.into(),
        };
        let both = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?;
        for fd in [channel.as_fd(), device.async_fd()] {
            epoll::add(&both, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN).map_err(system)?;
        }
        let fate = Arc::new(Fate::default());
        let token = qp.token();
        KNOWN.lock().insert(token, (device.token(), Arc::downgrade(&fate)));
        Ok(Life {
            channel,
            both,
            fate,
            token,
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.both.as_fd()
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
                    // Told twice, or of interest to nobody. An address that has moved to another device, as with bonding: this
                    // queue pair stays where it is, and goes with its device.
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
                    self.fate.tell(End::Failed(refusal::system(failed)));
                    break;
                }
            }
        }
        let Some(device) = id.device() else { return };
        while let Some(event) = async_event::take(device) {
            let known = KNOWN.lock();
            let error = FabricError::DeviceEvent {
                device: device.name(),
                event: event.what,
            };
            let concerned = known.iter().filter(|(token, (of, _))| match event.concerns {
                Concerns::QueuePair(fallen) => **token == fallen,
                Concerns::Device => *of == device.token(),
                Concerns::News => false,
            });
            for (_, (_, fate)) in concerned {
                if let Some(fate) = fate.upgrade() {
                    fate.tell(End::Failed(error.clone()));
                }
            }
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        KNOWN.lock().remove(&self.token);
    }
}
