//! The thread that takes the events about the ends of connections: one for the process, started when the process first
//! looks for addresses of devices, listens at an address, or makes a connection. It reads one channel of the connection
//! manager for all connections that are up, and the asynchronous events of each device once, and the removal of each
//! device that librdmacm has opened ([`removal_watch`]). A connection so needs no descriptor for its end: the thread
//! stores the end, and moves its queue pair to the error state, which wakes the user through the completion channel
//! ([`ConnectionEnd::carry_out`]).

mod removal_watch;
mod turn;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use inet_rdma_fabric::crash::EndsAtCrash;
use inet_rdma_fabric::event::Event;
use inet_rdma_fabric::{Errno, FabricError, threads};
use inet_rdma_verbs::async_event;
use inet_rdma_verbs::cm::{CmId, EventChannel, Kind};
use parking_lot::Mutex;
use rustix::event::epoll;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::connection_end::{ConnectionEnd, End};
use crate::ended;
use crate::refusal::{self, failed_call};
use crate::registry::{Names, Registry};
use removal_watch::RemovalWatch;
use turn::Turn;

/// Events of one source that are taken before the next source has its turn.
const BATCH: usize = 64;

/// Maximum number of events for [`Events::pull`]: few, as its caller may be a scheduler.
const PULLED_MAX: usize = 16;

/// The data of descriptors in the epoll set. A device's descriptor has the device's token.
const CALLED: u64 = 0;
const CHANNEL: u64 = 1;
const CRASH: u64 = 2;

pub(crate) struct Events {
    channel: Arc<EventChannel>,
    /// An epoll set: `channel`, `called`, and the descriptor of each device in use.
    watch: OwnedFd,
    /// Makes the thread look at the channel and at `pending`.
    called: Event,
    crash: Crash,
    /// Locked while an event is taken and its connection is looked up: so the event of a connection that has left is
    /// never taken for one of a new connection that has got the same names.
    registry: Mutex<Registry<Arc<CmId>>>,
    /// Connections whose ends [`Events::pull`] has stored, for the thread to carry them out.
    pending: Mutex<Vec<Arc<ConnectionEnd>>>,
    removal_watch: Mutex<RemovalWatch>,
    /// Tokens of ids whose devices were removed, for the thread: [`Events::pull`] must not wait for `removal_watch`,
    /// which is locked while the kernel is asked.
    removed: Mutex<Vec<usize>>,
    turn: Turn,
    /// The reason why the thread has ended; None: it runs.
    failure: OnceLock<FabricError>,
}

/// Tells the thread that the VM has crashed.
struct Crash {
    told: OwnedFd,
    /// Before the socket: it is dropped first.
    _ends_at_crash: EndsAtCrash,
    _telling: OwnedFd,
}

impl Crash {
    fn new() -> Result<Crash, FabricError> {
        let (told, telling) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(|errno| FabricError::system("making sockets that report a crash", errno))?;
        Ok(Crash {
            told,
            _ends_at_crash: EndsAtCrash::enter(telling.as_fd()),
            _telling: telling,
        })
    }
}

/// The thread's events; None before its first start.
static RUNNING: Mutex<Option<Arc<Events>>> = Mutex::new(None);

impl Events {
    /// The events of the thread, which is started if none runs. Err also if the thread hangs, as it would not see the
    /// end of a new connection.
    pub(crate) fn running() -> Result<Arc<Events>, FabricError> {
        let mut running = RUNNING.lock();
        if let Some(events) = running.as_ref().filter(|events| events.failure.get().is_none()) {
            return if events.turn.hangs(Instant::now()) {
                Err(FabricError::system(
                    "waiting for the thread of RDMA events to go on",
                    Errno(libc::ETIMEDOUT),
                ))
            } else {
                Ok(Arc::clone(events))
            };
        }
        let channel = Arc::new(EventChannel::create().map_err(refusal::no_connection_manager)?);
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(watching)?;
        let (called, crash) = (Event::new()?, Crash::new()?);
        add(&watch, channel.as_fd(), CHANNEL)?;
        add(&watch, called.as_fd(), CALLED)?;
        add(&watch, crash.told.as_fd(), CRASH)?;
        let events = Arc::new(Events {
            channel,
            watch,
            called,
            crash,
            registry: Mutex::default(),
            pending: Mutex::default(),
            removal_watch: Mutex::default(),
            removed: Mutex::default(),
            turn: Turn::new(),
            failure: OnceLock::new(),
        });
        let thread = Arc::clone(&events);
        threads::start("inet_rdma/events", move || thread.serve())?;
        *running = Some(Arc::clone(&events));
        Ok(events)
    }

    /// From now on events of the device store the end of this connection in `connection_end`. See [`Self::adopt`] for
    /// the other events.
    pub(crate) fn insert(
        &self,
        names: Names,
        connection_end: &Arc<ConnectionEnd>,
        id: &Arc<CmId>,
    ) -> Result<(), FabricError> {
        let device = id.device().ok_or(FabricError::PeerGone)?;
        let mut registry = self.registry.lock();
        if registry.insert(names, Arc::clone(connection_end), Arc::clone(id)) {
            let watched = id.watch_device().map_err(failed_call);
            if let Err(error) = watched.and_then(|()| add(&self.watch, device.async_fd(), names.device as u64)) {
                registry.remove(names);
                return Err(error);
            }
        }
        drop(registry);
        // The thread may have ended before it could find this connection.
        match self.failure.get() {
            None => Ok(()),
            Some(failure) => {
                self.remove(names, id);
                Err(failure.clone())
            }
        }
    }

    /// Takes the events of an id that is connected, from the channel on which it was made.
    pub(crate) fn adopt(&self, id: &CmId) -> Result<(), FabricError> {
        id.migrate(&self.channel).map_err(failed_call)?;
        // Events that were moved with the id wake no thread.
        self.called.set();
        Ok(())
    }

    /// Removes a connection: the objects that events name it by are about to be destroyed.
    pub(crate) fn remove(&self, names: Names, id: &CmId) {
        // The connection may have ended for another reason before the removal of its device is known.
        self.pull(names);
        let mut registry = self.registry.lock();
        let is_last = registry.remove(names);
        if let (true, Some(device)) = (is_last, id.device()) {
            // The thread may have removed it.
            let _ = epoll::delete(&self.watch, device.async_fd());
        }
    }

    /// Lets the kernel remove the device of this id, if it has one, while no connection uses it: from now on the thread
    /// learns of the removal.
    pub(crate) fn watch_for_removal(&self, id: &CmId) {
        self.removal_watch.lock().watch(&self.channel, id);
    }

    /// Takes a few events now, for a user that looks for the reason of its connection's end. The thread wakes the users
    /// of other connections whose ends this call finds.
    pub(crate) fn pull(&self, names: Names) {
        let mut pending = Vec::new();
        let registry = self.registry.lock();
        // The thread finds this failure, too.
        let _ = self.take_of_connections(&registry, PULLED_MAX, &mut pending);
        self.take_of_device(&registry, names.device, PULLED_MAX, &mut pending);
        drop(registry);
        let has_removed = !self.removed.lock().is_empty();
        if !pending.is_empty() || has_removed {
            self.pending.lock().append(&mut pending);
            self.called.set();
        }
    }

    fn serve(&self) {
        let ended = catch_unwind(AssertUnwindSafe(|| self.run()));
        let failure = match ended {
            Ok(Err(error)) => error,
            Ok(Ok(never)) => match never {},
            Err(_) => FabricError::Panicked("the thread of RDMA events"),
        };
        let failure = self.failure.get_or_init(|| failure);
        // No thread takes the events of these connections now. The next connection starts another thread.
        let all: Vec<Arc<ConnectionEnd>> = self.registry.lock().all().cloned().collect();
        for end in all {
            if end.set(End::Failed(failure.clone())) {
                ended::carry_out_and_report(&end);
            }
        }
    }

    fn run(&self) -> Result<std::convert::Infallible, FabricError> {
        let mut ready = Vec::with_capacity(16);
        loop {
            ready.clear();
            match epoll::wait(&self.watch, rustix::buffer::spare_capacity(&mut ready), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(watching(errno)),
            }
            self.turn.begin(Instant::now());
            self.take_turn(ready.iter().map(|event| event.data.u64()))?;
            self.turn.end();
        }
    }

    /// Takes events of the sources that are readable, then wakes their connections.
    fn take_turn(&self, readable: impl Iterator<Item = u64>) -> Result<(), FabricError> {
        let mut pending = Vec::new();
        for source in readable {
            match source {
                CALLED => {
                    self.called.clear();
                    pending.append(&mut self.pending.lock());
                    if self.take_of_connections(&self.registry.lock(), BATCH, &mut pending)? {
                        // Events that were moved to the channel did not make it readable.
                        self.called.set();
                    }
                }
                CHANNEL => {
                    // Events that are left keep it readable.
                    let _is_rest = self.take_of_connections(&self.registry.lock(), BATCH, &mut pending)?;
                }
                CRASH => self.disconnect_all(),
                device => self.take_of_device(&self.registry.lock(), device as usize, BATCH, &mut pending),
            }
        }
        let removed = std::mem::take(&mut *self.removed.lock());
        if !removed.is_empty() {
            let ids = self.removal_watch.lock().take_removed(&removed);
            // Destroys them without the lock, as that asks the kernel.
            drop(ids);
        }
        for end in pending {
            // Each wake asks the device, so the thread's turn begins again with each: their sum is no sign of a hang.
            self.turn.begin(Instant::now());
            ended::carry_out_and_report(&end);
        }
        Ok(())
    }

    /// Shows all peers the end, as the VM has crashed: its dump may take minutes. A thread that was stopped with the
    /// registry locked keeps this one from it; then the peers miss ticks.
    fn disconnect_all(&self) {
        let _ = epoll::delete(&self.watch, &self.crash.told);
        self.registry.lock().all().for_each(|end| end.carry_out());
    }

    /// Takes up to `max` events of connections. True: there may be more.
    fn take_of_connections(
        &self,
        registry: &Registry<Arc<CmId>>,
        max: usize,
        pending: &mut Vec<Arc<ConnectionEnd>>,
    ) -> Result<bool, FabricError> {
        for _ in 0..max {
            let Some(event) = self.channel.next_event().map_err(failed_call)? else {
                return Ok(false);
            };
            if event.kind == Kind::DeviceRemoval {
                self.removed.lock().push(event.id);
            }
            let (Some(end), Some(connection_end)) = (end_by(event.kind), registry.connection(event.id)) else {
                continue;
            };
            if connection_end.set(end) {
                pending.push(Arc::clone(connection_end));
            }
        }
        Ok(true)
    }

    /// Takes up to `max` events of a device; the rest leaves its descriptor readable.
    fn take_of_device(
        &self,
        registry: &Registry<Arc<CmId>>,
        token: usize,
        max: usize,
        pending: &mut Vec<Arc<ConnectionEnd>>,
    ) {
        let Some(device) = registry.device(token).and_then(|id| id.device()) else {
            return;
        };
        for _ in 0..max {
            let (concerns, end) = match async_event::take(device) {
                Ok(None) => return,
                Ok(Some(event)) => {
                    let (device, what) = (device.name(), event.what);
                    (event.concerns, FabricError::DeviceEvent { device, event: what })
                }
                Err(_) => {
                    // The descriptor would stay readable for ever.
                    let _ = epoll::delete(&self.watch, device.async_fd());
                    (async_event::Concerns::Device, FabricError::DeviceRemoved)
                }
            };
            let concerned = registry.concerned(token, concerns).into_iter();
            let of = match concerns {
                async_event::Concerns::Device => End::DeviceFailed,
                _ => End::Failed,
            };
            pending.extend(concerned.filter(|concerned| concerned.set(of(end.clone()))));
            if end == FabricError::DeviceRemoved {
                return;
            }
        }
    }
}

/// The end that an event of a connected id means. None: the event means no end.
fn end_by(kind: Kind) -> Option<End> {
    match kind {
        Kind::Disconnected | Kind::ConnectError | Kind::Unreachable | Kind::Rejected => Some(End::Peer),
        Kind::DeviceRemoval => Some(End::DeviceFailed(FabricError::DeviceRemoved)),
        // Events that repeat another one or have no meaning for a connection. After an address change (bonding) the
        // queue pair stays on its device, and ends with it.
        Kind::AddressChange
        | Kind::Established
        | Kind::TimewaitExit
        | Kind::AddressResolved
        | Kind::AddressError
        | Kind::RouteResolved
        | Kind::RouteError
        | Kind::ConnectRequest
        | Kind::Other(_) => None,
    }
}

fn watching(errno: rustix::io::Errno) -> FabricError {
    FabricError::system("watching the ends of connections", errno)
}

fn add(watch: &OwnedFd, fd: BorrowedFd<'_>, data: u64) -> Result<(), FabricError> {
    epoll::add(watch, fd, epoll::EventData::new_u64(data), epoll::EventFlags::IN).map_err(watching)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_ends_of_connections_end_them() {
        assert_eq!(end_by(Kind::Disconnected), Some(End::Peer));
        assert_eq!(
            end_by(Kind::DeviceRemoval),
            Some(End::DeviceFailed(FabricError::DeviceRemoved)),
            "the self-test takes it for no fault of a request"
        );
        for kind in [
            Kind::TimewaitExit,
            Kind::AddressChange,
            Kind::Established,
            Kind::Other(77),
        ] {
            assert_eq!(end_by(kind), None, "{kind}");
        }
    }
}
