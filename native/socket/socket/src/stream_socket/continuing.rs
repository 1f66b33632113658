//! Continues posted operations and active mode when reader or writer can go on, and tells the user.
//!
//! Calls of the connection return in [`Woken`] whether reader and writer can go on. The caller then calls the functions
//! here, without a lock.

use super::notifier::StreamNotifier;
use super::shared::StreamSocket;
use inet_rdma_engine::connection::{Caller, Woken};

/// Maximum number of rounds within one call in which a send lets a receive continue, or the other way round.
const ROUNDS: usize = 2;

impl<N: StreamNotifier> StreamSocket<N> {
    /// Tells the user of `woken`, then lets posted operations and active mode continue. The caller holds no lock.
    #[inline]
    pub(super) fn notify_and_continue(&self, woken: Woken, caller: Caller) {
        if !woken.is_empty() {
            self.tell(woken);
            self.go_on(woken, caller);
        }
    }

    #[inline(never)]
    fn tell(&self, woken: Woken) {
        if woken.reader {
            self.notifier.readable();
        }
        if woken.writer {
            self.notifier.writable();
        }
    }

    /// Lets posted operations and active mode continue in these directions. The caller holds no lock.
    #[inline(never)]
    pub(super) fn go_on(&self, woken: Woken, caller: Caller) {
        let mut todo = woken;
        for _ in 0..ROUNDS {
            let mut next = Woken::default();
            if todo.writer {
                let woken = self.send_posted();
                self.tell(woken);
                // A reader that can go on reads later in this round.
                next.reader = woken.reader && !todo.reader;
            }
            if todo.reader {
                let woken = self.receive(caller);
                self.tell(woken);
                next.writer = woken.writer;
            }
            todo = next;
            if todo.is_empty() {
                return;
            }
        }
        self.connection.call_back(todo);
    }

    fn receive(&self, caller: Caller) -> Woken {
        let demand = self.demand.lock();
        let (is_posted, is_active) = (!demand.posted.is_empty(), demand.active.is_on());
        drop(demand);
        match caller {
            _ if is_posted => self.receive_posted(),
            // The polling thread alone reads for active mode.
            Caller::PollingThread if is_active => self.deliver(),
            Caller::User if is_active => {
                self.connection.call_back(Woken::READER);
                Woken::default()
            }
            Caller::User | Caller::PollingThread => Woken::default(),
        }
    }
}
