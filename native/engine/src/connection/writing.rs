//! A write: the transfers that the stream allows, as far as the peer has room.

use inet_rdma_assembly::Gather;
use inet_rdma_fabric::FabricError;
use inet_rdma_stream::{Offer, Transfer};
use parking_lot::MutexGuard;

use super::Connection;
use super::closed::Closed;
use super::core::{COPIED_AT_ONCE_BYTES, Core, Writer, saturating_u32};
use super::notifier::Notifier;
use super::sending::Sending;

/// A direct transfer may go beyond what a write is asked for, so that a packet lands whole; not beyond this, though, however
/// large the buffers are that the peer advertises. The largest value of the option `landing_bytes`.
const LANDING_BYTES_MAX: usize = 1 << 20;

/// How far a write came.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Written {
    /// Bytes of the gather that are on their way, counted from its start.
    pub at: usize,
    /// The peer has to read first.
    pub blocked: bool,
}

impl<N: Notifier> Connection<N> {
    /// Writes from `at` on, up to about `max` bytes. The lock of the writing direction is held. Inlined with what it calls, as
    /// calls would cost a link's write 3 % of its instructions.
    #[inline(always)]
    pub(super) fn write_locked(
        &self,
        _locked: &Sending<N>,
        core: &mut MutexGuard<'_, Core<N::Token>>,
        gather: &Gather<'_>,
        at: usize,
        max: usize,
    ) -> Result<Written, Closed> {
        let end = at.saturating_add(max).min(gather.total());
        if let Some(records) = &self.records {
            return self.write_records(records, core, gather, at..end);
        }
        let mut written = Written { at, blocked: false };
        while written.at < end && !written.blocked {
            match self.write_transfer(core, gather, written.at, end)? {
                Some(bytes) => written.at += bytes,
                None => written.blocked = true,
            }
        }
        Ok(written)
    }

    /// Writes one transfer; its size. None: wait.
    #[inline(always)]
    fn write_transfer(
        &self,
        core: &mut MutexGuard<'_, Core<N::Token>>,
        gather: &Gather<'_>,
        at: usize,
        end: usize,
    ) -> Result<Option<usize>, Closed> {
        let Some(Transfer { target, notice }) = self.next_transfer(core, gather, at, end)? else {
            return Ok(None);
        };
        let bytes = notice.bytes as usize;
        let post = || {
            if at == 0 && bytes == gather.total() {
                self.qp.post_write(gather.slices(), target, notice)
            } else {
                self.qp.post_write(&gather.range(at, bytes), target, notice)
            }
        };
        self.post_transfer(core, bytes, post)?;
        Ok(Some(bytes))
    }

    /// Posts a transfer of this size; a large one with `core` free.
    #[inline(always)]
    pub(super) fn post_transfer(
        &self,
        core: &mut MutexGuard<'_, Core<N::Token>>,
        bytes: usize,
        post: impl FnOnce() -> Result<(), FabricError>,
    ) -> Result<(), Closed> {
        let posted = if bytes <= COPIED_AT_ONCE_BYTES {
            post()
        } else {
            core.posts_transfer = true;
            let posted = MutexGuard::unlocked(core, post);
            core.posts_transfer = false;
            if core.stream.owes_mark() {
                self.post_mark(core);
            }
            posted
        };
        posted.map_err(|error| self.fail(core, error.into()))
    }

    /// The next transfer that the stream allows; None: wait.
    #[inline(always)]
    fn next_transfer(
        &self,
        core: &mut Core<N::Token>,
        gather: &Gather<'_>,
        at: usize,
        end: usize,
    ) -> Result<Option<Transfer>, Closed> {
        let first = gather.packets_before(at);
        for looked in [false, true] {
            if let Some(closed) = core.closed() {
                return Err(closed.clone());
            }
            if core.writer == Writer::Finished {
                return Err(Closed::Here);
            }
            let room = self.qp.write_room();
            let direct = match core.stream.direct_room() {
                Some(buffer) => {
                    let bytes_max = room.min(buffer as usize).min((end - at).max(LANDING_BYTES_MAX));
                    gather.direct_prefix(at, bytes_max, self.settings.direct_bytes)
                }
                None => 0,
            };
            let bulk = gather.packet_bytes(first) >= self.settings.direct_bytes;
            if direct == 0 && !looked && (bulk || core.stream.counters().adverts_received > 0) {
                // An advertisement may be there already: worth a look before bulk takes the way of two copies, or before
                // what a posted receive waits for goes another way.
                self.progress(core);
                continue;
            }
            // Bulk in the ring would make stale what the peer is about to advertise: the price is a switch of phases, for
            // each of which a round trip passes without a direct transfer.
            core.wants_advert = bulk;
            let waits = bulk && core.stream.awaits_advert();
            let indirect = if waits { 0 } else { (end - at).min(room) };
            let offer = Offer {
                indirect: saturating_u32(indirect),
                direct: saturating_u32(direct),
            };
            if let Some(transfer) = (room > 0).then(|| core.stream.poll_transfer(offer)).flatten() {
                let behind = at + transfer.bytes() as usize;
                let sent = first..gather.packets_before(behind);
                self.tally.packets_sent.add(core, sent.len());
                self.tally.largest_sent.raise(core, gather.largest_of(sent));
                return Ok(Some(transfer));
            }
            if !looked {
                // Some room may have been made already.
                self.progress(core);
            }
        }
        Ok(None)
    }

    /// The writer is woken when there may be room. False: there is already.
    pub(super) fn arm_writer_locked(&self, core: &mut Core<N::Token>) -> bool {
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

    fn is_writable(&self, core: &mut Core<N::Token>) -> bool {
        let waits = core.wants_advert && core.stream.awaits_advert();
        self.qp.write_room() > 0
            && (core.stream.direct_room().is_some() || (!waits && core.stream.indirect_room() >= core.transfer_min))
    }
}
