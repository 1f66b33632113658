//! The parts of a stream socket.

use std::collections::VecDeque;
use std::sync::Arc;

use inet_rdma_assembly::Framing;
use inet_rdma_fabric::QueuePair;
use parking_lot::Mutex;

use super::active_mode::ActiveMode;
use super::notifier::StreamNotifier;
use super::sending::WriteDirection;
use inet_rdma_engine::connection::{Connection, ReadHalf};

/// Bounds of posted operations, and of one call.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bounds {
    /// Approximate maximum number of bytes that one call moves for posted operations.
    pub call_bytes: usize,
    /// Maximum number of posted sends.
    pub sends: usize,
    /// Maximum number of posted receives.
    pub receives: usize,
}

/// One end of a stream, of the user `N`, with its connection.
pub struct StreamSocket<N: StreamNotifier> {
    pub(super) connection: Arc<Connection>,
    pub(super) bounds: Bounds,
    /// The reading direction.
    pub(super) read_half: Mutex<ReadHalf<N::Buffer>>,
    /// The writing direction.
    pub(super) write_direction: Mutex<WriteDirection<N>>,
    pub(super) demand: Mutex<Demand<N::Token>>,
    pub(super) notifier: Arc<N>,
}

/// The destinations of arriving bytes that the user has asked for. Changed only with the lock of the reading direction
/// held.
pub(super) struct Demand<T> {
    /// The tokens of the posted receives, in order. Each has an expected read of the connection, which knows its size:
    /// both lists change together.
    pub(super) posted: VecDeque<T>,
    pub(super) active: ActiveMode<T>,
}

impl<N: StreamNotifier> StreamSocket<N> {
    /// The connection below. If operations may be posted, end it by [`Self::close`], not by [`Connection::close_with`].
    pub fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// The queue pair below.
    pub fn queue_pair(&self) -> &dyn QueuePair {
        self.connection.queue_pair()
    }

    /// Bounds of posted operations, and of one call.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// The user.
    pub fn notifier(&self) -> &N {
        &self.notifier
    }

    /// The framing of the stream.
    pub fn framing(&self) -> Framing {
        self.write_direction.lock().framing
    }
}
