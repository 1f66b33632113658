//! A polling thread's side of a connection.

use std::sync::atomic::Ordering;

use super::core::End;
use super::{Closed, Connection, Wakes};
use crate::assembly::Buffer;

impl<B: Buffer> Connection<B> {
    /// A polling thread looks at the receive queue. `None`: it need not look again before the next event.
    #[must_use]
    pub fn poll(&self) -> Option<(bool, Wakes)> {
        let mut core = self.core.lock();
        if core.reader_polls() {
            core.thread_polls = false;
        }
        if !core.thread_polls || !core.is_up() {
            return None;
        }
        let before = core.arrivals;
        let wakes = self.progress(&mut core);
        Some((core.arrivals != before, wakes))
    }

    /// The polling thread stops to look: asks for an event, unless the reader polls.
    pub fn sleep(&self) -> Wakes {
        let mut core = self.core.lock();
        let mut wakes = Wakes::default();
        core.thread_polls = false;
        self.rest(&mut core, &mut wakes);
        wakes
    }

    /// The event fd was readable. False: with the connection's end; call [`Self::handle_liveness`].
    pub fn drain_event(&self) -> bool {
        let is_event = self.qp.drain_event();
        if is_event {
            self.tally.wakeups_received.fetch_add(1, Ordering::Relaxed);
        }
        is_event
    }

    /// A polling thread looks once. True: it pays to [`Self::poll`] on for a while; else an event has been asked for.
    pub fn attend(&self, spin: bool) -> (bool, Wakes) {
        let mut core = self.core.lock();
        let mut wakes = self.progress(&mut core);
        // A reader that looks by itself has been woken if there is something for it: nobody is faster.
        let spin = self.settings.busy || (spin && !core.self_polling);
        if spin && core.is_up() {
            core.thread_polls = true;
            return (true, wakes);
        }
        self.rest(&mut core, &mut wakes);
        (false, wakes)
    }

    /// The liveness fd was readable. False: the connection is over.
    pub fn handle_liveness(&self) -> (bool, Wakes) {
        let mut core = self.core.lock();
        let Err(error) = self.qp.check_alive() else {
            return (true, Wakes::default());
        };
        let mut wakes = Wakes::default();
        // What the peer sent before it went is still good: at most a receive queue full. A process that pretends to be gone
        // and goes on sending is not listened to any longer than that.
        let start = core.arrivals;
        loop {
            let before = core.arrivals;
            wakes.merge(self.progress(&mut core));
            if core.arrivals == before || core.arrivals - start > u64::from(u16::MAX) {
                break;
            }
        }
        let closed = if matches!(core.end, End::PeerFinished) {
            Closed::ByPeer
        } else {
            error.into()
        };
        self.fail_locked(&mut core, closed, &mut wakes);
        (false, wakes)
    }
}
