//! How a peer breaks the rules of the protocol or of a fabric, which ends the connection. Never this side's fault.

use inet_rdma_stream::{LimitsError, RemoteAddress, Violation, WireError};

/// How the peer broke the rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misbehaviour {
    /// Those of the stream protocol.
    #[error(transparent)]
    Stream(#[from] Violation),
    /// A hello with limits that no stream can run within.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// It advertised an address that is not inside its memory.
    #[error("a transfer to {target:?} would leave the memory that it has exposed")]
    TargetOutside {
        /// What it advertised.
        target: RemoteAddress,
    },
    /// shm: it did not accept this side's greeting.
    #[error("it refused this side's greeting; its log says why")]
    GreetingRefused,
    /// shm: a greeting with another number of descriptors than one.
    #[error("its greeting came without exactly one memory")]
    GreetingIncomplete,
    /// shm: a hello whose ring is not where the ring of shared memory is.
    #[error("its ring is said to be at {0:?}")]
    RingElsewhere(RemoteAddress),
    /// shm: a memory whose size does not fit its hello.
    #[error("its memory has {bytes} bytes where its hello needs {least} and a landing area of whole pages")]
    MemoryBytes {
        /// Size of the memory.
        bytes: u64,
        /// What the hello needs.
        least: u64,
    },
    /// shm: a memory that it could shrink, which would make this side's access fail.
    #[error("its memory is not sealed against shrinking and growing")]
    MemoryUnsealed,
    /// shm: a memory of a file system that can make access fail.
    #[error("its memory is not on ordinary pages")]
    MemoryPages,
    /// shm: a memory that is larger than an address space.
    #[error("its memory is larger than an address space")]
    MemoryTooLarge,
    /// shm: a memory that this side cannot write.
    #[error("its memory cannot be written")]
    MemoryUnwritable,
    /// shm: it claims to have taken entries that were never there.
    #[error("it says that it took {said} entries, which cannot be")]
    QueueHead {
        /// What it says.
        said: u64,
    },
    /// shm: an entry out of turn.
    #[error("an entry of the receive queue has the impossible stamp {said}")]
    EntryStamp {
        /// What the entry says.
        said: u64,
    },
    /// shm: an entry that carries bytes for a place outside of the ring.
    #[error("an entry of the receive queue carries {bytes} bytes for the address {address:#x}")]
    EntryInline {
        /// What the entry says.
        bytes: u32,
        /// What the entry says.
        address: u64,
    },
    /// shm: an entry of no known kind.
    #[error("an entry of the receive queue has the unknown kind {said:#x}")]
    EntryKind {
        /// What the entry says.
        said: u64,
    },
    /// tcp: a frame of no known kind, or with other bytes than zero where zero is due.
    #[error("a frame begins with {said:#x}, which is no kind of frame")]
    FrameKind {
        /// The first four bytes, as a number.
        said: u32,
    },
    /// tcp: a transfer to where it may not write: the place was never exposed, or its key was taken back.
    #[error("it writes {bytes} bytes to {target:?}, which are not exposed to it")]
    WriteOutside {
        /// Where to.
        target: RemoteAddress,
        /// How many.
        bytes: usize,
    },
    /// verbs: a message that is neither a control message nor a notice.
    #[error("it sent a message of {0} bytes")]
    MessageBytes(usize),
    /// verbs: messages of the self-test that it does not have: too many, or of places outside of the ring.
    #[error("its messages are not those of the self-test")]
    SelfTest,
    /// verbs: the connection manager reports something that cannot come while connecting.
    #[error("{event} (status {status}) instead of an answer")]
    AnswerEvent {
        /// The event, in words.
        event: String,
        /// Its status.
        status: i32,
    },
}

impl From<WireError> for Misbehaviour {
    fn from(error: WireError) -> Self {
        Misbehaviour::Stream(error.into())
    }
}
