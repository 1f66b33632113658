//! A write: the transfers that the stream allows, as far as the peer has room.

use std::sync::Arc;

use inet_rdma_assembly::Gather;
use inet_rdma_fabric::WriteRoom;
use inet_rdma_stream::{Offer, Transfer};
use parking_lot::MutexGuard;

use super::closed::Closed;
use super::core::{COPIED_AT_ONCE_BYTES, Core, saturating_u32};
use super::notifier::{Caller, Woken};
use super::shared::Connection;
use super::transfer::{Stopped, TRANSFERS_MAX, Written};
use super::writer::Need;

/// Maximum size of a direct transfer that exceeds the caller's limit so that a packet lands as a whole, however large
/// the advertised buffers are. The largest value of the option `landing_bytes`.
const LANDING_BYTES_MAX: usize = 1 << 20;

/// The writing direction of a connection.
pub struct WriteHalf {
    connection: Arc<Connection>,
}

impl WriteHalf {
    pub(super) fn new(connection: Arc<Connection>) -> Self {
        Self { connection }
    }

    /// Writes from `at` on, up to about `max` bytes, as far as the peer has room, in a bounded number of transfers.
    /// Only a packet that lands goes beyond `max`, by less than 1 MiB. When [`Written::blocked`] the writer tries
    /// again, or asks with [`Connection::arm_writer`] to be woken.
    #[inline]
    pub fn write(&mut self, gather: &Gather<'_>, at: usize, max: usize) -> Result<Written, Closed> {
        let (written, woken) = self.connection.write(gather, at, max);
        self.connection.tell(woken, Caller::User);
        written.map_err(|Stopped| self.connection.why_stopped())
    }

    /// As [`Self::write`], for a caller that notifies the user itself.
    #[inline(never)]
    pub(crate) fn write_untold(
        &mut self,
        gather: &Gather<'_>,
        at: usize,
        max: usize,
    ) -> (Result<Written, Closed>, Woken) {
        let (written, woken) = self.connection.write(gather, at, max);
        (written.map_err(|Stopped| self.connection.why_stopped()), woken)
    }

    /// Ends the outgoing stream after the last transfer; the peer reads to its end.
    pub fn finish(&mut self) -> Result<(), Closed> {
        let (finished, woken) = self.finish_untold();
        self.connection.tell(woken, Caller::User);
        finished
    }

    /// As [`Self::finish`], for a caller that notifies the user itself.
    pub(crate) fn finish_untold(&mut self) -> (Result<(), Closed>, Woken) {
        let connection = &*self.connection;
        connection.untold_step(|core| {
            if let Some(closed) = core.closed() {
                return Err(closed.clone());
            }
            core.stream.finish();
            // The credit that the last message needs may have come.
            connection.progress(core);
            // Wake a writer that waits for room: no room comes any more.
            core.wake_writer();
            core.writer.finish();
            connection.flush_controls(core);
            Ok(())
        })
    }

    /// Ends the connection. The peer reads the written bytes, then the end.
    pub fn close(&mut self) {
        let _ended_already = self.finish();
        self.connection.close_with(Closed::Here);
    }
}

impl Connection {
    /// Writes plain or sealed. The caller must notify the user.
    #[inline(always)]
    fn write(&self, gather: &Gather<'_>, at: usize, max: usize) -> (Result<Written, Stopped>, Woken) {
        if let Some(records) = &self.records {
            return self.write_sealed(records, gather, at, max);
        }
        let mut core = self.core.lock();
        let written = self.write_plain(&mut core, gather, at, max);
        let woken = core.take_woken();
        (written, woken)
    }

    /// Writes from `at` on, up to about `max` bytes in [`TRANSFERS_MAX`] transfers. Fails only if nothing was sent.
    /// Inlined with the functions that it calls, as calls would cost a link's write 3 % of its instructions.
    #[inline(always)]
    fn write_plain(
        &self,
        core: &mut MutexGuard<'_, Core>,
        gather: &Gather<'_>,
        at: usize,
        max: usize,
    ) -> Result<Written, Stopped> {
        let end = at.saturating_add(max).min(gather.total());
        let mut written = Written { at, blocked: false };
        let mut left = TRANSFERS_MAX;
        while written.at < end && !written.blocked && left > 0 {
            left -= 1;
            match self.write_transfer(core, gather, written.at, end) {
                Ok(Some(bytes)) => written.at += bytes,
                Ok(None) => written.blocked = true,
                Err(stopped) if written.at == at => return Err(stopped),
                // The peer may have these bytes: the next write fails.
                Err(Stopped) => break,
            }
        }
        Ok(written)
    }

    /// Writes one transfer. Returns its size. None: wait.
    #[inline(always)]
    fn write_transfer(
        &self,
        core: &mut MutexGuard<'_, Core>,
        gather: &Gather<'_>,
        at: usize,
        end: usize,
    ) -> Result<Option<usize>, Stopped> {
        let Some((room, transfer)) = self.next_transfer(core, gather, at, end)? else {
            return Ok(None);
        };
        let Transfer { target, notice } = transfer;
        let bytes = notice.bytes as usize;
        let part;
        let source = match at == 0 && bytes == gather.total() {
            true => gather.slices(),
            false => {
                part = gather.range(at, bytes);
                part.as_slice()
            }
        };
        if bytes <= COPIED_AT_ONCE_BYTES {
            let posted = self.qp.post_write(room, source, target, notice);
            posted.map_err(|error| self.stop(core, error))?;
        } else {
            self.post_unlocked(core, || self.qp.post_write(room, source, target, notice))?;
        }
        Ok(Some(bytes))
    }

    /// The next transfer that the stream allows, with its room; None: wait.
    #[inline(always)]
    fn next_transfer(
        &self,
        core: &mut Core,
        gather: &Gather<'_>,
        at: usize,
        end: usize,
    ) -> Result<Option<(WriteRoom, Transfer)>, Stopped> {
        let first = gather.packets_before(at);
        let mut looked = false;
        loop {
            core.check_writing()?;
            let room = self.qp.write_room();
            let room_bytes = room.as_ref().map_or(0, WriteRoom::bytes);
            let direct = match core.stream.direct_room() {
                Some(buffer) => {
                    let bytes_max = room_bytes.min(buffer as usize).min((end - at).max(LANDING_BYTES_MAX));
                    gather.direct_prefix(at, bytes_max, self.settings.direct_bytes)
                }
                None => 0,
            };
            let bulk = gather.packet_bytes(first) >= self.settings.direct_bytes;
            if direct == 0 && !looked && (bulk || core.stream.counters().adverts_received > 0) {
                // An advertisement may have arrived: look before bulk goes through the ring, with two copies, or before
                // bytes of an expected read miss their buffer.
                self.progress(core);
                looked = true;
                continue;
            }
            // Bulk in the ring would make the peer's next advertisements stale. That would cost a switch of phases: a
            // round trip without a direct transfer.
            core.writer.need = if bulk { Need::Advert } else { Need::Room };
            let waits = bulk && core.stream.awaits_advert();
            let indirect = if waits { 0 } else { (end - at).min(room_bytes) };
            let offer = Offer {
                indirect: saturating_u32(indirect),
                direct: saturating_u32(direct),
            };
            let chosen = room.and_then(|room| Some((room, core.stream.poll_transfer(offer)?)));
            if let Some((room, transfer)) = chosen {
                let behind = at + transfer.bytes() as usize;
                let sent = first..gather.packets_before(behind);
                self.tally.packets_sent.add(core, sent.len());
                self.tally.largest_sent.raise(core, gather.largest_of(sent));
                return Ok(Some((room, transfer)));
            }
            if looked {
                return Ok(None);
            }
            // The peer may have made room already.
            self.progress(core);
            looked = true;
        }
    }
}
