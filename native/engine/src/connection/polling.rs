//! A polling thread's looks at a connection.

use super::Connection;
use super::closed::Closed;
use super::core::{Core, End};
use super::notifier::Notifier;

impl<N: Notifier> Connection<N> {
    /// Looks while the thread polls; whether something came. None: it need not look before the next event.
    pub(super) fn poll_locked(&self, core: &mut Core<N::Token>) -> Option<bool> {
        if core.reader_polls() {
            core.thread_polls = false;
        }
        if !core.thread_polls || !core.is_up() {
            return None;
        }
        let before = core.arrivals;
        self.progress(core);
        Some(core.arrivals != before)
    }

    /// Looks once. True: it pays to poll on; else an event has been asked for.
    pub(super) fn attend_locked(&self, core: &mut Core<N::Token>, spin: bool) -> bool {
        self.progress(core);
        // A reader that looks by itself has been woken if there is something for it: nobody is faster.
        if core.is_up() && (self.settings.busy || (spin && !core.self_polling)) {
            core.thread_polls = true;
            return true;
        }
        self.rest(core);
        false
    }

    /// Looks for the end. False: the connection is over.
    pub(super) fn check_alive(&self, core: &mut Core<N::Token>) -> bool {
        let Err(error) = self.qp.check_alive() else {
            return true;
        };
        // What the peer sent before it went is still good: at most a receive queue full. A process that pretends to be gone
        // and goes on sending is not listened to any longer than that.
        let start = core.arrivals;
        loop {
            let before = core.arrivals;
            self.progress(core);
            if core.arrivals == before || core.arrivals - start > u64::from(u16::MAX) {
                break;
            }
        }
        let closed = if matches!(core.end, End::PeerFinished) {
            Closed::ByPeer
        } else {
            error.into()
        };
        self.fail(core, closed);
        false
    }
}
