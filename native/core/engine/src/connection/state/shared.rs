//! The parts of a connection, and its two kinds of calls: after some the connection notifies the user, after others the
//! caller does.

use std::sync::{Arc, OnceLock, Weak};

use inet_rdma_fabric::{QueuePair, Safeguard};
use parking_lot::Mutex;

use super::core::Core;
use super::records::Records;
use super::tally::Tally;
use crate::connection::closed::Closed;
use crate::connection::notifier::{Caller, Notifier, PollingThread, Woken};
use crate::connection::settings::Settings;
use crate::memory_thread::MemoryUser;

/// The part of a connection that both directions share, and that any thread may call. The directions are
/// [`ReadHalf`](crate::connection::ReadHalf) and [`WriteHalf`](crate::connection::WriteHalf).
pub struct Connection {
    pub(crate) qp: Box<dyn QueuePair>,
    pub(crate) settings: Settings,
    /// Maximum size of this side's ring, and of its staging memory.
    pub(crate) ring_bytes_max: u32,
    /// The connection itself, for the thread that gets and gives back memory.
    pub(crate) memory_user: Weak<dyn MemoryUser>,
    /// The protection by which landing buffers may be handed over without a copy.
    pub(crate) safeguard: Safeguard,
    pub(crate) core: Mutex<Core>,
    /// None: the stream is plain.
    pub(crate) records: Option<Box<Records>>,
    pub(crate) tally: Tally,
    /// Unset: no thread polls the connection.
    pub(crate) polling_thread: OnceLock<Box<dyn PollingThread>>,
    pub(crate) notifier: Arc<dyn Notifier>,
}

impl Connection {
    /// The queue pair below.
    pub fn queue_pair(&self) -> &dyn QueuePair {
        &*self.qp
    }

    /// The reason of the connection's end. None: it is up.
    pub fn closed(&self) -> Option<Closed> {
        self.core.lock().closed().cloned()
    }

    /// Sets the thread that polls the connection from now on, once.
    pub fn set_polling_thread(&self, thread: Box<dyn PollingThread>) {
        let _attached_before = self.polling_thread.set(thread);
    }

    /// Makes the polling thread look soon and wake these parties, even if it finds nothing for them.
    pub fn call_back(&self, woken: Woken) {
        self.core.lock().call(woken);
        if let Some(thread) = self.polling_thread.get() {
            thread.kick();
        }
    }

    /// Runs one step with `core` locked. The caller must notify the user.
    #[inline]
    pub(crate) fn step_without_notify<R>(&self, step: impl FnOnce(&mut Core) -> R) -> (R, Woken) {
        let mut core = self.core.lock();
        let result = step(&mut core);
        let woken = core.take_woken();
        (result, woken)
    }

    /// Runs one step with `core` locked, and notifies the user.
    #[inline]
    pub(crate) fn step<R>(&self, caller: Caller, step: impl FnOnce(&mut Core) -> R) -> R {
        let (result, woken) = self.step_without_notify(step);
        self.tell(woken, caller);
        result
    }

    /// Notifies the user of `woken`. The caller must hold no lock.
    #[inline]
    pub(crate) fn tell(&self, woken: Woken, caller: Caller) {
        if !woken.is_empty() {
            self.notifier.wake(woken, caller);
        }
    }
}
