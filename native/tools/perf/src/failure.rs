//! Why a measurement is void.

use std::io;

use inet_rdma_engine::connection::Closed;
use inet_rdma_fabric::FabricError;

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("{0}")]
    Usage(String),
    #[error("{doing}: {error}")]
    Control { doing: &'static str, error: io::Error },
    #[error("{doing}: {error}")]
    Fabric { doing: &'static str, error: FabricError },
    #[error("starting the connection: {0}")]
    Start(Closed),
    #[error("the connection was lost: {0}")]
    Lost(#[from] Closed),
    #[error("what arrived is not what was sent: {0}")]
    Differs(String),
    #[error("nothing arrived or left for {0} s")]
    Late(u64),
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
