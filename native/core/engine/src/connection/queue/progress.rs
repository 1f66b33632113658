//! Progress: takes arrivals from the receive queue, gives back credit, and wakes the parties that wait.

use crate::connection::closed::Ended;
use crate::connection::state::{Connection, Core};

impl Connection {
    /// Takes the arrived completions, posts the control messages that are due, and wakes the parties that can go on.
    pub(crate) fn progress(&self, core: &mut Core) {
        if core.is_up() {
            self.tally.polls.add(core, 1);
            if !self.qp.is_quiet() {
                self.take_arrivals(core);
            }
            self.flush_controls(core);
        }
        self.wake_waiting(core);
    }

    /// As [`Self::progress`], but posts no control messages: for a caller that gives back credit later.
    #[inline(always)]
    pub(crate) fn look(&self, core: &mut Core) {
        if core.is_up() {
            self.tally.polls.add(core, 1);
            self.take_arrivals(core);
        }
        self.wake_waiting(core);
    }

    #[inline]
    fn take_arrivals(&self, core: &mut Core) {
        if let Err(closed) = self.take_completions(core) {
            let Ended = self.end(core, *closed);
        }
        if let Some(since) = core.claim_failed_at {
            self.request_fetch_again(core, since);
        }
    }

    #[inline]
    fn wake_waiting(&self, core: &mut Core) {
        if core.writer.is_called() || core.writer.waits_for_fabric() && self.qp.write_room().is_some() {
            core.wake_writer();
        }
        if core.reader.waits() && core.is_readable() {
            core.wake_reader();
        }
    }
}
