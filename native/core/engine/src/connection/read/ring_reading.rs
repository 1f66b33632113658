//! The bytes of the ring, for a read.

use inet_rdma_assembly::{Arrived, Assembly, Buffer, ReadLimit, Received, Rest};
use parking_lot::MutexGuard;

use crate::connection::closed::Ended;
use crate::connection::state::{COPIED_AT_ONCE_BYTES, Connection, Core, saturating_u32};

pub(crate) type Guard<'a> = MutexGuard<'a, Core>;

pub(crate) struct Incoming<B> {
    pub(crate) assembly: Assembly<B>,
    /// The bytes of an opened record that reads have not taken.
    pub(crate) rest: Rest<B>,
}

impl Connection {
    /// Calls `copy` for up to `bytes` bytes: with `core` unlocked if they are many.
    #[inline(always)]
    pub(crate) fn copying<'a, R>(&'a self, core: Guard<'a>, bytes: usize, copy: impl FnOnce() -> R) -> (Guard<'a>, R) {
        if bytes <= COPIED_AT_ONCE_BYTES {
            return (core, copy());
        }
        self.copying_unlocked(core, copy)
    }

    #[inline(never)]
    pub(crate) fn copying_unlocked<'a, R>(&'a self, mut core: Guard<'a>, copy: impl FnOnce() -> R) -> (Guard<'a>, R) {
        core.reader.copies_unlocked = true;
        drop(core);
        let copied = copy();
        let mut core = self.core.lock();
        core.reader.copies_unlocked = false;
        (core, copied)
    }

    /// Notes that the oldest `bytes` of the ring, or of the replaced ring, have been read. The replaced ring is
    /// released with its last byte.
    #[inline(always)]
    pub(crate) fn free_ring(&self, core: &mut Core, bytes: usize) {
        let reads_old = core.stream.reads_old_ring();
        core.stream.handle_copied(saturating_u32(bytes));
        if reads_old {
            self.release_ring(core);
        }
    }

    /// Up to `max` bytes of the ring.
    #[inline(always)]
    pub(crate) fn ring_arrived(&self, core: &Core, max: usize) -> Option<Arrived> {
        let [first, second] = core.stream.ring_readable();
        let all = (first.bytes as usize + second.bytes as usize).min(max);
        if all == 0 {
            return None;
        }
        let base = core.ring.base(core.stream.reads_old_ring());
        let first_bytes = (first.bytes as usize).min(all);
        // SAFETY: the stream gives runs inside the ring that is read next, at the start of its memory, which stays
        // mapped as long as it has unread bytes: these are unread until the value, which does not leave `read`, is
        // gone. The peer does not overwrite these bytes before they are acknowledged unless it breaks the protocol; the
        // copy stands that, too.
        Some(unsafe {
            Arrived::new([
                (base.add(first.offset as usize), first_bytes),
                (base, all - first_bytes),
            ])
        })
    }
}

/// A way to read the bytes of the ring: plain, or as records.
pub(crate) trait ReadRing {
    /// Takes bytes of the ring, up to `limit`. None if there are none.
    fn read<'a, B: Buffer>(
        &mut self,
        connection: &'a Connection,
        core: Guard<'a>,
        incoming: &mut Incoming<B>,
        limit: ReadLimit,
        out: &mut Vec<Received<B>>,
    ) -> (Guard<'a>, Result<Option<usize>, Ended>);
}

pub(crate) struct PlainRing;

impl ReadRing for PlainRing {
    #[inline(always)]
    fn read<'a, B: Buffer>(
        &mut self,
        connection: &'a Connection,
        core: Guard<'a>,
        incoming: &mut Incoming<B>,
        limit: ReadLimit,
        out: &mut Vec<Received<B>>,
    ) -> (Guard<'a>, Result<Option<usize>, Ended>) {
        let Some(arrived) = connection.ring_arrived(&core, limit.bytes) else {
            return (core, Ok(None));
        };
        // Written out, as a closure that is called in two places would not be inlined.
        let (mut core, pushed) = if arrived.len() <= COPIED_AT_ONCE_BYTES {
            (core, incoming.assembly.push(&arrived, limit, out))
        } else {
            connection.copying_unlocked(core, || incoming.assembly.push(&arrived, limit, out))
        };
        let taken = match pushed {
            Ok(bytes) => {
                connection.free_ring(&mut core, bytes);
                Ok(Some(bytes))
            }
            Err(error) => Err(connection.end(&mut core, error.into())),
        };
        (core, taken)
    }
}
