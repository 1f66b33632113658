//! A look at the receive queue: takes completions, posts the control messages that are due, wakes.

use super::closed::Closed;
use super::core::{Core, End, Reader, Writer};
use super::shared::Connection;

impl Connection {
    pub(super) fn is_readable(&self, core: &Core) -> bool {
        core.reading_stopped
            || core.reader == Reader::Called
            || core.has_landed()
            || !core.awaits_landed()
                && (core.stream.ring_bytes_readable() > 0 || core.stream.is_end() || core.holds_opened)
            || !core.is_up()
    }

    /// Handles what the receive queue holds, gives back credit, and wakes those that can go on.
    pub(super) fn progress(&self, core: &mut Core) {
        if core.is_up() {
            self.tally.polls.add(core, 1);
            if !self.qp.is_quiet() {
                self.take_arrivals(core);
            }
            self.flush_controls(core);
        }
        self.wake_waiting(core);
    }

    /// As [`Self::progress`], for a caller that expects arrivals and gives back credit later.
    #[inline]
    pub(super) fn look(&self, core: &mut Core) {
        if core.is_up() {
            self.tally.polls.add(core, 1);
            self.take_arrivals(core);
        }
        self.wake_waiting(core);
    }

    #[inline]
    fn take_arrivals(&self, core: &mut Core) {
        if let Err(closed) = self.take_completions(core) {
            self.fail(core, closed);
        }
        if let Some(since) = core.unkept_since {
            self.have_kept_again(core, since);
        }
    }

    #[inline]
    fn wake_waiting(&self, core: &mut Core) {
        if core.writer == Writer::Called || core.writer == Writer::WaitsForFabric && self.qp.write_room() > 0 {
            core.wake_writer();
        }
        if core.reader_waits() && self.is_readable(core) {
            core.wake_reader();
        }
    }

    /// Looks for the end. False: the connection is over.
    pub(super) fn check_alive(&self, core: &mut Core) -> bool {
        let Err(error) = self.qp.check_alive() else {
            return true;
        };
        self.fail_behind_arrivals(core, error.into());
        false
    }

    /// The peer is gone. What it sent before its end is still valid, and is at most a full receive queue. A process
    /// that closes its socket and goes on sending is cut off there. The end of a stream that the peer has ended in
    /// order is no failure.
    pub(super) fn fail_behind_arrivals(&self, core: &mut Core, reason: Closed) {
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
            reason
        };
        self.fail(core, closed);
    }
}
