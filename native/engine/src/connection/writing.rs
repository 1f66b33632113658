//! The writer's side of a connection.

use inet_rdma_stream::{Offer, Transfer};
use parking_lot::{Condvar, MutexGuard};

use super::core::{COPIED_AT_ONCE_BYTES, Core, Writer, saturating_u32};
use super::{Closed, Connection, Wakes};
use crate::assembly::Buffer;
use crate::gather::Gather;

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
    /// Whom to tell.
    pub wakes: Wakes,
}

/// The right to write, of one thread at a time.
pub(super) struct Turn<'a> {
    pub(super) core: MutexGuard<'a, Core>,
    written: &'a Condvar,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if std::mem::take(&mut self.core.writing) {
            // All: whoever is first may write so little that it leaves no flag, and tells nobody.
            self.written.notify_all();
        }
    }
}

impl<B: Buffer> Connection<B> {
    /// Writes from `at` on, up to about `max` bytes, as far as the peer has room. Only a packet that lands goes beyond `max`,
    /// by less than 1 MiB. When [`Written::blocked`] the writer
    /// tries again, or asks with [`Self::arm_writer`] to be woken.
    pub fn write(&self, gather: &Gather<'_>, at: usize, max: usize) -> Result<Written, Closed> {
        let mut turn = self.turn_to_write();
        let end = at.saturating_add(max).min(gather.total());
        let mut at = at;
        let mut wakes = Wakes::default();
        let mut blocked = false;
        while at < end && !blocked {
            match self.write_transfer(&mut turn.core, gather, at, end, &mut wakes) {
                Ok(Some(bytes)) => at += bytes,
                Ok(None) => blocked = true,
                // Others must be told of the end; it comes out again at the next write.
                Err(_) if !wakes.is_empty() => blocked = true,
                Err(closed) => return Err(closed),
            }
        }
        Ok(Written { at, blocked, wakes })
    }

    /// Waits while another thread is writing.
    pub(super) fn turn_to_write(&self) -> Turn<'_> {
        let mut core = self.core.lock();
        while core.writing {
            self.written.wait(&mut core);
        }
        Turn {
            core,
            written: &self.written,
        }
    }

    /// Writes one transfer; its size. None: wait.
    fn write_transfer(
        &self,
        core: &mut MutexGuard<'_, Core>,
        gather: &Gather<'_>,
        at: usize,
        end: usize,
        wakes: &mut Wakes,
    ) -> Result<Option<usize>, Closed> {
        let (target, bytes, notice) = match self.next_transfer(core, gather, at, end, wakes)? {
            None => return Ok(None),
            Some(Transfer::Direct { target, bytes, notice }) => (target, bytes, notice),
            Some(Transfer::Indirect { offset, bytes, notice }) => {
                let mut target = self.qp.remote_hello().ring;
                target.address = target.address.wrapping_add(offset.into());
                (target, bytes, notice)
            }
        };
        let bytes = bytes as usize;
        let post = || {
            if at == 0 && bytes == gather.total() {
                self.qp.post_write(gather.slices(), target, notice)
            } else {
                self.qp.post_write(&gather.range(at, bytes), target, notice)
            }
        };
        let posted = if bytes <= COPIED_AT_ONCE_BYTES {
            post()
        } else {
            core.writing = true;
            MutexGuard::unlocked(core, post)
        };
        posted.map_err(|error| self.fail_locked(core, error.into(), wakes))?;
        Ok(Some(bytes))
    }

    /// What the stream lets go next; None: wait.
    fn next_transfer(
        &self,
        core: &mut Core,
        gather: &Gather<'_>,
        at: usize,
        end: usize,
        wakes: &mut Wakes,
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
                wakes.merge(self.progress(core));
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
                wakes.merge(self.progress(core));
            }
        }
        Ok(None)
    }

    /// The writer looks no more until it is woken. False: there is room already, write again.
    pub fn arm_writer(&self) -> (bool, Wakes) {
        let mut core = self.core.lock();
        let mut wakes = Wakes::default();
        if core.writer == Writer::Finished {
            return (false, wakes);
        }
        // Asked before arming, so that room makes an event.
        core.writer = match self.qp.write_room() {
            0 => Writer::WaitsForFabric,
            _ => Writer::WaitsForPeer,
        };
        self.flush_controls(&mut core, &mut wakes);
        self.rest(&mut core, &mut wakes);
        if !core.is_up() || self.is_writable(&mut core) {
            core.wake_writer();
            wakes.writer = false;
            return (false, wakes);
        }
        (true, wakes)
    }

    /// The writer shall be woken at the next look, also if there is no room.
    pub fn wake_writer(&self) {
        let mut core = self.core.lock();
        if core.writer != Writer::Finished {
            core.writer = Writer::Called;
        }
    }

    fn is_writable(&self, core: &mut Core) -> bool {
        let waits = core.wants_advert && core.stream.awaits_advert();
        self.qp.write_room() > 0 && (core.stream.direct_room().is_some() || (!waits && core.stream.indirect_room() > 0))
    }
}
