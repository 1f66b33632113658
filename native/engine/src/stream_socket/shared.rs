//! The parts of a stream socket.

use std::sync::Arc;

use inet_rdma_assembly::Framing;
use inet_rdma_fabric::QueuePair;
use parking_lot::Mutex;

use super::active_mode::Left;
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
    pub(super) receiving: Mutex<ReadDirection<N>>,
    pub(super) sending: Mutex<WriteDirection<N>>,
    pub(super) demand: Mutex<Demand<N::Token>>,
    pub(super) notifier: Arc<N>,
}

/// The reading direction, behind its lock.
pub(super) struct ReadDirection<N: StreamNotifier> {
    pub(super) half: ReadHalf<N::Buffer>,
    /// The user's token for messages of active mode; None: passive mode.
    pub(super) active: Option<N::Token>,
}

/// What the user has asked for of what arrives. It changes only with the lock of the reading direction held.
pub(super) struct Demand<T> {
    /// The receives that are posted.
    pub(super) posted: PostedReceives<T>,
    /// Messages that active mode has left; None: passive mode.
    pub(super) active: Option<Left>,
}

impl<T> Default for Demand<T> {
    fn default() -> Self {
        Self {
            posted: PostedReceives::default(),
            active: None,
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
        self.receiving.lock().half.framing()
    }

    /// Makes the polling thread look soon and wake these, even if it finds nothing for them.
    pub(super) fn call_back(&self, woken: Woken) {
        self.connection.call_back(woken);
    }
}
