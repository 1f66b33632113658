//! The parts of a stream socket.

use std::sync::Arc;

use inet_rdma_assembly::Framing;
use inet_rdma_fabric::QueuePair;
use parking_lot::Mutex;

use super::active_mode::ActiveMode;
use super::notifier::StreamNotifier;
use super::posted_receives::PostedReceives;
use super::sending::WriteDirection;
use crate::connection::{Connection, ReadHalf, Woken};

/// How much may be posted, and moved at a time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bounds {
    /// Bytes of what is posted that one call moves, about.
    pub call_bytes: usize,
    /// Sends that may be posted.
    pub sends: usize,
    /// Receives that may be posted.
    pub receives: usize,
}

/// One end of a stream, of the user `N`, with its connection.
pub struct StreamSocket<N: StreamNotifier> {
    pub(super) connection: Arc<Connection>,
    pub(super) bounds: Bounds,
    /// The reading direction.
    pub(super) receiving: Mutex<ReadHalf<N::Buffer>>,
    /// The writing direction.
    pub(super) sending: Mutex<WriteDirection<N>>,
    pub(super) demand: Mutex<Demand<N::Token>>,
    pub(super) notifier: Arc<N>,
}

/// Where the bytes that arrive go, as the user has asked. It changes only with the lock of the reading direction held.
pub(super) struct Demand<T> {
    /// The receives that are posted.
    pub(super) posted: PostedReceives<T>,
    /// Active mode.
    pub(super) active: ActiveMode<T>,
}

impl<T> Default for Demand<T> {
    fn default() -> Self {
        Self {
            posted: PostedReceives::default(),
            active: ActiveMode::passive(),
        }
    }
}

impl<N: StreamNotifier> StreamSocket<N> {
    /// The connection below. Its end is [`Self::close`], not [`Connection::close_with`], where operations may be
    /// posted.
    pub fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// The queue pair below.
    pub fn queue_pair(&self) -> &dyn QueuePair {
        self.connection.queue_pair()
    }

    /// How much may be posted, and moved at a time.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// The user.
    pub fn notifier(&self) -> &N {
        &self.notifier
    }

    /// How the stream is cut.
    pub fn framing(&self) -> Framing {
        self.receiving.lock().framing()
    }

    /// Makes the polling thread look soon and wake these, even if it finds nothing for them.
    pub(super) fn call_back(&self, woken: Woken) {
        self.connection.call_back(woken);
    }
}
