//! Why connections end.

use inet_rdma_assembly::AssemblyError;
use inet_rdma_fabric::{FabricError, Misbehaviour};
use inet_rdma_records::{UsedUp, Violation};

/// The connection has ended, or, for a write, this side's stream. The reason stays in the core: it is larger than the
/// other results of a read or a write, each step of which would move it.
#[derive(Debug)]
pub(crate) struct Ended;

/// Why a connection ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Closed {
    /// This side closed it.
    #[error("closed")]
    Here,
    /// The peer ended its stream in order.
    #[error("the peer closed the connection")]
    ByPeer,
    /// The peer's process ended, or the fabric lost it.
    #[error("the peer is gone")]
    PeerGone,
    /// The peer broke the protocol.
    #[error("the peer misbehaved: {0}")]
    PeerMisbehaved(Misbehaviour),
    /// The peer broke the rules of records.
    #[error("the peer misbehaved: {0}")]
    RecordsViolated(#[from] Violation),
    /// The peer broke the rules of what the connection carries.
    #[error("the peer misbehaved: {0}")]
    ContentsViolated(ContentsViolation),
    /// The fabric failed.
    #[error(transparent)]
    Fabric(FabricError),
    /// A process died in the middle of a send, so the rest of its packet cannot follow.
    #[error("a process died in the middle of a send")]
    HalfSent,
    /// This side's key may seal no more, and the user has given no next key.
    #[error(transparent)]
    KeyUsedUp(#[from] UsedUp),
    /// The connection that brings new keys has ended.
    #[error("the connection that brings new keys has ended")]
    NoNewKeys,
    /// This side lacks memory for a packet of this size in bytes.
    #[error("no memory for a packet of {0} bytes")]
    NoMemory(usize),
}

/// How the peer broke the rules of what a connection carries: packets, and keys for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentsViolation {
    /// It announced a packet larger than allowed.
    #[error("it sends a packet or a line of {bytes} bytes or more; {max} are allowed")]
    PacketTooLarge {
        /// What it announced.
        bytes: usize,
        /// The option `packet_max_bytes`.
        max: usize,
    },
    /// Over the connection that brings new keys it sent something else, or a key out of turn.
    #[error("over the connection that brings new keys it sent something else, or a key out of turn")]
    KeyMessage,
}

impl From<FabricError> for Closed {
    fn from(error: FabricError) -> Self {
        match error {
            FabricError::PeerGone => Closed::PeerGone,
            FabricError::PeerMisbehaved(how) => Closed::PeerMisbehaved(how),
            other => Closed::Fabric(other),
        }
    }
}

impl From<AssemblyError> for Closed {
    fn from(error: AssemblyError) -> Self {
        match error {
            AssemblyError::TooLarge { bytes, max } => {
                Closed::ContentsViolated(ContentsViolation::PacketTooLarge { bytes, max })
            }
            AssemblyError::NoMemory(bytes) => Closed::NoMemory(bytes),
        }
    }
}
