//! The making of a stream socket, and its place as the user of its connection.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};

use inet_rdma_assembly::Framing;
use inet_rdma_fabric::{Parameters, QueuePair};
use inet_rdma_records::Protection;
use parking_lot::Mutex;

use super::active_mode::ActiveMode;
use super::notifier::StreamNotifier;
use super::sending::WriteDirection;
use super::shared::{Bounds, Demand, StreamSocket};
use inet_rdma_engine::connection::{Caller, Closed, Connection, Notifier, Settings, Woken};

impl<N: StreamNotifier> StreamSocket<N> {
    /// A stream over `qp`; see [`Connection::new`].
    pub fn new(
        qp: Box<dyn QueuePair>,
        parameters: &Parameters,
        settings: Settings,
        bounds: Bounds,
        framing: Framing,
        protection: Option<&Protection>,
        notifier: N,
    ) -> Result<Arc<Self>, Closed> {
        let notifier = Arc::new(notifier);
        let waker = Arc::new(Waker {
            notifier: Arc::clone(&notifier),
            socket: OnceLock::new(),
        });
        let user = Arc::clone(&waker) as Arc<dyn Notifier>;
        let (connection, reader, writer) = Connection::new(qp, parameters, settings, framing, protection, user)?;
        let socket = Arc::new(Self {
            connection,
            bounds,
            read_half: Mutex::new(reader),
            write_direction: Mutex::new(WriteDirection::new(writer, framing)),
            demand: Mutex::new(Demand {
                posted: VecDeque::new(),
                active: ActiveMode::passive(),
            }),
            notifier,
        });
        let _set_once = waker.socket.set(Arc::downgrade(&socket));
        Ok(socket)
    }
}

/// The user of the connection: passes its notifications to the socket.
struct Waker<N: StreamNotifier> {
    notifier: Arc<N>,
    /// Unset while the socket is being made: no party waits yet.
    socket: OnceLock<Weak<StreamSocket<N>>>,
}

impl<N: StreamNotifier> Notifier for Waker<N> {
    fn wake(&self, woken: Woken, caller: Caller) {
        if let Some(socket) = self.socket.get().and_then(Weak::upgrade) {
            socket.notify_and_continue(woken, caller);
        }
    }

    fn over(&self) {
        self.notifier.over();
    }
}
