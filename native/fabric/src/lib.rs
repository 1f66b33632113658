//! What every fabric offers: reliable connected queue pairs with one-sided writes.
//!
//! The stream protocol keeps the queues from overflowing (credits); a fabric checks all the same and answers
//! [`FabricError::QueueFull`] where a peer or a caller breaks that.
//!
//! The modules are what several fabrics, and the engine above them, share besides: threads that may wait, and what they
//! wait for; callers of a listening socket, how long a connecting side waits, and the lingering close
//! of TCP connections.

pub mod callers;
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

pub use directory::DirectoryFault;
pub use errno::Errno;
pub use error::{FabricError, Lack, Rejection};
pub use misbehaviour::Misbehaviour;
pub use name::{FabricName, UnknownFabric};
pub use room::WriteRoom;

/// What one side brings into a connection.
#[derive(Debug, Clone, Copy)]
pub struct Parameters {
    /// The largest ring, receive queue depth and number of advertisements.
    pub limits: Limits,
    /// The most memory for landing buffers that this side will expose, in bytes.
    pub landing_area_bytes: u32,
    /// Names this connection on this side (for logs).
    pub connection_id: u32,
    /// The random number of the settlement that this connection is made for; 0: none. Both sides must have the same:
    /// see [`Parameters::check_token`].
    pub token: u64,
    /// Bytes that all connections of this process together may pin; 0: what the process may lock, at most a quarter of
    /// the machine's memory.
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
    /// The type of service of what is sent, as in ip(7); None: as the connection manager has it.
    pub type_of_service: Option<u8>,
}

impl Network {
    /// All as the connection manager has it.
    pub const SYSTEM: Network = Network {
        ack_timeout: None,
        type_of_service: None,
    };
}

/// The ring and the staging memory that a connection begins with where they are pinned. An idle link holds little more
/// than both; more would not make a small message faster, and bulk replaces them within its first round trips.
pub const FIRST_RING_BYTES: u32 = 64 * 1024;

impl Parameters {
    /// Size of the first ring where it is pinned.
    pub fn first_ring_bytes(&self) -> u32 {
        self.limits.ring_bytes.min(FIRST_RING_BYTES)
    }

    /// Fails unless the peer's hello has the token of this side. A listener calls it before it maps memory of the peer
    /// or makes memory of its own, so a peer without the token costs a file descriptor and no more.
    pub fn check_token(&self, peer: &Hello) -> Result<(), FabricError> {
        if peer.token == self.token {
            Ok(())
        } else {
            Err(FabricError::WrongToken)
        }
    }
}

/// Something that a poll found in the receive queue; each used one receive slot, which is posted again already.
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
    /// How many bytes.
    fn bytes(&self) -> usize;
    /// What to tell the peer so that it can write at `offset`.
    fn remote_address(&self, offset: usize) -> RemoteAddress;
    /// Gives the pages that lie in `range` as a whole back to the system: they are zeros, and take memory again when
    /// they are touched. The peer must have no right to write there any more. Does nothing where the pages cannot be
    /// had again for certain.
    fn discard(&self, range: Range<usize>);
}

/// Makes memory that the peer may write into, beside the ring of the hello.
pub trait Exposer: Send + Sync {
    /// Exposes `bytes` of zeros. With [`Capabilities::pins`] it pins them, which takes long: neither a scheduler nor a
    /// polling thread may call it.
    fn expose(&self, bytes: usize) -> Result<Box<dyn Exposed>, FabricError>;
    /// As [`Self::expose`], in parts of `part_bytes` that the peer may write only while their windows are open. With
    /// [`Capabilities::windows`]; where the device has none left the area is as [`Self::expose`] makes it.
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
    /// Whether [`Self::revoke`] can take it away now. False: the device works on it; ask again later.
    fn is_unused(&self) -> bool {
        true
    }
    /// Takes it away from the peer, which must not write there any more: over verbs a write that is under way ends the
    /// connection. What is not [`Self::is_unused`] stays until the queue pair is taken apart. Takes as long as
    /// [`Exposer::expose`].
    fn revoke(self: Box<Self>);
}

/// A part of memory that the peer may write while it is open. Only calls of its connection's open and close it.
pub trait Window: Send + Sync {
    /// Opens it, anew if it is open: what to tell the peer in a control message that is posted afterwards. What the
    /// peer was told before is worth nothing from then on.
    fn open(&self) -> Result<RemoteAddress, FabricError>;
    /// Asks the device to close it. The queue pair is to be polled until that is done, and its event tells when.
    fn close(&self);
    /// Whether the peer may write.
    fn state(&self) -> WindowState;
}

/// Whether the peer may write through a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowState {
    /// It may, or might: a window that could not be closed stays open.
    Open,
    /// It still may; a poll will find that it may not.
    Closing,
    /// It may not, whatever it was told.
    Closed,
}

/// One end of a reliable connected queue pair.
pub trait QueuePair: Send + Sync {
    /// The ring that this side's hello tells of.
    fn memory(&self) -> &Arc<dyn Memory>;
    /// Makes more memory that the peer may write into. It does not keep the queue pair alive.
    fn exposer(&self) -> Arc<dyn Exposer>;
    /// What the peer said of itself.
    fn remote_hello(&self) -> &Hello;
    /// What this queue pair is good at; the same for its whole life.
    fn capabilities(&self) -> Capabilities;
    /// Gathers `source` into the peer's memory at `target`, then tells the peer with `notice`.
    /// When it returns the source may be reused. `source` has at most as many bytes as `room`; more of them are
    /// [`FabricError::QueueFull`] or sent, as the fabric can.
    ///
    /// `target` is the peer's word, and must be inside memory that it has exposed as a whole. Nothing is written where
    /// it is not: either this call is [`FabricError::PeerMisbehaved`], or the peer's device ends the connection. An
    /// empty `source` is a transfer of no bytes. A post after the peer's death may still succeed without an effect: ask
    /// [`Self::check_alive`] for liveness. After this side's own end it is [`FabricError::PeerGone`].
    fn post_write(
        &self,
        room: WriteRoom,
        source: &[&[u8]],
        target: RemoteAddress,
        notice: Notice,
    ) -> Result<(), FabricError>;
    /// Sends a control message. Keeps its order against earlier posts of the same side. May keep it until there is a
    /// place for it, which it looks for when this side posts, polls (also nothing) or arms.
    fn post_control(&self, message: &[u8; CONTROL_BYTES]) -> Result<(), FabricError>;
    /// Gets memory for [`Self::replace_staging`], from which `bytes` can be sent at a time. Takes as long as
    /// [`Exposer::expose`]. Does nothing on a fabric that sends from where the bytes are.
    fn prepare_staging(&self, _bytes: usize) -> Result<(), FabricError> {
        Ok(())
    }
    /// Transfers are sent from the prepared memory from now on. Call it while there is no [`WriteRoom`] to be used: the
    /// room is that of the memory before.
    fn replace_staging(&self) {}
    /// Gives back memory that was replaced and that nothing is sent from any more. Takes long, too. True: none is left.
    fn release_staging(&self) -> bool {
        true
    }
    /// Room for a transfer that is posted now; None: wait for an event, then poll.
    fn write_room(&self) -> Option<WriteRoom>;
    /// Takes up to `out.len()` completions, oldest first; how many. One caller at a time of this and of [`Self::arm`]
    /// (the engine holds the connection's lock). Err once all that came before the fault has been taken; it stays so.
    fn poll(&self, out: &mut [Completion]) -> Result<usize, FabricError>;
    /// True only if the receive queue is empty. Called without the connection's lock; may return false spuriously.
    fn is_quiet(&self) -> bool {
        false
    }
    /// Asks for an event at the next completion, or when there is room to write again after [`Self::write_room`] was
    /// None. False: there is something already, or the connection has come to its end: poll again (nothing is armed
    /// then, yet an event that was on its way may still make `event_fd` readable once).
    fn arm(&self) -> Result<bool, FabricError>;
    /// Takes back what [`Self::arm`] asked for, where that is possible without waiting: an event may come all the same.
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
    /// Readable when the fabric has something to say about the connection's life; ask with [`Self::check_alive`]. May
    /// be [`Self::event_fd`]: watch it once. The end may show there only while the queue pair is armed, as an arrival
    /// does; else [`Self::poll`] or [`Self::arm`] finds it.
    fn liveness_fd(&self) -> BorrowedFd<'_>;
    /// Err once the peer has disconnected or died. What it sent before can still be polled.
    fn check_alive(&self) -> Result<(), FabricError>;
    /// Asks the peer's device for an answer behind all that was posted, unless it owes one already; whether it has
    /// answered since the last call. Neither the peer's process nor its processor takes part, and the peer's user sees
    /// nothing of it. Never waits.
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
    /// The way to the peer, in words.
    fn route(&self) -> String;
    /// Both ends' addresses, this side's first; None: the fabric has none.
    fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        None
    }
    /// What the fabric has done on this connection, where it counts that.
    fn counts(&self) -> Counts {
        Counts::default()
    }
}

/// What [`QueuePair::ask`] has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The fabric has no device that could be asked, the transport's completions say nothing of the peer, or the
    /// connection has ended.
    NotAsked,
    /// The peer's device has answered since the last call, or nothing had been asked before.
    Arrived,
    /// It has not.
    Awaited,
}

/// What a queue pair is good at: a connection tunes by it what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// What carries the bytes.
    pub transport: Transport,
    /// The notice of a transfer travels with it, as its immediate. False: as a message of its own behind it.
    pub immediate: bool,
    /// Transfers of up to this many bytes take no staging memory.
    pub inline_max: usize,
    /// A post costs a system call, or the device's attention: it pays to collect packets that follow each other closely
    /// for one transfer.
    pub post_is_costly: bool,
    /// Exposing memory pins it: that takes long, and others cannot use the memory meanwhile. False: exposing costs
    /// nothing, and pages take memory when they are touched.
    pub pins: bool,
    /// What keeps the peer from changing what landed when the user has it as it lies.
    pub safeguard: Safeguard,
    /// Landing buffers can have windows ([`Exposer::expose_windows`]), also where these are no safeguard.
    pub windows: bool,
    /// Bytes of landing buffers that are worth being advertised at a time. On a path without delay the fewer the
    /// better: they are written and read again while they are in the processor's cache.
    pub landing_window_bytes: usize,
    /// How long the device waits for an acknowledgement before it sends again. None: nothing is sent again, or the
    /// transport measures that itself.
    pub ack_timeout: Option<Duration>,
}

/// What keeps the peer from changing what has landed when it was handed over as it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Safeguard {
    /// Trust: the peer could change memory of this process in other ways, too, or the user trusts it.
    Trust,
    /// The window of a landing buffer is closed before the buffer is handed over.
    Windows,
    /// Nothing does: all is copied out.
    None,
}

/// What carries the bytes of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// The processor copies them within the host.
    SharedMemory,
    /// InfiniBand or RoCE.
    InfiniBand,
    /// iWARP.
    Iwarp,
    /// A TCP connection of this process.
    Tcp,
}

/// What a fabric did: what costs a system call or a doorbell of the device.
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

/// Accepts connections. Never blocks: a peer that says nothing costs one bounded slot until its deadline.
///
/// With a [`Parameters::token`] other than 0 it is a one-off listener: the first peer with that token takes it, and its
/// queue pair, or why there is none, is the last thing that [`Self::poll_accept`] gives.
pub trait Listener: Send {
    /// Readable when [`Self::poll_accept`] may have something.
    fn event_fd(&self) -> BorrowedFd<'_>;
    /// When to call [`Self::poll_accept`] at the latest, for deadlines of silent peers.
    fn next_deadline(&self) -> Option<Instant>;
    /// The next ready connection or refused attempt; None: nothing more for now.
    fn poll_accept(&mut self) -> Option<Result<Box<dyn QueuePair>, FabricError>>;
    /// True: [`Self::poll_accept`] will give nothing any more, so the listener can be dropped. The peer of a one-off
    /// listener has been here, or what it listens on has failed.
    fn is_over(&self) -> bool;
    /// The port that peers connect to.
    fn port(&self) -> u16;
    /// Over which fabrics, in words.
    fn over(&self) -> String;
}

/// A kind of network.
pub trait Fabric: Send + Sync {
    /// Which one it is.
    fn name(&self) -> FabricName;
    /// Listens on the first free port of `ports` (0..=0: any free one).
    fn listen(&self, options: &ListenOptions) -> Result<Box<dyn Listener>, FabricError>;
    /// Connects; blocks up to `timeout`. `from`: the own address; None: the route chooses. It means nothing to shm.
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
    /// The address to listen on; None: all of this machine. Means nothing to shm.
    pub address: Option<IpAddr>,
    /// First and last port to try; 0 and 0: any free one.
    pub ports: std::ops::RangeInclusive<u16>,
    /// Peers whose hello is still awaited, and connections waiting to be accepted, at most; one more is refused.
    pub backlog: u16,
    /// How long a peer may take to say hello.
    pub hello_timeout: Duration,
    /// What this side brings into each connection.
    pub parameters: Parameters,
}
