//! A write: the transfers that the stream allows, as far as the peer has room.

use std::ops::Range;
use std::sync::Arc;

use inet_rdma_assembly::Gather;
use inet_rdma_fabric::WriteRoom;
use inet_rdma_stream::{Notice, Offer, RemoteAddress, Transfer};
use parking_lot::MutexGuard;

use super::transfer::{TRANSFERS_MAX, Written};
use crate::connection::closed::{Closed, Ended};
use crate::connection::notifier::{Caller, Woken};
use crate::connection::settings::LANDING_BUFFER_BYTES_MAX;
use crate::connection::state::{COPIED_AT_ONCE_BYTES, Connection, Core, Need, saturating_u32};

/// The writing direction of a connection.
pub struct WriteHalf {
    connection: Arc<Connection>,
}

impl WriteHalf {
    pub(crate) fn new(connection: Arc<Connection>) -> Self {
        Self { connection }
    }

    /// Writes from `at` on, up to about `max` bytes, as far as the peer has room, in a bounded number of transfers.
    /// Only a packet that lands goes beyond `max`, by less than 1 MiB. When [`Written::blocked`] the writer tries
    /// again, or asks with [`Connection::arm_writer`] to be woken.
    #[inline]
    pub fn write(&mut self, gather: &Gather<'_>, at: usize, max: usize) -> Result<Written, Closed> {
        self.connection.write(gather, at, max, |written, woken| {
            self.connection.tell(woken, Caller::User);
            written.map_err(|Ended| self.connection.why_no_write())
        })
    }

    /// As [`Self::write`], for a caller that notifies the user itself.
    #[inline(never)]
    pub fn write_without_notify(
        &mut self,
        gather: &Gather<'_>,
        at: usize,
        max: usize,
    ) -> (Result<Written, Closed>, Woken) {
        self.connection.write(gather, at, max, |written, woken| {
            (written.map_err(|Ended| self.connection.why_no_write()), woken)
        })
    }

    /// Ends the outgoing stream after the last transfer; the peer reads to its end.
    pub fn finish(&mut self) -> Result<(), Closed> {
        let (finished, woken) = self.finish_without_notify();
        self.connection.tell(woken, Caller::User);
        finished
    }

    /// As [`Self::finish`], for a caller that notifies the user itself.
    pub fn finish_without_notify(&mut self) -> (Result<(), Closed>, Woken) {
        let connection = &*self.connection;
        connection.step_without_notify(|core| {
            if let Some(closed) = core.closed() {
                return Err(closed.clone());
            }
            core.stream.finish();
            // The credit that the last message needs may have come.
            connection.progress(core);
            // Wake a writer that waits for room: no room will come.
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
    /// Writes plain or sealed, and gives the result to `end`, which must notify the user. The two results are not put
    /// together before: that would put that of a plain write in memory.
    #[inline(always)]
    fn write<T>(
        &self,
        gather: &Gather<'_>,
        at: usize,
        max: usize,
        end: impl Fn(Result<Written, Ended>, Woken) -> T,
    ) -> T {
        let end = |(written, woken): (Result<Written, Ended>, Woken)| end(written, woken);
        match &self.records {
            None => end(self.write_plain(gather, at, max)),
            Some(records) => end(self.write_sealed(records, gather, at, max)),
        }
    }

    #[inline(always)]
    fn write_plain(&self, gather: &Gather<'_>, at: usize, max: usize) -> (Result<Written, Ended>, Woken) {
        let mut core = self.core.lock();
        let written = self.write_transfers(&mut core, gather, at, max);
        let woken = core.take_woken();
        (written, woken)
    }

    /// Writes from `at` on, up to about `max` bytes in [`TRANSFERS_MAX`] transfers. Fails only if nothing was sent.
    /// Inlined with the functions that it calls, as calls would cost a link's write 3 % of its instructions. The usual
    /// write is one transfer: the loop around the others is out of line, so that this one keeps its values in
    /// registers.
    #[inline(always)]
    fn write_transfers(
        &self,
        core: &mut MutexGuard<'_, Core>,
        gather: &Gather<'_>,
        at: usize,
        max: usize,
    ) -> Result<Written, Ended> {
        let end = at.saturating_add(max).min(gather.total());
        let mut written = Written { at, blocked: false };
        if at < end {
            match self.try_transfer(core, gather, at..end, false)? {
                Some(bytes) => written.at += bytes,
                None => return self.write_on(core, gather, written, end, true),
            }
            if written.at < end {
                return self.write_on(core, gather, written, end, false);
            }
        }
        Ok(written)
    }

    /// Goes on with a write of which one transfer is sent, or none and a look is due. Fails only if nothing was sent.
    #[inline(never)]
    fn write_on(
        &self,
        core: &mut MutexGuard<'_, Core>,
        gather: &Gather<'_>,
        mut written: Written,
        end: usize,
        mut look: bool,
    ) -> Result<Written, Ended> {
        let mut left = TRANSFERS_MAX - usize::from(!look);
        while written.at < end && left > 0 {
            if look {
                // The peer may have made room already, or advertised a buffer.
                self.progress(core);
            }
            match self.try_transfer(core, gather, written.at..end, look) {
                Ok(Some(bytes)) => {
                    written.at += bytes;
                    left -= 1;
                    look = false;
                }
                Ok(None) if look => {
                    written.blocked = true;
                    break;
                }
                Ok(None) => look = true,
                // The peer may have these bytes: the next write fails.
                Err(Ended) if left < TRANSFERS_MAX => break,
                Err(ended) => return Err(ended),
            }
        }
        Ok(written)
    }

    /// Writes one transfer. Returns its size. None: look first, or wait if this transfer has `looked`.
    #[inline(always)]
    fn try_transfer(
        &self,
        core: &mut MutexGuard<'_, Core>,
        gather: &Gather<'_>,
        range: Range<usize>,
        looked: bool,
    ) -> Result<Option<usize>, Ended> {
        let at = range.start;
        let Some((room, Transfer { target, notice })) = self.next_transfer(core, gather, range, looked)? else {
            return Ok(None);
        };
        let bytes = notice.bytes as usize;
        if at == 0 && bytes == gather.total() {
            self.post(core, gather.slices(), room, target, notice)?;
        } else {
            self.post_part(core, gather, at, room, target, notice)?;
        }
        Ok(Some(bytes))
    }

    /// Posts a transfer of a part of the gather, from `at` on.
    #[inline(never)]
    fn post_part(
        &self,
        core: &mut MutexGuard<'_, Core>,
        gather: &Gather<'_>,
        at: usize,
        room: WriteRoom,
        target: RemoteAddress,
        notice: Notice,
    ) -> Result<(), Ended> {
        let part = gather.range(at, notice.bytes as usize);
        self.post(core, &part, room, target, notice)
    }

    #[inline(always)]
    fn post(
        &self,
        core: &mut MutexGuard<'_, Core>,
        source: &[&[u8]],
        room: WriteRoom,
        target: RemoteAddress,
        notice: Notice,
    ) -> Result<(), Ended> {
        if notice.bytes as usize <= COPIED_AT_ONCE_BYTES {
            let posted = self.qp.post_write(room, source, target, notice);
            posted.map_err(|error| self.end(core, (*error).into()))
        } else {
            // `move`: references would have the values in memory, also where this is not called.
            self.post_unlocked(core, move || self.qp.post_write(room, source, target, notice))
        }
    }

    /// The next transfer that the stream allows, with its room. None: look first, or wait if this write has `looked`.
    #[inline(always)]
    fn next_transfer(
        &self,
        core: &mut Core,
        gather: &Gather<'_>,
        Range { start: at, end }: Range<usize>,
        looked: bool,
    ) -> Result<Option<(WriteRoom, Transfer)>, Ended> {
        core.check_writing()?;
        let (first, packet_bytes) = gather.packet_at(at);
        let room = self.qp.write_room();
        let room_bytes = room.as_ref().map_or(0, WriteRoom::bytes);
        let direct = match core.stream.direct_room() {
            Some(buffer) => {
                // A transfer may exceed the caller's limit, so that a packet lands as a whole.
                let bytes_max = room_bytes
                    .min(buffer as usize)
                    .min((end - at).max(LANDING_BUFFER_BYTES_MAX));
                gather.direct_prefix(at, bytes_max, self.settings.direct_bytes)
            }
            None => 0,
        };
        let bulk = packet_bytes >= self.settings.direct_bytes;
        if direct == 0 && !looked && (bulk || core.stream.counters().adverts_received > 0) {
            // An advertisement may have arrived: look before bulk goes through the ring, with two copies, or before
            // bytes of an expected read miss their buffer.
            return Ok(None);
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
        let Some((room, transfer)) = room.and_then(|room| Some((room, core.stream.poll_transfer(offer)?))) else {
            return Ok(None);
        };
        let Transfer { target, notice } = transfer;
        let behind = gather.packets_before(at + notice.bytes as usize);
        let packets = behind - first;
        self.tally.packets_sent.add(core, packets);
        self.tally.largest_sent.raise(
            core,
            match packets {
                1 => packet_bytes,
                _ => gather.largest_of(first..behind),
            },
        );
        Ok(Some((room, Transfer { target, notice })))
    }
}
