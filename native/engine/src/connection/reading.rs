//! The reader's side of a connection.

use std::time::{Duration, Instant};

use inet_rdma_stream::Mode;
use parking_lot::MutexGuard;

use super::core::{COPIED_AT_ONCE_BYTES, Core, Reader, saturating_u32};
use super::landings::Landed;
use super::{Closed, Connection, Wakes};
use crate::assembly::{Arrived, Assembly, Buffer, ReadLimit, Received};

/// How a read ended.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadEnd {
    /// There may be more: read again.
    More,
    /// Nothing more for now.
    Empty,
    /// Nothing more, ever.
    Closed(Closed),
}

impl<B: Buffer> Connection<B> {
    /// Reads up to `limit`; the packets that are complete are added to `out`.
    pub fn read(&self, limit: ReadLimit, out: &mut Vec<Received<B>>) -> (ReadEnd, Wakes) {
        let mut reader = self.reader.lock();
        self.read_into(&mut reader, limit, false, out)
    }

    pub(super) fn read_into(
        &self,
        reader: &mut Assembly<B>,
        limit: ReadLimit,
        posted: bool,
        out: &mut Vec<Received<B>>,
    ) -> (ReadEnd, Wakes) {
        let mut wakes = Wakes::default();
        let mut left = limit;
        let had = out.len();
        let kept = match reader.retarget(limit, out) {
            Ok(satisfied) => satisfied,
            Err(error) => return (ReadEnd::Closed(self.fail(error.into(), &mut wakes)), wakes),
        };
        let mut core = self.core.lock();
        core.posted.in_use = posted;
        core.note_handed_over(reader, kept);
        if kept {
            core.end_read(Reader::Away);
            self.count_received(&core, reader, &out[had..]);
            return (ReadEnd::More, wakes);
        }
        self.resume_reader(&mut core);
        wakes.merge(self.progress(&mut core));
        let end = loop {
            if core.reader == Reader::Stopped {
                break ReadEnd::Closed(Closed::Here);
            }
            if left.bytes == 0 || left.packets == 0 {
                break ReadEnd::More;
            }
            let had = out.len();
            let (guard, taken) = self.read_some(core, reader, left, out);
            core = guard;
            let packets = self.count_received(&core, reader, &out[had..]);
            match taken {
                Ok(Some(bytes)) => left.bytes = left.bytes.saturating_sub(bytes),
                Ok(None) => break self.nothing_more(&core),
                Err(closed) => break ReadEnd::Closed(self.fail_locked(&mut core, closed, &mut wakes)),
            }
            core.note_handed_over(reader, packets > 0);
            left.packets = left.packets.saturating_sub(packets);
            if limit.exact > 0 && packets > 0 {
                break ReadEnd::More;
            }
            core.policy.note_packets(reader.take_largest());
            // Before progress acknowledges what was freed: a writer that waits for room then finds the landing buffers
            // first, and goes on directly.
            self.advertise(&mut core);
            wakes.merge(self.progress(&mut core));
        };
        self.advertise(&mut core);
        // Nobody reads on behind the end, but a writer may still wait.
        core.end_read(match end {
            ReadEnd::Closed(_) => Reader::AtEnd,
            ReadEnd::More | ReadEnd::Empty => Reader::Away,
        });
        self.flush_controls(&mut core, &mut wakes);
        self.rest(&mut core, &mut wakes);
        (end, wakes)
    }

    /// Counts what was read; how many packets it was.
    #[inline]
    fn count_received(&self, core: &Core, reader: &Assembly<B>, received: &[Received<B>]) -> usize {
        let header_bytes = reader.framing().header_bytes();
        let mut packets = 0;
        for received in received {
            let sizes = received.sizes(header_bytes);
            self.tally.sizes_received.add(core, sizes);
            packets += sizes.packets;
        }
        self.tally.packets_received.add(core, packets);
        packets
    }

    /// Takes one landing buffer or what is in the ring, with `core` free while it copies. None: there was nothing.
    fn read_some<'a>(
        &'a self,
        mut core: MutexGuard<'a, Core>,
        reader: &mut Assembly<B>,
        limit: ReadLimit,
        out: &mut Vec<Received<B>>,
    ) -> (MutexGuard<'a, Core>, Result<Option<usize>, Closed>) {
        if !core.has_landed() {
            return self.read_ring(core, reader, limit, out);
        }
        match core.landings.take() {
            Some(Landed::Whole(buffer, range)) => {
                let bulk = self.bulk_bytes(&core, limit);
                drop(core);
                let bytes = range.len();
                let pushed = reader.push_landed(buffer, range, bulk, limit, out);
                let mut core = self.core.lock();
                let taken = pushed.map_err(Closed::from).map(|rest| {
                    let left = rest.as_ref().map_or(0, |(_, range)| range.len());
                    let rest = rest.map(|(buffer, range)| Landed::Whole(buffer, range));
                    core.landings.took(bytes - left, rest);
                    Some(bytes - left)
                });
                (core, taken)
            }
            Some(Landed::Part(index, range)) => {
                let taken = self.read_part(&mut core, reader, (index, range), limit, out);
                (core, taken)
            }
            None => (core, Ok(None)),
        }
    }

    /// Copies out of a buffer of which the peer writes the rest, with `core` held, so that it stays where it is.
    #[cold]
    fn read_part(
        &self,
        core: &mut Core,
        reader: &mut Assembly<B>,
        (index, range): (usize, std::ops::Range<usize>),
        limit: ReadLimit,
        out: &mut Vec<Received<B>>,
    ) -> Result<Option<usize>, Closed> {
        let Some(start) = core.landings.part(index, &range) else {
            return Ok(None);
        };
        // SAFETY: `start` is where the bytes `range` of a landing buffer lie, which `core.landings` keeps as long as it is
        // locked, and the value does not leave this function. The peer may write to them; the copy stands that.
        let arrived = unsafe { Arrived::new([(start, range.len()), (std::ptr::null(), 0)]) };
        let taken = reader.push(&arrived, limit, out)?;
        let left = range.start + taken..range.end;
        let rest = (!left.is_empty()).then_some(Landed::Part(index, left));
        core.landings.took(taken, rest);
        Ok(Some(taken))
    }

    fn read_ring<'a>(
        &'a self,
        core: MutexGuard<'a, Core>,
        reader: &mut Assembly<B>,
        limit: ReadLimit,
        out: &mut Vec<Received<B>>,
    ) -> (MutexGuard<'a, Core>, Result<Option<usize>, Closed>) {
        let Some(arrived) = self.ring_arrived(&core, limit.bytes) else {
            return (core, Ok(None));
        };
        let (mut core, pushed) = if arrived.len() <= COPIED_AT_ONCE_BYTES {
            (core, reader.push(&arrived, limit, out))
        } else {
            drop(core);
            let pushed = reader.push(&arrived, limit, out);
            (self.core.lock(), pushed)
        };
        let taken = pushed.map_err(Closed::from).map(|bytes| {
            core.stream.handle_copied(saturating_u32(bytes));
            Some(bytes)
        });
        (core, taken)
    }

    /// From which size on a landing buffer is handed over as it is. Without a ring to go on with the last one is copied
    /// out: the user may hold on to all others until something comes that they cannot hold up.
    /// What lies just where a posted receive wants it is handed over whatever its size.
    fn bulk_bytes(&self, core: &Core, limit: ReadLimit) -> usize {
        let is_last = || core.stream.receives_posted() == 0 && self.landing.used() == self.landing.count();
        if !self.hands_over || self.settings.mode == Mode::DirectOnly && is_last() {
            return usize::MAX;
        }
        match core.posted.in_use && limit.exact > 0 {
            true => 1,
            false => self.settings.direct_bytes,
        }
    }

    /// A read begins. A reader that polls by itself and looks again before it was woken needs no wake and no event; another
    /// one that waits is not this one, and goes on waiting.
    fn resume_reader(&self, core: &mut Core) {
        core.reader = match core.reader {
            Reader::Waits | Reader::Called if core.self_polling => {
                self.qp.disarm();
                Reader::Reads
            }
            Reader::Waits | Reader::Called => Reader::Waits,
            Reader::Away | Reader::Reads | Reader::AtEnd => Reader::Reads,
            Reader::Stopped => Reader::Stopped,
        };
    }

    fn nothing_more(&self, core: &Core) -> ReadEnd {
        match core.closed() {
            Some(closed) => ReadEnd::Closed(closed.clone()),
            None if core.stream.is_end() => ReadEnd::Closed(Closed::ByPeer),
            None => ReadEnd::Empty,
        }
    }

    /// What is in the ring, up to `max` bytes.
    fn ring_arrived(&self, core: &Core, max: usize) -> Option<Arrived> {
        let all = (core.stream.ring_bytes_readable() as usize).min(max);
        let first = core.stream.ring_readable();
        if all == 0 {
            return None;
        }
        let base = self.qp.memory().base().cast_const();
        let first_bytes = (first.bytes as usize).min(all);
        // SAFETY: the stream gives runs inside the ring, which lies at the start of the memory that `qp` keeps mapped
        // and outlives the value, which does not leave `read`. The peer does not overwrite these bytes before they are
        // acknowledged unless it breaks the protocol; the copy stands that, too.
        Some(unsafe {
            Arrived::new([
                (base.add(first.offset as usize), first_bytes),
                (base, all - first_bytes),
            ])
        })
    }

    /// The reader looks no more until it is woken. False: there is something already, read again.
    pub fn arm(&self) -> (bool, Wakes) {
        let mut core = self.core.lock();
        let mut wakes = Wakes::default();
        match core.reader {
            Reader::Stopped => return (false, wakes),
            // There may be something that does not show.
            Reader::Called => {
                core.reader = Reader::Reads;
                return (false, wakes);
            }
            Reader::Away | Reader::Reads | Reader::Waits | Reader::AtEnd => core.reader = Reader::Waits,
        }
        self.rest(&mut core, &mut wakes);
        if self.is_readable(&core) {
            core.wake_reader();
            wakes.reader = false;
            return (false, wakes);
        }
        (true, wakes)
    }

    /// The reader shall be woken at the next look, also if nothing comes: a part of what it wants may be here already.
    pub fn wake_reader(&self) {
        let mut core = self.core.lock();
        if core.reader != Reader::Stopped {
            core.reader = Reader::Called;
        }
    }

    /// The reader promises that between a wake and the next [`Self::arm`] it reads again and again, so that the peer need
    /// not send events.
    pub fn set_self_polling(&self) {
        let mut core = self.core.lock();
        // In busy polling a thread looks anyway.
        core.self_polling = !self.settings.busy;
    }

    /// Surely nothing has come since the last look: worth another such look, which takes no lock, before a read. False:
    /// perhaps something has. The end of the connection does not show.
    pub fn is_quiet(&self) -> bool {
        self.qp.is_quiet()
    }

    /// Looks for something to read for a while; whether there is. For a reader that polls by itself and has nothing better
    /// to do. Lets other threads have the processor: on few cores the peer may need just this one.
    pub fn spin(&self, duration: Duration) -> (bool, Wakes) {
        let start = Instant::now();
        let mut wakes = Wakes::default();
        loop {
            for _ in 0..LOOKS_PER_YIELD {
                let mut core = self.core.lock();
                wakes.merge(self.progress(&mut core));
                if self.is_readable(&core) {
                    return (true, wakes);
                }
                drop(core);
                if (0..QUIET_LOOKS).all(|_| self.is_quiet()) {
                    break;
                }
                // Something came, or this fabric cannot tell.
                std::hint::spin_loop();
            }
            if start.elapsed() >= duration {
                return (false, wakes);
            }
            std::thread::yield_now();
        }
    }
}

/// Looks between two offers of the processor to other threads.
const LOOKS_PER_YIELD: u32 = 8;

/// Looks without the lock, where the fabric allows them, before such an offer: about as long as those with it.
const QUIET_LOOKS: u32 = 256;

impl Core {
    /// A read has ended; another reader may wait.
    #[inline]
    fn end_read(&mut self, now: Reader) {
        if matches!(self.reader, Reader::Away | Reader::Reads | Reader::AtEnd) {
            self.reader = now;
        }
    }

    /// What the reader keeps has changed; `handed_over`: a posted receive has got what it wants.
    #[inline]
    fn note_handed_over<B: Buffer>(&mut self, reader: &Assembly<B>, handed_over: bool) {
        self.posted.kept = reader.kept();
        if handed_over && self.posted.in_use {
            self.posted.done();
        }
    }
}
