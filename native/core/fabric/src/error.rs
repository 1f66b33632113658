//! Errors below the stream.

use crate::directory::DirectoryFault;
use crate::errno::Errno;
use crate::misbehaviour::Misbehaviour;

/// Errors below the stream.
///
/// native/nif encodes each variant as a term, and `inet_rdma_error` has its text for Erlang; the texts here are those
/// of the command line tools.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FabricError {
    /// The peer closed the connection or its process ended.
    #[error("the peer is gone")]
    PeerGone,
    /// The peer broke the rules of the protocol or of the fabric.
    #[error("the peer misbehaved: {0}")]
    PeerMisbehaved(Misbehaviour),
    /// The peer runs as another user.
    #[error("the peer runs as user {theirs}, this node as user {ours}: both must be the same user")]
    WrongUser {
        /// The peer's user id.
        theirs: u32,
        /// This process's effective user id.
        ours: u32,
    },
    /// The peer runs as a user whose processes may not be met in a shared directory.
    #[error(
        "the peer runs as user {theirs}, this node as user {ours}, and shm_allowed_uids of this node does not list \
         user {theirs}"
    )]
    UserNotAllowed {
        /// The peer's user id, in the user namespace of this process.
        theirs: u32,
        /// This process's effective user id.
        ours: u32,
    },
    /// The peer's user has no number in the user namespace of this process.
    #[error(
        "the user of the peer is unknown in the user namespace of this node: give both containers user namespaces \
         that map the users of both"
    )]
    UserUnmapped,
    /// The peer does not let processes of this user come to its socket file.
    #[error(
        "the peer does not allow the user of this node: list the user in shm_allowed_uids of the peer, by its number \
         in the user namespace there"
    )]
    UserRefused,
    /// The directory of the option `shm_directory`, or the peer's socket file there, is not used.
    #[error("shm_directory {path}: {fault}")]
    Directory {
        /// The option's value.
        path: String,
        /// Why.
        fault: DirectoryFault,
    },
    /// The peer sent no hello of this version.
    #[error(transparent)]
    Hello(#[from] inet_rdma_stream::WireError),
    /// The peer's hello has another token than this side.
    #[error("the peer does not know the token of this settlement")]
    WrongToken,
    /// No process listens on the port.
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
    /// A process of another user, or one that is not known, has the name of the port over shm.
    #[error(
        "port {port} over shm is taken by {}: listen on another port, or over TCP ({{fabric, tcp}})",
        holder_in_words(*user, *pid)
    )]
    PortHeld {
        /// The port.
        port: u16,
        /// The user of the process that listens; None: not known.
        user: Option<u32>,
        /// The number of that process, in this process's namespace; None: not known.
        pid: Option<u32>,
    },
    /// It took too long.
    #[error("timed out")]
    TimedOut,
    /// More posted than the queue holds.
    #[error("the queue is full")]
    QueueFull,
    /// A peer is refused, as the listener's backlog is full.
    #[error("the backlog is full")]
    BacklogFull,
    /// The options of this side that no stream can run within.
    #[error(transparent)]
    Limits(#[from] inet_rdma_stream::LimitsError),
    /// The verbs fabric cannot work on this machine.
    #[error("the verbs fabric cannot be used: {0}")]
    Unavailable(Lack),
    /// This fabric does not lead to the peer; in words.
    #[error("{0}")]
    NoRoute(String),
    /// The limit on locked memory is too low for these bytes.
    #[error(
        "cannot register {bytes} bytes of memory: the limit on locked memory is {} (raise it with `ulimit -l \
         unlimited`, LimitMEMLOCK=infinity in a systemd unit, --ulimit memlock=-1 for a container; or lower \
         ring_bytes and landing_buffers)",
        limit.map_or("not set, so the machine's memory is".to_owned(), |limit| format!("{limit} bytes"))
    )]
    LockedMemory {
        /// Bytes that were to be registered.
        bytes: usize,
        /// RLIMIT_MEMLOCK; None: not set.
        limit: Option<u64>,
    },
    /// All connections of this process together would pin more than they may.
    #[error(
        "cannot register {bytes} bytes of memory: this node has pinned {pinned} of {max} bytes (raise \
         pinned_max_bytes; its default is what `ulimit -l` allows, and at most a quarter of the machine's memory)"
    )]
    PinnedLimit {
        /// Bytes that were to be registered.
        bytes: u64,
        /// Bytes that are pinned.
        pinned: u64,
        /// The bound.
        max: u64,
    },
    /// The system refuses to commit these bytes of memory.
    #[error(
        "cannot reserve {bytes} bytes of shared memory: the system commits no further memory \
         (vm.overcommit_memory is 2: raise vm.overcommit_ratio or vm.overcommit_kbytes, add swap, or lower \
         ring_bytes and landing_buffers)"
    )]
    SharedMemory {
        /// Bytes that were to be reserved.
        bytes: u64,
    },
    /// The device holds less than the options ask for.
    #[error(
        "the RDMA device {device} holds {receives} receives and {completions} completions in a queue: set \
         receive_slots to less than {}",
        receives.min(completions).saturating_sub(SELF_TEST_RECEIVES)
    )]
    DeviceLimit {
        /// Name of the device.
        device: String,
        /// Receives that a queue of it holds.
        receives: u32,
        /// Completions that a queue of it holds.
        completions: u32,
    },
    /// A device does not do what it says, as the self-test of a new queue pair has found.
    #[error("{}", self_test_in_words(device.as_deref(), tried, *is_avoidable))]
    SelfTest {
        /// Name of the device; None: it is the peer's.
        device: Option<String>,
        /// What failed, not empty.
        tried: Vec<Tried>,
        /// True: the next queue pair does without.
        is_avoidable: bool,
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
        "the peer no longer answers"
    } else {
        "the queue pair failed"
    })]
    Completion {
        /// The status of the completion, as the verbs manual names it, in small letters without `IBV_WC_`.
        status: &'static str,
        /// The number that the device's driver adds.
        vendor: u32,
        /// The retries are used up: the peer's host or the network is gone.
        peer_is_silent: bool,
    },
    /// A defect: this thread panicked. Standard error says where.
    #[error("{0} panicked; stderr says where")]
    Panicked(&'static str),
    /// A call of libibverbs or librdmacm failed.
    #[error("{doing}: {error}")]
    Verbs {
        /// The operation that failed, in words.
        doing: &'static str,
        /// The error's number.
        error: Errno,
    },
    /// The system refused something.
    #[error("{doing}: {error}")]
    System {
        /// The operation that failed, in words.
        doing: &'static str,
        /// The error's number.
        error: Errno,
    },
}

impl FabricError {
    /// A call of the system failed.
    pub fn system(doing: &'static str, errno: impl Into<Errno>) -> FabricError {
        FabricError::System {
            doing,
            error: errno.into(),
        }
    }
}

/// Receives of a queue pair over verbs beside its receive slots: for the messages of the self-test.
pub const SELF_TEST_RECEIVES: u32 = 8;

fn self_test_in_words(device: Option<&str>, tried: &[Tried], is_avoidable: bool) -> String {
    let whose = device.map_or_else(
        || "the peer's RDMA device".to_owned(),
        |device| format!("the RDMA device {device}"),
    );
    let tried: Vec<_> = tried.iter().map(Tried::to_string).collect();
    let next = match is_avoidable {
        true => "the next connection does without",
        false => "it cannot be used",
    };
    format!(
        "{whose} failed the self-test of the connection ({}): {next}",
        tried.join(", ")
    )
}

/// What the self-test of a queue pair tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Tried {
    /// Bytes that go along with their work request.
    #[error("inline bytes")]
    Inline,
    /// One work request with bytes of two places.
    #[error("bytes of two places")]
    Gather,
    /// Memory windows: bind, a write of the peer, invalidation.
    #[error("memory windows")]
    Windows,
    /// Writes with an immediate.
    #[error("immediates")]
    Immediates,
    /// Writes.
    #[error("writes")]
    Writes,
    /// Sends.
    #[error("sends")]
    Sends,
    /// Reads of no bytes, by which the peer's device answers over iWARP.
    #[error("reads of nothing")]
    Reads,
}

impl Tried {
    /// True: a connection can do without.
    pub fn is_avoidable(self) -> bool {
        matches!(self, Tried::Inline | Tried::Gather | Tried::Windows | Tried::Reads)
    }

    /// Its name in a reason.
    pub fn name(self) -> &'static str {
        match self {
            Tried::Inline => "inline",
            Tried::Gather => "gather",
            Tried::Windows => "windows",
            Tried::Immediates => "immediates",
            Tried::Writes => "writes",
            Tried::Sends => "sends",
            Tried::Reads => "reads",
        }
    }
}

/// The process that has the name of a port over shm.
fn holder_in_words(user: Option<u32>, pid: Option<u32>) -> String {
    let number = pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
    match user {
        Some(user) => format!("a process{number} of user {user}"),
        None => format!("a process{number} whose user is not known"),
    }
}

/// The reason why this machine, or this build, cannot use the verbs fabric.
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
        "no permission to open /dev/infiniband/rdma_cm; let the user of this node read and write it (Debian: group \
         rdma)"
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
