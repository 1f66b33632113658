//! The traits that every fabric implements: reliable connected queue pairs with one-sided writes.
//!
//! The stream protocol keeps the queues from overflowing (credits). A fabric checks that nevertheless, and returns
//! [`FabricError::QueueFull`] if a peer or a caller breaks it.
//!
//! The modules are shared by several fabrics and the engine above them: threads that may wait, events to wait for,
//! callers of a listening socket, deadlines of a connecting side, the lingering close of TCP connections, and the end
//! of all connections when the VM crashes.

pub mod callers;
mod capabilities;
pub mod closing;
pub mod crash;
pub mod deadline;
mod directory;
mod errno;
mod error;
pub mod event;
pub mod lingering;
mod misbehaviour;
mod name;
mod room;
pub mod signals;
pub mod threads;
pub mod waiting;

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use inet_rdma_stream::{CONTROL_BYTES, Hello, Limits, Notice, RemoteAddress};

pub use capabilities::{Capabilities, Safeguard, Transport};
pub use directory::DirectoryFault;
pub use errno::Errno;
pub use error::{FabricError, Lack, Rejection, SELF_TEST_RECEIVES, Tried};
pub use misbehaviour::Misbehaviour;
pub use name::{FabricName, UnknownFabric};
pub use room::WriteRoom;

/// The parameters of one side of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Parameters {
    /// The largest ring, receive queue depth and number of advertisements.
    pub limits: Limits,
    /// The most memory for landing buffers that this side will expose, in bytes.
    pub landing_area_bytes: u32,
    /// Names this connection on this side (for logs).
    pub connection_id: u32,
    /// The random number of the settlement that this connection is made for; 0: none. Both sides must have the same
    /// token: see [`Parameters::check_token`].
    pub token: u64,
    /// Bytes that all connections of this process together may pin; 0: the bytes that the process may lock, at most a
    /// quarter of the machine's memory.
    pub pinned_max_bytes: u64,
    /// How a device treats the packets of this side.
    pub network: Network,
}

/// How a device treats the packets of one side. Shared memory has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// How long the device waits for an acknowledgement before it sends again, rounded up to the next 4.096 µs times a
    /// power of two; None: as the connection manager has it.
    pub ack_timeout: Option<Duration>,
    /// The type of service of sent packets, as in ip(7); None: as the connection manager has it.
    pub type_of_service: Option<u8>,
}

impl Network {
    /// The values of the connection manager.
    pub const SYSTEM: Network = Network {
        ack_timeout: None,
        type_of_service: None,
    };
}

/// Size of the first ring and of the first staging memory if they are pinned. An idle link holds little more than both;
/// more would not make a small message faster, and bulk replaces them within its first round trips.
pub const FIRST_RING_BYTES: u32 = 64 * 1024;

impl Parameters {
    /// A side with these limits, without landing buffers and without a token; the system's choice for everything else.
    pub const fn of(limits: Limits) -> Parameters {
        Parameters {
            limits,
            landing_area_bytes: 0,
            connection_id: 0,
            token: 0,
            pinned_max_bytes: 0,
            network: Network::SYSTEM,
        }
    }

    /// The hello of a side with these parameters, and its ring at `ring`.
    pub fn hello(&self, ring: RemoteAddress) -> Hello {
        Hello {
            ring,
            ring_bytes: self.limits.ring_bytes,
            receive_slots: self.limits.receive_slots,
            adverts: self.limits.adverts,
            connection_id: self.connection_id,
            token: self.token,
        }
    }

    /// Size of the first ring if it is pinned.
    pub fn first_ring_bytes(&self) -> u32 {
        self.limits.ring_bytes.min(FIRST_RING_BYTES)
    }

    /// Fails unless the peer's hello has the token of this side. A listener calls it before it maps memory of the peer
    /// or makes memory of its own, so a peer without the token costs a file descriptor, and nothing else.
    pub fn check_token(&self, peer: &Hello) -> Result<(), FabricError> {
        if peer.token == self.token {
            Ok(())
        } else {
            Err(FabricError::WrongToken)
        }
    }
}

/// A completion that a poll found in the receive queue. It used one receive slot, which is posted again already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// A transfer has arrived in this side's memory.
    Notice(Notice),
    /// A control message has arrived.
    Control([u8; CONTROL_BYTES]),
}

/// Memory of one side that the peer may write into: the ring, or an area of landing buffers.
///
/// It stays mapped as long as any clone of its `Arc` lives, also after the queue pair is gone.
pub trait Memory: Send + Sync {
    /// First byte. The peer may write at any time: read through raw pointers, copy before you validate.
    fn base(&self) -> *mut u8;
    /// Size in bytes.
    fn bytes(&self) -> usize;
    /// The address by which the peer can write at `offset`.
    fn remote_address(&self, offset: usize) -> RemoteAddress;
    /// Gives the pages that lie in `range` as a whole back to the system: they are zeros, and take memory again when
    /// they are touched. The peer must have lost the right to write there. Does nothing if the system might not have
    /// pages for a later use.
    fn discard(&self, range: Range<usize>);
}

/// Makes memory that the peer may write into, in addition to the ring of the hello.
pub trait Exposer: Send + Sync {
    /// Exposes `bytes` of zeros. With [`Capabilities::pins`] it pins them, which takes long: neither a scheduler nor a
    /// polling thread may call it.
    fn expose(&self, bytes: usize) -> Result<Box<dyn Exposed>, FabricError>;
    /// As [`Self::expose`], in parts of `part_bytes` that the peer may write only while their windows are open. For
    /// queue pairs with [`Capabilities::windows`]; if the device has no window left the area is as [`Self::expose`]
    /// makes it.
    fn expose_windows(&self, bytes: usize, _part_bytes: usize) -> Result<Box<dyn Exposed>, FabricError> {
        self.expose(bytes)
    }
}

/// Memory that an [`Exposer`] has made. Dropped, it stays exposed until the queue pair is taken apart.
pub trait Exposed: Send {
    /// The memory, which outlives this value.
    fn memory(&self) -> &Arc<dyn Memory>;
    /// A window for each part, in their order; none: the peer may write all of the memory.
    fn windows(&self) -> Vec<Arc<dyn Window>> {
        Vec::new()
    }
    /// Whether [`Self::revoke`] can take it away now. False: the device still uses it; ask again later.
    fn is_unused(&self) -> bool {
        true
    }
    /// Takes it away from the peer, which must not write there from now on: over verbs a write that is under way ends
    /// the connection. Memory that is not [`Self::is_unused`] stays until the queue pair is taken apart. Takes as long
    /// as [`Exposer::expose`].
    fn revoke(self: Box<Self>);
}

/// A part of memory that the peer may write while it is open. Only calls of its connection's open and close it.
pub trait Window: Send + Sync {
    /// Opens the window, also if it is open. Returns the address for the peer, to be sent in a control message that is
    /// posted afterwards. Earlier addresses are invalid from then on.
    fn open(&self) -> Result<RemoteAddress, FabricError>;
    /// Asks the device to close it. Poll the queue pair until that is done; its event tells when.
    fn close(&self);
    /// Whether the peer may write.
    fn state(&self) -> WindowState;
}

/// Whether the peer may write through a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowState {
    /// The peer may write. A window that could not be closed stays open.
    Open,
    /// The invalidation is posted and not complete: the peer can still write.
    Closing,
    /// The peer can no longer write.
    Closed,
}

/// One end of a reliable connected queue pair.
pub trait QueuePair: Send + Sync {
    /// The ring of this side's hello.
    fn memory(&self) -> &Arc<dyn Memory>;
    /// Makes more memory that the peer may write into. It does not keep the queue pair alive.
    fn exposer(&self) -> Arc<dyn Exposer>;
    /// The peer's hello.
    fn remote_hello(&self) -> &Hello;
    /// The capabilities of this queue pair; the same for its whole life.
    fn capabilities(&self) -> Capabilities;
    /// Gathers `source` into the peer's memory at `target`, then tells the peer with `notice`.
    /// When it returns the source may be reused. `source` has at most as many bytes as `room`; more of them are
    /// [`FabricError::QueueFull`] or sent, as the fabric can.
    ///
    /// The peer has named `target`, and all of it must lie in memory that the peer has exposed. Otherwise no byte is
    /// written: this call returns [`FabricError::PeerMisbehaved`], or the peer's device ends the connection. An empty
    /// `source` is a transfer of no bytes. A post after the peer's death may still succeed without an effect: ask
    /// [`Self::check_alive`] for liveness. After this side's own end the call returns [`FabricError::PeerGone`]. The
    /// error is boxed, so that the result is returned in a register.
    fn post_write(
        &self,
        room: WriteRoom,
        source: &[&[u8]],
        target: RemoteAddress,
        notice: Notice,
    ) -> Result<(), Box<FabricError>>;
    /// Sends a control message, after earlier posts of this side. May keep it until there is a place for it; it looks
    /// for a place when this side posts, polls (also with an empty `out`) or arms.
    fn post_control(&self, message: &[u8; CONTROL_BYTES]) -> Result<(), FabricError>;
    /// Gets memory for [`Self::replace_staging`], from which `bytes` can be sent at a time. Takes as long as
    /// [`Exposer::expose`]. Does nothing on a fabric that sends from where the bytes are.
    fn prepare_staging(&self, _bytes: usize) -> Result<(), FabricError> {
        Ok(())
    }
    /// Transfers are sent from the prepared memory from now on. Call it while no [`WriteRoom`] is in use: earlier
    /// ones describe the replaced memory.
    fn replace_staging(&self) {}
    /// Gives back replaced memory that the device no longer sends from. Takes long. True: all is given back.
    fn release_staging(&self) -> bool {
        true
    }
    /// Room for a transfer that is posted now; None: wait for an event, then poll.
    fn write_room(&self) -> Option<WriteRoom>;
    /// Takes up to `out.len()` completions, oldest first; returns their number. One caller at a time of this and of
    /// [`Self::arm`] (the engine holds the connection's lock). Err once all completions before a fault have been taken,
    /// and from then on.
    fn poll(&self, out: &mut [Completion]) -> Result<usize, FabricError>;
    /// True if the peer has this number of entries, or more, to take. False where that is not known.
    fn peer_is_behind(&self, _entries: u32) -> bool {
        false
    }
    /// True only if the receive queue is empty. Called without the connection's lock; may return false spuriously.
    fn is_quiet(&self) -> bool {
        false
    }
    /// Asks for an event at the next completion, or when there is room to write again after [`Self::write_room`] was
    /// None. False: there is something already, or the connection has come to its end: poll again (nothing is armed
    /// then, yet an event that was on its way may still make `event_fd` readable once).
    fn arm(&self) -> Result<bool, FabricError>;
    /// Takes back the request of [`Self::arm`] if that is possible without waiting. An event may still come.
    fn disarm(&self);
    /// Readable after an armed queue got a completion.
    fn event_fd(&self) -> BorrowedFd<'_>;
    /// Takes the event that made `event_fd` readable. After an event: drain, then poll, then arm; draining after the
    /// poll could take the event of a completion that was not polled. It may take one event of several and leave
    /// `event_fd` readable.
    ///
    /// False: `event_fd` is [`Self::liveness_fd`] as well, and it is the connection's end that made it readable; ask
    /// with [`Self::check_alive`].
    fn drain_event(&self) -> bool;
    /// Readable when the connection may have ended; ask with [`Self::check_alive`]. May be the descriptor of
    /// [`Self::event_fd`]: watch it once. In that case the end may make it readable only while the queue pair is armed;
    /// otherwise [`Self::poll`] or [`Self::arm`] finds the end.
    fn liveness_fd(&self) -> BorrowedFd<'_>;
    /// Err once the peer has disconnected or died. Transfers that it sent before can still be polled.
    fn check_alive(&self) -> Result<(), FabricError>;
    /// Asks the peer's device for an answer after all posted requests, unless it owes an answer already. Returns
    /// whether it has answered since the last call. Neither the peer's process nor its processor takes part, and the
    /// peer's user does not notice. Never waits.
    fn ask(&self) -> Answer {
        Answer::NotAsked
    }
    /// Ends the connection; the peer sees it at once. Idempotent.
    fn disconnect(&self);
    /// Bytes of memory that are pinned for it.
    fn pinned_bytes(&self) -> u64 {
        0
    }
    /// Wake-ups sent to the peer, that is: events that cost a system call.
    fn wakeups_sent(&self) -> u64;
    /// The fabric that made it.
    fn fabric(&self) -> FabricName;
    /// The route to the peer, in words.
    fn route(&self) -> String;
    /// Both ends' addresses, this side's first; None: the fabric has none.
    fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        None
    }
    /// The fabric's counts of this connection; zeros if it does not count.
    fn counts(&self) -> Counts {
        Counts::default()
    }
}

/// The result of [`QueuePair::ask`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The fabric has no device that could be asked, the device fails the requests that ask, or the connection has
    /// ended.
    NotAsked,
    /// The peer's device has answered since the last call, or was not asked before.
    Arrived,
    /// The peer's device has not answered.
    Awaited,
}

/// A fabric's counts of operations that cost a system call or a doorbell of the device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Work requests posted to be sent.
    pub sends_posted: u64,
    /// Calls that posted receives.
    pub post_recv_calls: u64,
    /// Completions taken, of sends and of receives.
    pub completions: u64,
    /// Events asked for.
    pub events_armed: u64,
}

/// Accepts connections. Never blocks: a silent peer takes one of a bounded number of places until its deadline.
///
/// With a [`Parameters::token`] other than 0 it is a one-off listener: it ends with the first peer that has this token.
/// That peer's queue pair, or the reason why there is none, is the last result of [`Self::poll_accept`].
pub trait Listener: Send {
    /// Readable when [`Self::poll_accept`] may have something.
    fn event_fd(&self) -> BorrowedFd<'_>;
    /// When to call [`Self::poll_accept`] at the latest, for deadlines of silent peers.
    fn next_deadline(&self) -> Option<Instant>;
    /// The next ready connection or refused attempt; None: there is none for now.
    fn poll_accept(&mut self) -> Option<Result<Box<dyn QueuePair>, FabricError>>;
    /// True: [`Self::poll_accept`] has no further results, so the listener can be dropped. The peer of a one-off
    /// listener has come, or the listening socket has failed.
    fn is_over(&self) -> bool;
    /// The port that peers connect to.
    fn port(&self) -> u16;
    /// The fabrics that it listens over, in words.
    fn over(&self) -> String;
}

/// A kind of network that makes queue pairs.
pub trait Fabric: Send + Sync {
    /// Its name.
    fn name(&self) -> FabricName;
    /// Listens on the first free port of `ports` (0..=0: any free one).
    fn listen(&self, options: &ListenOptions) -> Result<Box<dyn Listener>, FabricError>;
    /// Connects; blocks up to `timeout`. `from`: this side's address; None: the route chooses. Shm ignores it.
    fn connect_from(
        &self,
        from: Option<IpAddr>,
        to: SocketAddr,
        parameters: &Parameters,
        timeout: Duration,
    ) -> Result<Box<dyn QueuePair>, FabricError>;
    /// Connects from the address that the route chooses.
    fn connect(
        &self,
        to: SocketAddr,
        parameters: &Parameters,
        timeout: Duration,
    ) -> Result<Box<dyn QueuePair>, FabricError> {
        self.connect_from(None, to, parameters, timeout)
    }
}

/// How to listen.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// The address to listen on; None: all addresses of this machine. Shm ignores it.
    pub address: Option<IpAddr>,
    /// First and last port to try; 0 and 0: any free one.
    pub ports: std::ops::RangeInclusive<u16>,
    /// The most peers whose hello is awaited, and connections that wait to be accepted; one more is refused.
    pub backlog: u16,
    /// How long a peer may take to say hello.
    pub hello_timeout: Duration,
    /// This side's parameters of each connection.
    pub parameters: Parameters,
}

impl ListenOptions {
    /// Calls `listen` with one port after the other, until it returns Some. None: the port is taken. 0, any free port,
    /// comes several times: a listener on several addresses or fabrics may find that the port of the first one is taken
    /// for the second.
    pub fn on_first_free<T>(
        &self,
        mut listen: impl FnMut(u16) -> Result<Option<T>, FabricError>,
    ) -> Result<T, FabricError> {
        let (first, last) = (*self.ports.start(), *self.ports.end());
        let ports = if last == 0 {
            vec![0; 20]
        } else {
            self.ports.clone().collect()
        };
        for port in ports {
            if let Some(listener) = listen(port)? {
                return Ok(listener);
            }
        }
        Err(FabricError::PortsTaken { first, last })
    }
}
