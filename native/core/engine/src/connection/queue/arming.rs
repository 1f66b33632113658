//! Arming: the steps of a party before it waits, so that it misses no event.

use crate::connection::state::{Connection, Core, Need};

/// Attempts to arm in one turn, with a look for completions between them. An honest peer runs out of credits or ring
/// first.
const ARMS_MAX: usize = 16;

impl Connection {
    /// Arms the queue pair if no party polls it. Completions that arrive before it is armed raise no event: takes them
    /// in and arms again, until the queue is empty when armed. Returns false if the queue pair is not armed because the
    /// peer sends faster than this side takes completions: the caller must look again, or have the polling thread do
    /// it.
    #[inline]
    #[must_use]
    pub(crate) fn arm_queue_if_unpolled(&self, core: &mut Core) -> bool {
        core.is_polled() || !core.is_up() || self.arm_queue(core)
    }

    #[inline(never)]
    fn arm_queue(&self, core: &mut Core) -> bool {
        for _ in 0..ARMS_MAX {
            match self.qp.arm() {
                Ok(true) => return true,
                Ok(false) => self.progress(core),
                Err(error) => self.fail(core, error.into()),
            }
            if core.is_polled() || !core.is_up() {
                return true;
            }
        }
        false
    }

    /// As [`Self::arm_queue_if_unpolled`], for callers that do not look again themselves. A peer that sends faster than
    /// this side takes completions keeps the queue pair from being armed; after [`ARMS_MAX`] attempts it stays unarmed.
    /// The polling thread then looks again, after its other connections. Without one, a reader and a writer that wait
    /// are told: each looks again in a turn of its own, and arms before it waits again.
    pub(crate) fn arm_queue_or_kick(&self, core: &mut Core) {
        if self.arm_queue_if_unpolled(core) {
            return;
        }
        match self.polling_thread.get() {
            Some(thread) => thread.kick(),
            None => {
                core.wake_reader();
                core.wake_writer();
            }
        }
    }

    /// Arms the reader: it is woken when there is something to read. Returns false if there may be something already.
    pub(crate) fn arm_reader_locked(&self, core: &mut Core) -> bool {
        if core.reader.answer_call() {
            // The reason for which the reader was called is not in `core`: it must read to find it.
            return false;
        }
        // With the caller, another reader may wait: it must be woken if this call takes in what that one waits for.
        let others = core.woken.reader || core.reader.waits();
        core.reader.wait();
        if self.arm_queue_if_unpolled(core) && !core.is_readable() {
            return true;
        }
        core.wake_reader();
        core.woken.reader = others;
        false
    }

    /// Arms the writer: it is woken when there may be room. Returns false if there is room already.
    pub(crate) fn arm_writer_locked(&self, core: &mut Core) -> bool {
        if core.writer.is_finished() {
            return false;
        }
        // With the caller, another writer may wait, or posted sends be called back: they must be told if this call
        // takes in what they wait for.
        let others = core.woken.writer || core.writer.waits() || core.writer.is_called();
        // Ask for room before arming, so that new room makes an event.
        core.writer.wait(self.qp.write_room().is_some());
        self.flush_controls(core);
        let is_armed = self.arm_queue_if_unpolled(core);
        // Completions that came meanwhile may have woken the writer.
        if is_armed && core.is_up() && core.writer.waits() && !self.is_writable(core) {
            return true;
        }
        core.wake_writer();
        core.woken.writer = others;
        false
    }

    fn is_writable(&self, core: &mut Core) -> bool {
        let ring_room_min = match core.writer.need {
            Need::Advert if core.stream.awaits_advert() => None,
            Need::Advert | Need::Room => Some(1),
            Need::Record(bytes) => Some(bytes),
        };
        self.qp.write_room().is_some()
            && (core.stream.direct_room().is_some()
                || ring_room_min.is_some_and(|bytes| core.stream.indirect_room() >= bytes))
    }
}
