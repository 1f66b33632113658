//! Calls of the polling thread, or of a user that watches the descriptors itself.

use std::sync::atomic::Ordering;

use crate::connection::notifier::Caller;
use crate::connection::state::{Connection, PolledBy};

impl Connection {
    /// Call when the event fd is readable. Returns false if that is the connection's end: call
    /// [`Self::handle_liveness`].
    pub fn drain_event(&self) -> bool {
        let is_event = self.qp.drain_event();
        if is_event {
            self.tally.wakeups_received.fetch_add(1, Ordering::Relaxed);
        }
        is_event
    }

    /// Looks once. True: call [`Self::poll`] for a while, as more may come soon. False: an event was asked for.
    pub fn attend(&self, spin: bool) -> bool {
        self.step(Caller::PollingThread, |core| {
            self.progress(core);
            // `progress` has woken a self-polling reader if there is something to read. That reader polls from there
            // on, so a polling thread beside it would find nothing sooner.
            if core.polled_by != PolledBy::Reader {
                core.polled_by = if core.is_up() && (self.settings.busy || spin) {
                    PolledBy::Thread
                } else {
                    PolledBy::Nobody
                };
            }
            self.arm_queue_or_kick(core);
            core.polled_by == PolledBy::Thread
        })
    }

    /// Looks while the thread polls, and returns whether something came. None: no further look is needed before the
    /// next event.
    #[must_use]
    pub fn poll(&self) -> Option<bool> {
        self.step(Caller::PollingThread, |core| {
            if core.polled_by != PolledBy::Thread || !core.is_up() {
                return None;
            }
            let before = core.arrivals;
            self.progress(core);
            Some(core.arrivals != before)
        })
    }

    /// The thread stops looking. Asks for an event, unless the reader polls.
    pub fn sleep(&self) {
        self.step(Caller::PollingThread, |core| {
            if core.polled_by == PolledBy::Thread {
                core.polled_by = PolledBy::Nobody;
            }
            self.arm_queue_or_kick(core);
        });
    }

    /// Call when the liveness fd is readable. Returns false if the connection has ended.
    pub fn handle_liveness(&self) -> bool {
        self.step(Caller::PollingThread, |core| self.check_alive(core))
    }
}
