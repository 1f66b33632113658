//! A write of a sealed connection: records.

use std::ops::Range;
use std::time::Instant;

use inet_rdma_assembly::Gather;
use inet_rdma_fabric::WriteRoom;
use inet_rdma_records::{OVERHEAD_BYTES, PLAIN_BYTES_MAX, RECORD_BYTES_MIN, filling};
use inet_rdma_stream::{Offer, Transfer};
use parking_lot::MutexGuard;

use super::transfer::{TRANSFERS_MAX, Written};
use crate::connection::closed::Ended;
use crate::connection::notifier::Woken;
use crate::connection::state::{COPIED_AT_ONCE_BYTES, Connection, Core, Need, RecordSealer, Records, saturating_u32};

/// Zeros that fill the ring up to its end where no record fits.
const FILLING: [u8; RECORD_BYTES_MIN] = [0; RECORD_BYTES_MIN];

impl Connection {
    /// Like a plain write: writes from `at` on, up to about `max` bytes, as far as there is room.
    #[inline(never)]
    pub(crate) fn write_sealed(
        &self,
        records: &Records,
        gather: &Gather<'_>,
        at: usize,
        max: usize,
    ) -> (Result<Written, Ended>, Woken) {
        let end = at.saturating_add(max).min(gather.total());
        // This lock comes before `core`, and is held for the whole write.
        let mut sealer = records.sealer.lock();
        sealer.sealer.rekey_if_old(Instant::now);
        let mut core = self.core.lock();
        let written = self.write_records(&mut sealer, &mut core, gather, at..end);
        let woken = core.take_woken();
        (written, woken)
    }

    fn write_records(
        &self,
        sealer: &mut RecordSealer,
        core: &mut MutexGuard<'_, Core>,
        gather: &Gather<'_>,
        range: Range<usize>,
    ) -> Result<Written, Ended> {
        let mut at = range.start;
        let mut blocked = false;
        let mut left = TRANSFERS_MAX;
        while at < range.end && !blocked && left > 0 {
            left -= 1;
            match self.write_record(sealer, core, gather, at..range.end) {
                Ok(Some(bytes)) => at += bytes,
                Ok(None) => blocked = true,
                Err(ended) if at == range.start => return Err(ended),
                // The peer may have these bytes: the next write fails.
                Err(Ended) => break,
            }
        }
        Ok(Written { at, blocked })
    }

    /// Writes one transfer. Returns how many of the gather's bytes are in it. None: wait.
    fn write_record(
        &self,
        sealer: &mut RecordSealer,
        core: &mut MutexGuard<'_, Core>,
        gather: &Gather<'_>,
        range: Range<usize>,
    ) -> Result<Option<usize>, Ended> {
        for looked in [false, true] {
            core.check_writing()?;
            let room = self.qp.write_room();
            let ring_bytes = core.stream.indirect_room() as usize;
            let bytes_max = room.as_ref().map_or(0, WriteRoom::bytes).min(ring_bytes);
            let to_end = core.stream.peer_ring_to_end() as usize;
            let least = to_end.min(RECORD_BYTES_MIN);
            core.writer.need = Need::Record(saturating_u32(least));
            if let Some(room) = room.filter(|_| bytes_max >= least) {
                return self.post_record(sealer, core, gather, range, (room, bytes_max));
            }
            if !looked {
                // The peer may have made room already.
                self.progress(core);
            }
        }
        Ok(None)
    }

    fn post_record(
        &self,
        sealer: &mut RecordSealer,
        core: &mut MutexGuard<'_, Core>,
        gather: &Gather<'_>,
        range: Range<usize>,
        (room, bytes_max): (WriteRoom, usize),
    ) -> Result<Option<usize>, Ended> {
        let filling = filling(core.stream.peer_ring_to_end() as usize);
        let wanted = filling.unwrap_or_else(|| {
            let plain_max = PLAIN_BYTES_MAX.min(bytes_max - OVERHEAD_BYTES);
            whole_packets(gather, &range, plain_max) + OVERHEAD_BYTES
        });
        let offer = Offer {
            indirect: saturating_u32(wanted),
            direct: 0,
        };
        let Some(Transfer { target, notice }) = core.stream.poll_transfer(offer) else {
            return Ok(None);
        };
        debug_assert_eq!(notice.bytes as usize, wanted);
        let plain = match filling {
            Some(bytes) => {
                sealer.sealer.fill(bytes);
                0
            }
            None => wanted - OVERHEAD_BYTES,
        };
        if let Some(state) = &mut core.records {
            state.overhead_sent += (wanted - plain) as u64;
        }
        let sent = gather.packets_before(range.start)..gather.packets_before(range.start + plain);
        self.tally.packets_sent.add(core, sent.len());
        self.tally.largest_sent.raise(core, gather.largest_of(sent));
        let post = || {
            let bytes = match filling {
                Some(bytes) => &FILLING[..bytes],
                None if plain == gather.total() => sealer.seal(plain, gather.slices()),
                None => sealer.seal(plain, &gather.range(range.start, plain)),
            };
            self.qp.post_write(room, &[bytes], target, notice)
        };
        if wanted <= COPIED_AT_ONCE_BYTES {
            post().map_err(|error| self.end(core, (*error).into()))?;
        } else {
            self.post_unlocked(core, post)?;
        }
        Ok(Some(plain))
    }
}

/// The bytes of `range` that go into one record of `max` bytes: as many whole packets as fit, so that the receiver need
/// not join parts; if none fits, a part of the first.
fn whole_packets(gather: &Gather<'_>, range: &Range<usize>, max: usize) -> usize {
    if range.len() <= max {
        return range.len();
    }
    match gather.packets_before(range.start + max) {
        0 => max,
        behind => match gather.ends()[behind - 1].saturating_sub(range.start) {
            0 => max,
            whole => whole,
        },
    }
}
