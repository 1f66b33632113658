//! Why a transfer failed, sorted by the party that can mend it.

use std::io;
use std::process::ExitCode;

use inet_rdma_engine::connection::Closed;
use inet_rdma_fabric::FabricError;

/// Why a transfer failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Input or output on this side.
    #[error("{doing}: {error}")]
    Local {
        /// The operation that failed, in words.
        doing: String,
        /// The system's error.
        error: io::Error,
    },
    /// An argument that makes no sense.
    #[error("{0}")]
    Usage(String),
    /// There is no connection.
    #[error("{doing}: {error}")]
    Connect {
        /// The operation that failed, in words.
        doing: String,
        /// The error.
        error: FabricError,
    },
    /// The queue pair cannot carry a stream.
    #[error("starting the connection: {0}")]
    Start(Closed),
    /// The connection ended before the transfer was complete.
    #[error("the connection was lost: {0}")]
    Lost(#[from] Closed),
    /// The peer breaks the rules of this program's messages.
    #[error("the peer {0}")]
    Peer(String),
    /// The other side failed and said why.
    #[error("the far side failed: {0}")]
    FarSide(String),
    /// The data that arrived differs from the data sent.
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

    /// The exit status of the process.
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
