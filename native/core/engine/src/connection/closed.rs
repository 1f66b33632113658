//! Why connections end.

use inet_rdma_assembly::AssemblyError;
use inet_rdma_fabric::{FabricError, Misbehaviour};
use inet_rdma_records::Violation;

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
    /// The TLS connection on which the stream began has ended.
    #[error("the TLS connection of the stream has ended")]
    TlsGone,
    /// This side lacks memory for a packet of this size in bytes.
    #[error("no memory for a packet of {0} bytes")]
    NoMemory(usize),
}

/// How the peer broke the rules of what a connection carries: packets, and the TLS connection on which it began.
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
    /// It sent bytes over the TLS connection on which the stream began, after the settlement.
    #[error("it sent bytes over the TLS connection of the stream")]
    TlsBytes,
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
