//! Before a party waits: it asks to be woken, and no event may be missed.

use super::core::{Core, Reader, Writer};
use super::shared::Connection;

/// Looks for completions between attempts to arm, within one turn. An honest peer runs out of credits and ring before.
const ARMS_MAX: usize = 16;

impl Connection {
    /// Arms the queue pair if no party polls it. Completions that arrive before it is armed raise no event: takes them
    /// in and arms again, until the queue is empty when armed. False: it is not armed, as the peer sends faster than this
    /// side takes in. The caller must look again, or have the polling thread do it.
    #[inline]
    #[must_use]
    pub(super) fn arm_if_unpolled(&self, core: &mut Core) -> bool {
        core.is_polled() || !core.is_up() || self.arm_unpolled(core)
    }

    #[inline(never)]
    fn arm_unpolled(&self, core: &mut Core) -> bool {
        for _ in 0..ARMS_MAX {
            match self.qp.arm() {
                Ok(true) => return true,
                Ok(false) => self.progress(core),
                Err(error) => {
                    self.fail(core, error.into());
                }
            }
            if core.is_polled() || !core.is_up() {
                return true;
            }
        }
        false
    }

    /// As [`Self::arm_if_unpolled`], for callers that do not look again themselves. A peer that sends faster than this side
    /// takes in, be it ticks behind the end of its stream, keeps the queue pair from being armed: after [`ARMS_MAX`] attempts
    /// it stays unarmed. The polling thread looks again then, after its other connections. Without one, reader and writer
    /// are told, so far as they wait: each looks again in a turn of its own, and arms before it waits again. Where neither
    /// waits no party misses an event.
    pub(super) fn arm_or_kick(&self, core: &mut Core) {
        if self.arm_if_unpolled(core) {
            return;
        }
        match self.kicker.get() {
            Some(kicker) => kicker.kick(),
            None => {
                core.wake_reader();
                core.wake_writer();
            }
        }
    }

    /// The reader is woken when there is something to read. False: there may be already.
    pub(super) fn arm_locked(&self, core: &mut Core) -> bool {
        if core.reader == Reader::Called {
            // The cause of the call is not in `core`: the reader must read to find it.
            core.reader = Reader::Reads;
            return false;
        }
        let others = core.woken.reader;
        core.reader = Reader::Waits;
        if self.arm_if_unpolled(core) && !self.is_readable(core) {
            return true;
        }
        core.wake_reader();
        core.woken.reader = others;
        false
    }

    /// The writer is woken when there may be room. False: there is already.
    pub(super) fn arm_writer_locked(&self, core: &mut Core) -> bool {
        if core.writer == Writer::Finished {
            return false;
        }
        let others = core.woken.writer;
        // Asked before arming, so that room makes an event.
        core.writer = match self.qp.write_room() {
            0 => Writer::WaitsForFabric,
            _ => Writer::WaitsForPeer,
        };
        self.flush_controls(core);
        let is_armed = self.arm_if_unpolled(core);
        // What came meanwhile may have woken it.
        if is_armed && core.is_up() && core.writer_waits() && !self.is_writable(core) {
            return true;
        }
        core.wake_writer();
        core.woken.writer = others;
        false
    }

    fn is_writable(&self, core: &mut Core) -> bool {
        let waits = core.wants_advert && core.stream.awaits_advert();
        self.qp.write_room() > 0
            && (core.stream.direct_room().is_some() || (!waits && core.stream.indirect_room() >= core.transfer_min))
    }
}
