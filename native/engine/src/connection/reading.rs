//! A read: landing buffers and what is in the ring, cut into packets.

use std::time::{Duration, Instant};

use inet_rdma_assembly::{Arrived, Assembly, LandingBuffer, ReadLimit, Received};
use inet_rdma_fabric::{Safeguard, WindowState};
use inet_rdma_stream::Mode;
use parking_lot::MutexGuard;

use super::Connection;
use super::closed::Closed;
use super::core::{COPIED_AT_ONCE_BYTES, Core, Reader, Woken, saturating_u32};
use super::landings::Landed;
use super::notifier::Notifier;

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

/// The recipient of a read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    /// The caller.
    Caller,
    /// The first posted receive.
    Posted,
}

/// What a read has taken.
pub(super) struct Taken<T> {
    /// Bytes out of ring and landing buffers.
    bytes: usize,
    /// The posted receive that is satisfied.
    pub(super) receive: Option<T>,
    /// Whether reader and writer can go on.
    pub(super) woken: Woken,
}

impl<T> Default for Taken<T> {
    #[inline]
    fn default() -> Self {
        Self {
            bytes: 0,
            receive: None,
            woken: Woken::default(),
        }
    }
}

impl<T> Taken<T> {
    /// Bytes that this processor has copied, when the read has added `out`.
    pub(super) fn copied<B>(&self, out: &[Received<B>]) -> usize {
        let landed = out.iter().map(|received| match received {
            Received::Landed(_, range) => range.len(),
            Received::Whole(_) | Received::Batch { .. } => 0,
        });
        self.bytes.saturating_sub(landed.sum())
    }
}

pub(super) type Guard<'a, N> = MutexGuard<'a, Core<<N as Notifier>::Token>>;
pub(super) type Packets<N> = Vec<Received<<N as Notifier>::Buffer>>;

impl<N: Notifier> Connection<N> {
    /// As [`Self::read_now`], for callers that are not as hot as a link's port: one copy of the code for all of them.
    #[inline(never)]
    pub(super) fn read_locked(
        &self,
        reader: &mut Assembly<N::Buffer>,
        limit: ReadLimit,
        whom: For,
        out: &mut Packets<N>,
        taken: &mut Taken<N::Token>,
    ) -> ReadEnd {
        self.read_now(reader, limit, whom, out, taken)
    }

    /// Reads up to `limit`; the packets that are complete are added to `out`. `reader` shows that the lock `receiving`
    /// is held. Inlined, as a call would cost a link's read 2 % of its instructions.
    #[inline(always)]
    pub(super) fn read_now(
        &self,
        reader: &mut Assembly<N::Buffer>,
        limit: ReadLimit,
        whom: For,
        out: &mut Packets<N>,
        taken: &mut Taken<N::Token>,
    ) -> ReadEnd {
        let mut left = limit;
        let had = out.len();
        let kept = match reader.retarget(limit, out) {
            Ok(satisfied) => satisfied,
            Err(error) => {
                let mut core = self.core.lock();
                let closed = self.fail(&mut core, error.into());
                taken.woken = core.take_woken();
                return ReadEnd::Closed(closed);
            }
        };
        let mut core = self.core.lock();
        core.posted.in_use = whom == For::Posted;
        let kept_before = std::mem::replace(&mut core.posted.kept, reader.kept());
        if kept {
            core.end_read(Reader::Away);
            self.count_received(&core, reader, &out[had..]);
            taken.bytes = kept_before - reader.kept();
            taken.receive = core.satisfied(whom);
            return ReadEnd::More;
        }
        self.resume_reader(&mut core);
        self.progress(&mut core);
        let end = loop {
            if core.reading_stopped {
                break ReadEnd::Closed(Closed::Here);
            }
            if left.bytes == 0 || left.packets == 0 {
                break ReadEnd::More;
            }
            let had = out.len();
            let (guard, some) = self.read_some(core, reader, left, out);
            core = guard;
            let packets = self.count_received(&core, reader, &out[had..]);
            match some {
                Ok(Some(bytes)) => left.bytes = left.bytes.saturating_sub(bytes),
                Ok(None) => break self.nothing_more(&core),
                Err(closed) => break ReadEnd::Closed(self.fail(&mut core, closed)),
            }
            core.posted.kept = reader.kept();
            if packets > 0 {
                taken.receive = core.satisfied(whom);
            }
            left.packets = left.packets.saturating_sub(packets);
            if limit.exact > 0 && packets > 0 {
                break ReadEnd::More;
            }
            core.policy.note_packets(reader.take_largest());
            // Before progress acknowledges what was freed: a writer that waits for room then finds the landing buffers
            // first, and goes on directly.
            self.advertise(&mut core);
            self.progress(&mut core);
        };
        self.advertise(&mut core);
        // A self-polling reader that has found the end polls no more. `rest` then arms, as a writer may still wait for
        // an event.
        core.end_read(match end {
            ReadEnd::Closed(_) => Reader::AtEnd,
            ReadEnd::More | ReadEnd::Empty => Reader::Away,
        });
        self.flush_controls(&mut core);
        self.arm_or_kick(&mut core);
        taken.bytes = limit.bytes - left.bytes;
        taken.woken = core.take_woken();
        end
    }

    /// Counts what was read; how many packets it was.
    #[inline]
    fn count_received(
        &self,
        core: &Core<N::Token>,
        reader: &Assembly<N::Buffer>,
        received: &[Received<N::Buffer>],
    ) -> usize {
        let header_bytes = reader.framing().header_bytes();
        let mut packets = 0;
        for received in received {
            let sizes = received.sizes(header_bytes);
            self.tally.sizes_received.add(core, sizes);
            if let Received::Landed(..) = received {
                self.tally.zero_copy_packets.add(core, 1);
            }
            packets += sizes.packets;
        }
        self.tally.packets_received.add(core, packets);
        packets
    }

    /// Takes one landing buffer or what is in the ring, with `core` free while it copies. None: there was nothing.
    #[inline(always)]
    fn read_some<'a>(
        &'a self,
        mut core: Guard<'a, N>,
        reader: &mut Assembly<N::Buffer>,
        limit: ReadLimit,
        out: &mut Packets<N>,
    ) -> (Guard<'a, N>, Result<Option<usize>, Closed>) {
        if !core.has_landed() {
            return match core.landings.next() {
                None => self.read_ring(core, reader, limit, out),
                Some(_) => (core, Ok(None)),
            };
        }
        match core.landings.take() {
            Some(Landed::Whole(buffer, range)) => {
                let bulk = self.bulk_bytes(&core, limit, &buffer);
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
        core: &mut Core<N::Token>,
        reader: &mut Assembly<N::Buffer>,
        (index, range): (usize, std::ops::Range<usize>),
        limit: ReadLimit,
        out: &mut Packets<N>,
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

    #[inline(always)]
    fn read_ring<'a>(
        &'a self,
        core: Guard<'a, N>,
        reader: &mut Assembly<N::Buffer>,
        limit: ReadLimit,
        out: &mut Packets<N>,
    ) -> (Guard<'a, N>, Result<Option<usize>, Closed>) {
        if let Some(records) = &self.records {
            return self.read_record(records, core, reader, limit, out);
        }
        let Some(arrived) = self.ring_arrived(&core, limit.bytes) else {
            return (core, Ok(None));
        };
        let (mut core, pushed) = self.copying(core, arrived.len(), || reader.push(&arrived, limit, out));
        let taken = pushed.map_err(Closed::from).map(|bytes| {
            self.free_ring(&mut core, bytes);
            Some(bytes)
        });
        (core, taken)
    }

    /// Copies up to `bytes` with `copy`, with `core` free if they are many.
    #[inline(always)]
    pub(super) fn copying<'a, R>(
        &'a self,
        core: Guard<'a, N>,
        bytes: usize,
        copy: impl FnOnce() -> R,
    ) -> (Guard<'a, N>, R) {
        if bytes <= COPIED_AT_ONCE_BYTES {
            return (core, copy());
        }
        drop(core);
        let copied = copy();
        (self.core.lock(), copied)
    }

    /// The oldest `bytes` of the ring, or of the ring before it, are read. The one before goes with its last byte.
    #[inline(always)]
    pub(super) fn free_ring(&self, core: &mut Core<N::Token>, bytes: usize) {
        let reads_old = core.stream.reads_old_ring();
        core.stream.handle_copied(saturating_u32(bytes));
        if reads_old {
            self.release_ring(core);
        }
    }

    /// Minimum size for zero-copy delivery of a landing buffer, in bytes; a posted receive of a known length takes any size.
    /// In mode `direct_only` the last free buffer is copied out: nothing arrives without a buffer, and the user may hold
    /// all others until more has arrived.
    fn bulk_bytes(&self, core: &Core<N::Token>, limit: ReadLimit, buffer: &LandingBuffer) -> usize {
        let is_last = || core.stream.receives_posted() == 0 && core.landing.used() == core.landing.count();
        let is_safe = match self.safeguard {
            Safeguard::Trust => true,
            Safeguard::Windows => buffer.window_state() == WindowState::Closed,
            Safeguard::None => false,
        };
        if !is_safe || self.settings.mode == Mode::DirectOnly && is_last() {
            return usize::MAX;
        }
        match core.posted.in_use && limit.exact > 0 {
            true => 1,
            false => self.settings.direct_bytes,
        }
    }

    /// A read begins. A self-polling reader that reads again before it was woken needs neither wake nor event: disarms.
    /// In any other case a reader that waits is another one than the caller, and goes on waiting.
    fn resume_reader(&self, core: &mut Core<N::Token>) {
        if core.self_polling && core.reader_waits() {
            self.qp.disarm();
            core.reader = Reader::Reads;
            return;
        }
        core.reader = if core.reader_waits() {
            Reader::Waits
        } else {
            Reader::Reads
        };
    }

    fn nothing_more(&self, core: &Core<N::Token>) -> ReadEnd {
        match core.closed() {
            Some(closed) => ReadEnd::Closed(closed.clone()),
            None if core.stream.is_end() && !core.awaits_landed() => ReadEnd::Closed(Closed::ByPeer),
            None => ReadEnd::Empty,
        }
    }

    /// What is in the ring, up to `max` bytes.
    #[inline(always)]
    pub(super) fn ring_arrived(&self, core: &Core<N::Token>, max: usize) -> Option<Arrived> {
        let [first, second] = core.stream.ring_readable();
        let all = (first.bytes as usize + second.bytes as usize).min(max);
        if all == 0 {
            return None;
        }
        let base = core.ring.memory(core.stream.reads_old_ring()).base().cast_const();
        let first_bytes = (first.bytes as usize).min(all);
        // SAFETY: the stream gives runs inside the ring that is read next, at the start of its memory, which stays mapped as
        // long as it has unread bytes: these are unread until the value, which does not leave `read`, is gone. The peer does not overwrite these bytes before they are
        // acknowledged unless it breaks the protocol; the copy stands that, too.
        Some(unsafe {
            Arrived::new([
                (base.add(first.offset as usize), first_bytes),
                (base, all - first_bytes),
            ])
        })
    }

    /// The reader is woken when there is something to read. False: there may be already.
    pub(super) fn arm_locked(&self, core: &mut Core<N::Token>) -> bool {
        if core.reader == Reader::Called {
            // The cause of the call is not in `core`: the reader must read to find it.
            core.reader = Reader::Reads;
            return false;
        }
        let others = core.woken.reader;
        core.reader = Reader::Waits;
        if self.arm_if_unpolled(core) && !self.is_readable(core) {
            return true;
        }
        core.wake_reader();
        core.woken.reader = others;
        false
    }

    /// Polls until there is something to read, for `duration` at most; whether there is.
    pub(super) fn spin_for(&self, duration: Duration) -> (bool, Woken) {
        let start = Instant::now();
        let mut woken = Woken::default();
        loop {
            for _ in 0..LOOKS_PER_YIELD {
                let mut core = self.core.lock();
                self.progress(&mut core);
                woken.merge(core.take_woken());
                if self.is_readable(&core) {
                    return (true, woken);
                }
                drop(core);
                if (0..QUIET_LOOKS).all(|_| self.qp.is_quiet()) {
                    break;
                }
                // Something came, or this fabric cannot tell.
                std::hint::spin_loop();
            }
            if start.elapsed() >= duration {
                return (false, woken);
            }
            std::thread::yield_now();
        }
    }
}

/// Looks between two offers of the processor to other threads.
const LOOKS_PER_YIELD: u32 = 8;

/// Looks without the lock, where the fabric allows them, before such an offer: about as long as those with it.
const QUIET_LOOKS: u32 = 256;

impl<T> Core<T> {
    /// A read has ended; another reader may wait.
    #[inline]
    fn end_read(&mut self, now: Reader) {
        if !self.reader_waits() {
            self.reader = now;
        }
    }

    /// Takes the posted receive that the read has satisfied.
    #[inline]
    fn satisfied(&mut self, whom: For) -> Option<T> {
        match whom {
            For::Caller => None,
            For::Posted => self.posted.pop(),
        }
    }
}
