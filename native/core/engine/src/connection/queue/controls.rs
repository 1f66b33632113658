//! Control messages and marks to the peer.

use inet_rdma_records::{RING_BYTES_MIN, Violation};
use inet_rdma_stream::CONTROL_BYTES;

use crate::connection::state::{Connection, Core, PolledBy};

impl Connection {
    /// Posts the control messages that credits allow.
    #[inline(always)]
    pub(crate) fn flush_controls(&self, core: &mut Core) {
        if core.writer.waits() && core.reader.is_away() {
            // Both peers may write before they read; answer the peer's wait for an advertisement, and for room, so that
            // neither deadlocks. A self-polling reader reads on, and an early acknowledgement costs bulk both ways.
            core.stream.pass();
            if core.polled_by != PolledBy::Reader {
                core.stream.handle_writer_waits();
            }
        }
        if core.stream.has_control() || core.stream.owes_mark() {
            self.post_controls(core);
        }
    }

    #[inline(never)]
    fn post_controls(&self, core: &mut Core) {
        while core.is_up() && core.stream.has_control() {
            let Some(control) = core.stream.poll_control() else {
                break;
            };
            let mut message = control.emit();
            if core.records.is_some() && !self.seal_control(core, &mut message) {
                return;
            }
            if let Err(error) = self.qp.post_control(&message) {
                self.fail(core, error.into());
            }
        }
        if core.stream.owes_mark() {
            self.post_mark(core);
        }
    }

    /// Returns false if the key is used up and the connection has ended. Out of line, as plain connections have no key.
    #[inline(never)]
    fn seal_control(&self, core: &mut Core, message: &mut [u8; CONTROL_BYTES]) -> bool {
        let Some(records) = &mut core.records else { return true };
        if let Err(used_up) = records.control_sealer.seal(message) {
            self.fail(core, used_up.into());
            return false;
        }
        if records.control_sealer.take_due() {
            self.notifier.key_due();
        }
        true
    }

    /// Posts the mark that the peer waits for. If a transfer is about to be posted, or there is no room, the mark goes
    /// with that transfer or the next look.
    #[cold]
    #[inline(never)]
    pub(crate) fn post_mark(&self, core: &mut Core) {
        if core.writer.posts_unlocked || !core.is_up() {
            return;
        }
        let Some(room) = self.qp.write_room() else { return };
        let before = core.stream.peer_ring_bytes();
        let Some(mark) = core.stream.poll_mark() else { return };
        let ring_bytes = core.stream.peer_ring_bytes();
        if core.records.is_some() && ring_bytes < RING_BYTES_MIN {
            self.fail(core, Violation::RecordRing(ring_bytes).into());
            return;
        }
        if let Err(error) = self.qp.post_write(room, &[], mark.target, mark.notice) {
            self.fail(core, (*error).into());
        } else if ring_bytes != before {
            self.claim_staging(core);
        }
    }
}
