//! What every fabric offers: reliable connected queue pairs with one-sided writes.
//!
//! The stream protocol keeps the queues from overflowing (credits); a fabric checks all the same and answers
//! [`FabricError::QueueFull`] where a peer or a caller breaks that.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use crate::misbehaviour::Misbehaviour;
use inet_rdma_stream::{CONTROL_BYTES, Hello, Limits, Notice, RemoteAddress};

/// What one side brings into a connection.
#[derive(Debug, Clone, Copy)]
pub struct Parameters {
    /// Ring size, receive queue depth and number of advertisements.
    pub limits: Limits,
    /// Size of the area for landing buffers, behind the ring in the same region.
    pub landing_bytes: u32,
    /// Names this connection on this side (for logs).
    pub connection_id: u32,
    /// The random number of the settlement that this connection is made for; 0: none. Both sides must have the same: see
    /// [`Parameters::check_token`].
    pub token: u64,
    /// How a device treats the packets of this side.
    pub network: Network,
}

/// How a device treats the packets of one side. Shared memory has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// How long the device waits for an acknowledgement before it sends again, rounded up to the next 4.096 µs times a power
    /// of two; None: as the connection manager has it.
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

impl Parameters {
    /// Fails unless the peer's hello has the token of this side. A listener calls it before it maps memory of the peer or
    /// makes memory of its own, so a peer without the token costs a file descriptor and no more.
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

/// The memory of one side that the peer may write into: the ring at offset 0, the landing area behind it.
///
/// It stays mapped as long as any clone of its `Arc` lives, also after the queue pair is gone.
pub trait Memory: Send + Sync {
    /// First byte. The peer may write at any time: read through raw pointers, copy before you validate.
    fn base(&self) -> *mut u8;
    /// Size of the ring at offset 0.
    fn ring_bytes(&self) -> usize;
    /// Where the landing area starts.
    fn landing_offset(&self) -> usize;
    /// Size of the landing area.
    fn landing_bytes(&self) -> usize;
    /// What to tell the peer so that it can write at `offset`.
    fn remote_address(&self, offset: usize) -> RemoteAddress;
}

/// One end of a reliable connected queue pair.
pub trait QueuePair: Send + Sync {
    /// This side's exposed memory.
    fn memory(&self) -> &Arc<dyn Memory>;
    /// What the peer said of itself.
    fn remote_hello(&self) -> &Hello;
    /// What this queue pair is good at; the same for its whole life.
    fn capabilities(&self) -> Capabilities;
    /// Gathers `source` into the peer's memory at `target`, then tells the peer with `notice`.
    /// When it returns the source may be reused. The sum of `source` must not exceed [`Self::write_room`].
    ///
    /// `target` is the peer's word: one that is not inside the ring or the landing area as a whole is
    /// [`FabricError::PeerMisbehaved`], and nothing is written. A post after the peer's death may still succeed, for
    /// nobody: liveness is [`Self::check_alive`]'s to say. After this side's own end it is [`FabricError::PeerGone`].
    fn post_write(&self, source: &[&[u8]], target: RemoteAddress, notice: Notice) -> Result<(), FabricError>;
    /// Sends a control message. Keeps its order against earlier posts of the same side. May keep it until there is a place
    /// for it, which it looks for when this side posts, polls (also nothing) or arms.
    fn post_control(&self, message: &[u8; CONTROL_BYTES]) -> Result<(), FabricError>;
    /// Bytes that can be posted now; 0: wait for an event, then poll.
    fn write_room(&self) -> usize;
    /// Takes up to `out.len()` completions, oldest first; how many. One caller at a time of this and of [`Self::arm`] (the
    /// engine holds the connection's lock).
    /// Err once all that came before the fault has been taken; it stays so.
    fn poll(&self, out: &mut [Completion]) -> Result<usize, FabricError>;
    /// Whether a poll would surely find nothing. Asked without the connection's lock; false: perhaps it would.
    fn is_quiet(&self) -> bool {
        false
    }
    /// Asks for an event at the next completion, or when there is room to write again after [`Self::write_room`] was 0.
    /// False: there is something already, poll again (nothing is armed then, yet an event that was on its way may still
    /// make `event_fd` readable once).
    fn arm(&self) -> Result<bool, FabricError>;
    /// Takes back what [`Self::arm`] asked for, where that is possible without waiting: an event may come all the same.
    fn disarm(&self);
    /// Readable after an armed queue got a completion.
    fn event_fd(&self) -> BorrowedFd<'_>;
    /// Takes what made `event_fd` readable. After an event: drain, then poll, then arm; draining later could take the
    /// event of a completion that nobody has seen. It may take one event of several and leave `event_fd` readable.
    ///
    /// False: `event_fd` is [`Self::liveness_fd`] as well, and it is the connection's end that made it readable; ask with
    /// [`Self::check_alive`].
    fn drain_event(&self) -> bool;
    /// Readable when the fabric has something to say about the connection's life; ask with [`Self::check_alive`]. May be
    /// [`Self::event_fd`]: watch it once.
    fn liveness_fd(&self) -> BorrowedFd<'_>;
    /// Err once the peer has disconnected or died. What it sent before can still be polled.
    fn check_alive(&self) -> Result<(), FabricError>;
    /// Ends the connection; the peer sees it at once. Idempotent.
    fn disconnect(&self);
    /// Wake-ups sent to the peer, that is: events that cost a system call.
    fn wakeups_sent(&self) -> u64;
    /// Name of the fabric: "shm", "verbs".
    fn fabric(&self) -> &'static str;
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

/// What a queue pair is good at, for those who tune what they do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// What carries the bytes.
    pub transport: Transport,
    /// The notice of a transfer travels with it, as its immediate. False: as a message of its own behind it.
    pub immediate: bool,
    /// Transfers of up to this many bytes take no staging memory.
    pub inline_max: usize,
    /// A post costs a system call, or the device's attention: it pays to collect packets that follow each other closely for
    /// one transfer.
    pub post_is_costly: bool,
    /// What landed may be given to the user where it lies. False: the peer could change it afterwards, and this is the only
    /// way in which it could change memory of this process.
    pub zero_copy_safe: bool,
    /// Bytes of landing buffers that are worth being advertised at a time. On a path without delay the fewer the better:
    /// they are written and read again while they are in the processor's cache.
    pub landing_window_bytes: usize,
    /// How long the device waits for an acknowledgement before it sends again. None: nothing is sent again, or the transport
    /// measures that itself.
    pub ack_timeout: Option<Duration>,
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
}

/// What a fabric did: what costs a system call or a doorbell of the device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Work requests posted to be sent.
    pub sends_posted: u64,
    /// Calls that posted receives.
    pub receives_posted: u64,
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
    /// Name of the fabric.
    fn name(&self) -> &'static str;
    /// Listens on the first free port of `ports` (0..=0: any free one).
    fn listen(&self, options: &ListenOptions) -> Result<Box<dyn Listener>, FabricError>;
    /// Connects; blocks up to `timeout`.
    fn connect(
        &self,
        to: SocketAddr,
        parameters: &Parameters,
        timeout: Duration,
    ) -> Result<Box<dyn QueuePair>, FabricError>;
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

/// The system's number of an error, as in errno(3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Self {
        Errno(errno.raw_os_error())
    }
}

impl From<std::io::Error> for Errno {
    /// An error that std made itself has no number: EIO stands for it.
    fn from(error: std::io::Error) -> Self {
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// What can go wrong below the stream, sorted by who can mend it.
///
/// native/nif encodes each variant as a term, and `inet_rdma_error` has its text for Erlang; the texts here are those of the
/// command line tools.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FabricError {
    /// The peer closed the connection or its process ended.
    #[error("the peer is gone")]
    PeerGone,
    /// The peer broke the rules of the protocol or of the fabric.
    #[error("the peer misbehaved: {0}")]
    PeerMisbehaved(Misbehaviour),
    /// The peer is somebody who must not connect.
    #[error("the peer runs as user {theirs}, this node as user {ours}: both must be the same user")]
    WrongUser {
        /// The peer's user id.
        theirs: u32,
        /// This process's effective user id.
        ours: u32,
    },
    /// The peer said something else than a hello of this version.
    #[error(transparent)]
    Hello(#[from] inet_rdma_stream::WireError),
    /// The peer's hello has another token than this side.
    #[error("the peer does not know the token of this settlement")]
    WrongToken,
    /// Nobody listens there.
    #[error("nobody listens on port {0}")]
    Refused(u16),
    /// All ports of the range are taken.
    #[error("no free port in {first}..={last}")]
    PortsTaken {
        /// First of the range.
        first: u16,
        /// Last of the range.
        last: u16,
    },
    /// It took too long.
    #[error("timed out")]
    TimedOut,
    /// The peer that was awaited did not come in time, but others did.
    #[error("timed out; {refused} other peers were refused, the last one because: {last}")]
    OnlyStrangers {
        /// How many.
        refused: u32,
        /// Why the last one was.
        last: Box<FabricError>,
    },
    /// More posted than the queue holds.
    #[error("the queue is full")]
    QueueFull,
    /// The options of this side that no stream can run within.
    #[error(transparent)]
    Limits(#[from] inet_rdma_stream::LimitsError),
    /// The verbs fabric cannot work on this machine.
    #[error("the verbs fabric cannot be used: {0}")]
    Unavailable(Lack),
    /// This fabric does not lead to the peer; in words.
    #[error("{0}")]
    NoRoute(String),
    /// The system does not let so much memory be locked.
    #[error(
        "cannot register {bytes} bytes of memory: the limit on locked memory is {} (raise it with `ulimit -l unlimited`, \
         LimitMEMLOCK=infinity in a systemd unit, --ulimit memlock=-1 for a container; or lower ring_bytes and landing_buffers)",
        limit.map_or("not set, so the machine's memory is".to_owned(), |limit| format!("{limit} bytes"))
    )]
    LockedMemory {
        /// What was to be registered.
        bytes: usize,
        /// RLIMIT_MEMLOCK; None: not set.
        limit: Option<u64>,
    },
    /// The system does not commit so much memory.
    #[error(
        "cannot reserve {bytes} bytes of shared memory: the system commits no more (vm.overcommit_memory is 2: raise \
         vm.overcommit_ratio or vm.overcommit_kbytes, add swap, or lower ring_bytes and landing_buffers)"
    )]
    SharedMemory {
        /// What was to be reserved.
        bytes: u64,
    },
    /// The device holds less than the options ask for.
    #[error(
        "the RDMA device {device} holds {receives} receives and {completions} completions in a queue: set receive_slots to less \
         than {}",
        receives.min(completions)
    )]
    DeviceLimit {
        /// Name of the device.
        device: String,
        /// Receives that a queue of it holds.
        receives: u32,
        /// Completions that a queue of it holds.
        completions: u32,
    },
    /// The kernel's connection manager does not know an option.
    #[error(
        "the kernel's RDMA connection manager does not know the option {option}: leave it at 0, or use a later kernel"
    )]
    OptionUnknown {
        /// Name of the option.
        option: &'static str,
    },
    /// The peer said no.
    #[error("the peer refused the connection: {0}")]
    Rejected(Rejection),
    /// The RDMA device was removed.
    #[error("the RDMA device was removed")]
    DeviceRemoved,
    /// The RDMA device says that the queue pair has failed.
    #[error("the RDMA device {device} says: {event}")]
    DeviceEvent {
        /// Name of the device.
        device: String,
        /// The asynchronous event, in words.
        event: String,
    },
    /// A work request failed.
    #[error("{}: {status} (vendor error {vendor:#x})", if *peer_is_silent {
        "the peer does not answer any more"
    } else {
        "the queue pair failed"
    })]
    Completion {
        /// The status of the completion, as the verbs manual names it, in small letters without `IBV_WC_`.
        status: &'static str,
        /// What the device's driver adds.
        vendor: u32,
        /// The retries are used up: the peer's host or the network is gone.
        peer_is_silent: bool,
    },
    /// A process died in the middle of a send, so the rest of its packet cannot follow.
    #[error("a process died in the middle of a send")]
    HalfSent,
    /// A defect: this thread panicked. Standard error says where.
    #[error("{0} panicked; stderr says where")]
    Panicked(&'static str),
    /// A misuse: the queue pair of an attempt was taken twice.
    #[error("the queue pair of this attempt was taken already")]
    AttemptTaken,
    /// A call of libibverbs or librdmacm failed.
    #[error("{doing}: {error}")]
    Verbs {
        /// What was being done, in words.
        doing: &'static str,
        /// The error's number.
        error: Errno,
    },
    /// The system refused something.
    #[error("{doing}: {error}")]
    System {
        /// What was being done, in words.
        doing: &'static str,
        /// The error's number.
        error: Errno,
    },
}

/// What this machine, or this build, lacks for the verbs fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Lack {
    /// The library was built without it.
    #[error("this build has none; build again with the cargo feature `verbs`")]
    LeftOut,
    /// librdmacm or libibverbs.
    #[error("librdmacm or libibverbs is not installed; install rdma-core (Debian: librdmacm1 and ibverbs-providers)")]
    Libraries,
    /// The kernel's module, or the container's access to it.
    #[error(
        "there is no /dev/infiniband/rdma_cm; load the kernel's module with `modprobe rdma_ucm`, and give a container \
         --device=/dev/infiniband"
    )]
    ConnectionManager,
    /// The right to use the connection manager.
    #[error(
        "no permission to open /dev/infiniband/rdma_cm; let the user of this node read and write it (Debian: group rdma)"
    )]
    Permission,
    /// A device.
    #[error("this machine has no RDMA device (`rdma link` shows them)")]
    Device,
    /// A free file descriptor.
    #[error("{0}; raise the limit with `ulimit -n`")]
    Descriptors(Errno),
    /// The connection manager cannot be opened for another reason.
    #[error("opening the connection manager: {0}")]
    System(Errno),
}

/// How the peer refused a connection over verbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// Its backlog is full.
    #[error("its listener has no room; try again, or raise its backlog")]
    Busy,
    /// It did not accept the hello, or could not make its own side.
    #[error("its log says why")]
    Hello,
    /// The connection manager's number of a reason.
    #[error("reason {0} of the connection manager")]
    Reason(i32),
}
