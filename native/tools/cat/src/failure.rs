//! Why a transfer failed, sorted by the party that can mend it.

use std::io;
use std::process::ExitCode;

use inet_rdma_engine::connection::Closed;
use inet_rdma_fabric::FabricError;

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("{doing}: {error}")]
    Local { doing: String, error: io::Error },
    #[error("{0}")]
    Usage(String),
    #[error("{doing}: {error}")]
    Connect { doing: String, error: FabricError },
    #[error("starting the connection: {0}")]
    Start(Closed),
    #[error("the connection was lost: {0}")]
    Lost(#[from] Closed),
    #[error("the peer {0}")]
    Peer(String),
    #[error("the far side failed: {0}")]
    FarSide(String),
    #[error("{0}")]
    Differs(String),
}

impl Failure {
    /// Input or output on this side failed.
    pub fn local(doing: impl Into<String>, error: impl Into<io::Error>) -> Self {
        Self::Local {
            doing: doing.into(),
            error: error.into(),
        }
    }

    /// There is no connection, as this failed.
    pub fn connect(doing: impl Into<String>) -> impl FnOnce(FabricError) -> Self {
        let doing = doing.into();
        |error| Self::Connect { doing, error }
    }

    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Local { .. } => 1,
            Self::Usage(_) => 2,
            Self::Connect { .. } | Self::Start(_) => 3,
            Self::Lost(_) | Self::Peer(_) => 4,
            Self::FarSide(_) => 5,
            Self::Differs(_) => 6,
        })
    }
}
