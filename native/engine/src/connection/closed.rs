//! Why connections end.

use crate::assembly::AssemblyError;
use crate::fabric::FabricError;

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
    PeerMisbehaved(String),
    /// The fabric failed.
    #[error("{0}")]
    Fabric(String),
    /// This side lacks memory.
    #[error("{0}")]
    NoMemory(String),
}

impl From<FabricError> for Closed {
    fn from(error: FabricError) -> Self {
        match error {
            FabricError::PeerGone => Closed::PeerGone,
            FabricError::PeerMisbehaved(how) => Closed::PeerMisbehaved(how),
            other => Closed::Fabric(other.to_string()),
        }
    }
}

impl From<AssemblyError> for Closed {
    fn from(error: AssemblyError) -> Self {
        match error {
            AssemblyError::TooLarge { .. } => Closed::PeerMisbehaved(error.to_string()),
            AssemblyError::NoMemory(_) => Closed::NoMemory(error.to_string()),
        }
    }
}
