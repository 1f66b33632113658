//! Control messages and marks to the peer.

use std::time::Instant;

use inet_rdma_records::{RING_BYTES_MIN, Violation};

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
            if let Some(records) = &mut core.records {
                records.control_sealer.seal(&mut message, Instant::now);
            }
            if let Err(error) = self.qp.post_control(&message) {
                self.fail(core, error.into());
            }
        }
        if core.stream.owes_mark() {
            self.post_mark(core);
        }
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
