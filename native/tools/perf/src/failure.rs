//! Why a measurement is void.

use std::io;

use inet_rdma_engine::connection::Closed;
use inet_rdma_fabric::FabricError;

/// Why a measurement is void.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// An argument that makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The TCP connection for orders and results failed.
    #[error("{doing}: {error}")]
    Control {
        /// The operation that failed, in words.
        doing: &'static str,
        /// The error.
        error: io::Error,
    },
    /// There is no connection over the fabric.
    #[error("{doing}: {error}")]
    Fabric {
        /// The operation that failed, in words.
        doing: &'static str,
        /// The error.
        error: FabricError,
    },
    /// The queue pair cannot carry a stream.
    #[error("starting the connection: {0}")]
    Start(Closed),
    /// The connection ended before the measurement did.
    #[error("the connection was lost: {0}")]
    Lost(#[from] Closed),
    /// The data that arrived differs from the data sent.
    #[error("what arrived is not what was sent: {0}")]
    Differs(String),
    /// Nothing moves any more.
    #[error("nothing arrived or left for {0} s")]
    Late(u64),
    /// The server could not do its part.
    #[error("the server: {0}")]
    Server(String),
}

impl Failure {
    /// The TCP connection for orders and results failed in this.
    pub fn control(doing: &'static str) -> impl Fn(io::Error) -> Self + Copy {
        move |error| Self::Control { doing, error }
    }

    /// There is no connection over the fabric, as this failed.
    pub fn fabric(doing: &'static str) -> impl Fn(FabricError) -> Self + Copy {
        move |error| Self::Fabric { doing, error }
    }
}
