//! A read: bytes of landing buffers and of the ring, cut into packets.

use std::sync::Arc;

use inet_rdma_assembly::{Arrived, Assembly, AssemblyError, Buffer, Framing, LandingBuffer, ReadLimit, Received};
use inet_rdma_fabric::{Safeguard, WindowState};
use inet_rdma_stream::Mode;

use super::read_end::{Outcome, ReadEnd, nothing_more};
use super::ring_reading::{Guard, Incoming, PlainRing, ReadRing};
use crate::connection::closed::Ended;
use crate::connection::landing::Landed;
use crate::connection::notifier::{Caller, Woken};
use crate::connection::state::{Connection, Core, PolledBy, Records};

/// The party for which a read gets packets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum For {
    /// The caller of the read.
    Caller,
    /// The first expected read ([`Connection::expect_read`]).
    Expected,
}

/// Whether this read also arms the reader.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Arming {
    /// The caller arms the reader itself, if at all.
    #[default]
    Unwanted,
    /// To be armed if nothing more is found.
    Wanted,
    Done,
}

/// The results of a read.
#[derive(Default)]
pub struct Taken {
    arming: Arming,
    /// Bytes taken from ring and landing buffers.
    bytes: usize,
    /// True: the first expected read is complete.
    pub is_satisfied: bool,
    /// The parties that can go on. The caller must notify them.
    pub woken: Woken,
}

impl Taken {
    /// Bytes that this processor has copied in a read that has added `out`.
    pub fn copied<B>(&self, out: &[Received<B>]) -> usize {
        let landed = out.iter().map(|received| match received {
            Received::Landed(_, range) => range.len(),
            Received::Whole(_) | Received::Batch { .. } => 0,
        });
        self.bytes.saturating_sub(landed.sum())
    }
}

/// The reading direction of a connection.
pub struct ReadHalf<B> {
    connection: Arc<Connection>,
    incoming: Incoming<B>,
}

impl<B: Buffer> ReadHalf<B> {
    pub(crate) fn new(connection: Arc<Connection>, framing: Framing) -> Self {
        let assembly = Assembly::new(framing, connection.settings.packet_max_bytes);
        Self {
            connection,
            incoming: Incoming { assembly, rest: None },
        }
    }

    /// Reads up to `limit`, and adds complete packets to `out`.
    #[inline]
    pub fn read(&mut self, limit: ReadLimit, out: &mut Vec<Received<B>>) -> ReadEnd {
        self.read_arming(limit, out, Arming::Unwanted).0
    }

    /// As [`Self::read`] and [`Connection::arm_reader`], under one lock. True: the read ended with
    /// [`ReadEnd::Empty`], and the reader is armed.
    #[inline]
    pub fn read_and_arm(&mut self, limit: ReadLimit, out: &mut Vec<Received<B>>) -> (ReadEnd, bool) {
        self.read_arming(limit, out, Arming::Wanted)
    }

    #[inline]
    fn read_arming(&mut self, limit: ReadLimit, out: &mut Vec<Received<B>>, arming: Arming) -> (ReadEnd, bool) {
        let mut taken = Taken {
            arming,
            ..Taken::default()
        };
        let Self { connection, incoming } = self;
        let end = match &connection.records {
            None => connection.read_now(&mut PlainRing, incoming, limit, For::Caller, out, &mut taken),
            Some(records) => connection.read_sealed(records, incoming, limit, For::Caller, out, &mut taken),
        };
        connection.tell(taken.woken, Caller::User);
        (connection.read_end(end), taken.arming == Arming::Done)
    }

    /// As [`Self::read`], for a caller that notifies the user itself. Not inlined: only a link's port is so hot that it
    /// needs a copy of the code.
    #[inline(never)]
    pub fn read_without_notify(
        &mut self,
        limit: ReadLimit,
        whom: For,
        out: &mut Vec<Received<B>>,
        taken: &mut Taken,
    ) -> ReadEnd {
        let Self { connection, incoming } = self;
        let end = match &connection.records {
            None => connection.read_now(&mut PlainRing, incoming, limit, whom, out, taken),
            Some(records) => connection.read_sealed(records, incoming, limit, whom, out, taken),
        };
        connection.read_end(end)
    }

    /// Changes the framing of the bytes to come, and the maximum size of a packet. Returns false and changes nothing in
    /// the middle of a packet, or of a raw read of a known size.
    #[must_use]
    pub fn reframe(&mut self, framing: Framing, packet_max_bytes: usize) -> bool {
        let reframed = self.incoming.assembly.reframe(framing, packet_max_bytes);
        // The begun part of a line is kept for raw reads.
        let kept = self.incoming.assembly.kept();
        self.connection.core.lock().landing.expected.note_kept(kept);
        reframed
    }

    /// The framing of the stream.
    pub fn framing(&self) -> Framing {
        self.incoming.assembly.framing()
    }
}

impl Connection {
    #[inline(never)]
    fn read_sealed<B: Buffer>(
        &self,
        records: &Records,
        incoming: &mut Incoming<B>,
        limit: ReadLimit,
        whom: For,
        out: &mut Vec<Received<B>>,
        taken: &mut Taken,
    ) -> Outcome {
        // This lock comes before `core`, and is held for the whole read.
        let mut opener = records.opener.lock();
        self.read_now(&mut *opener, incoming, limit, whom, out, taken)
    }

    /// Reads up to `limit`, and adds complete packets to `out`. Inlined, as a call would cost a link's read 2 % of its
    /// instructions.
    #[inline(always)]
    fn read_now<B: Buffer>(
        &self,
        ring: &mut impl ReadRing,
        incoming: &mut Incoming<B>,
        limit: ReadLimit,
        whom: For,
        out: &mut Vec<Received<B>>,
        taken: &mut Taken,
    ) -> Outcome {
        let mut left = limit;
        let had = out.len();
        let kept_bytes = match incoming.assembly.retarget(limit, out) {
            Ok(bytes) => bytes,
            Err(error) => {
                let mut core = self.core.lock();
                self.fail(&mut core, error.into());
                taken.woken = core.take_woken();
                return Outcome::Ended;
            }
        };
        let mut core = self.core.lock();
        core.landing.expected.in_use = whom == For::Expected;
        if let Some(bytes) = kept_bytes {
            core.landing.expected.note_kept(incoming.assembly.kept());
            core.reader.end_read(false);
            self.count_received(&core, incoming.assembly.framing(), &out[had..]);
            taken.bytes = bytes;
            taken.is_satisfied = core.satisfied(whom);
            return Outcome::More;
        }
        self.resume_reader(&mut core);
        // Control messages of this look are sent with those of the end of the read.
        self.look(&mut core);
        let end = loop {
            if core.reader.is_stopped {
                break Outcome::Stopped;
            }
            if left.bytes == 0 || left.packets == 0 {
                break Outcome::More;
            }
            let had = out.len();
            let (guard, some) = self.read_some(core, ring, incoming, left, out);
            core = guard;
            core.landing.expected.note_kept(incoming.assembly.kept());
            let packets = self.count_received(&core, incoming.assembly.framing(), &out[had..]);
            match some {
                Ok(Some(bytes)) => left.bytes = left.bytes.saturating_sub(bytes),
                Ok(None) => break nothing_more(&core),
                Err(Ended) => break Outcome::Ended,
            }
            if packets > 0 {
                taken.is_satisfied = core.satisfied(whom);
            }
            left.packets = left.packets.saturating_sub(packets);
            if limit.exact > 0 && packets > 0 {
                break Outcome::More;
            }
            core.landing.policy.note_packets(incoming.assembly.take_largest());
            if self.is_read_up(&core) {
                break nothing_more(&core);
            }
            // Advertise before progress acknowledges the freed bytes: a writer that waits for room gets the landing
            // buffers first, and continues with direct transfers.
            self.advertise(&mut core);
            self.progress(&mut core);
        };
        self.advertise(&mut core);
        // A self-polling reader that has found the end no longer polls. `arm_queue_or_kick` then arms, as a writer may
        // still wait for an event.
        core.reader.end_read(end.is_end());
        self.flush_controls(&mut core);
        match taken.arming {
            Arming::Wanted if end == Outcome::Empty && core.is_up() => {
                if self.arm_reader_locked(&mut core) {
                    taken.arming = Arming::Done;
                }
            }
            _ => self.arm_queue_or_kick(&mut core),
        }
        taken.bytes = limit.bytes - left.bytes;
        taken.woken = core.take_woken();
        match end {
            // The post of control messages has found the end, before which more may have arrived.
            Outcome::Empty if !core.is_up() => Outcome::More,
            end => end,
        }
    }

    /// Counts the packets of a read. Returns their number.
    #[inline]
    fn count_received<B: Buffer>(&self, core: &Core, framing: Framing, received: &[Received<B>]) -> usize {
        let header_bytes = framing.header_bytes();
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

    /// Takes one landing buffer or bytes of the ring, with `core` unlocked while it copies. None: there was nothing.
    #[inline(always)]
    fn read_some<'a, B: Buffer>(
        &'a self,
        core: Guard<'a>,
        ring: &mut impl ReadRing,
        incoming: &mut Incoming<B>,
        limit: ReadLimit,
        out: &mut Vec<Received<B>>,
    ) -> (Guard<'a>, Result<Option<usize>, Ended>) {
        if core.landing.landings.is_empty() {
            return ring.read(self, core, incoming, limit, out);
        }
        self.read_landed(core, incoming, limit, out)
    }

    /// Takes the next landed bytes, if they may be taken.
    #[inline(never)]
    fn read_landed<'a, B: Buffer>(
        &'a self,
        mut core: Guard<'a>,
        incoming: &mut Incoming<B>,
        limit: ReadLimit,
        out: &mut Vec<Received<B>>,
    ) -> (Guard<'a>, Result<Option<usize>, Ended>) {
        if !core.has_landed() {
            return (core, Ok(None));
        }
        match core.landing.landings.take() {
            Some(Landed::Whole(buffer, range)) => {
                let zero_copy_min = self.zero_copy_bytes_min(&core, limit, &buffer);
                let bytes = range.len();
                let push = || incoming.assembly.push_landed(buffer, range, zero_copy_min, limit, out);
                let (mut core, pushed) = self.copying_unlocked(core, push);
                let pushed = pushed.map_err(|error| self.end(&mut core, error.into()));
                let taken = pushed.map(|rest| {
                    let left = rest.as_ref().map_or(0, |(_, range)| range.len());
                    let rest = rest.map(|(buffer, range)| Landed::Whole(buffer, range));
                    core.landing.landings.took(bytes - left, rest);
                    Some(bytes - left)
                });
                (core, taken)
            }
            Some(Landed::Part(index, range)) => {
                let taken = self.read_part(&mut core, &mut incoming.assembly, (index, range), limit, out);
                let taken = taken.map_err(|error| self.end(&mut core, error.into()));
                (core, taken)
            }
            None => (core, Ok(None)),
        }
    }

    /// Copies out of a buffer to which the peer may still add. Holds `core`, so that the buffer stays advertised.
    #[cold]
    fn read_part<B: Buffer>(
        &self,
        core: &mut Core,
        assembly: &mut Assembly<B>,
        (index, range): (usize, std::ops::Range<usize>),
        limit: ReadLimit,
        out: &mut Vec<Received<B>>,
    ) -> Result<Option<usize>, AssemblyError> {
        let Some(start) = core.landing.landings.part(index, &range) else {
            return Ok(None);
        };
        // SAFETY: `start` is where the bytes `range` of a landing buffer lie, which `core` keeps as long as it is
        // locked, and the value does not leave this function. The peer may write to them; the copy stands that.
        let arrived = unsafe { Arrived::new([(start, range.len()), (std::ptr::null(), 0)]) };
        let taken = assembly.push(&arrived, limit, out)?;
        let left = range.start + taken..range.end;
        let rest = (!left.is_empty()).then_some(Landed::Part(index, left));
        core.landing.landings.took(taken, rest);
        Ok(Some(taken))
    }

    /// Minimum size for zero-copy delivery of a landing buffer, in bytes; an expected read of a known size takes any
    /// size. In mode `direct_only` the last free buffer is copied out: nothing arrives without a buffer, and the user
    /// may hold all others until more has arrived.
    #[inline]
    fn zero_copy_bytes_min(&self, core: &Core, limit: ReadLimit, buffer: &LandingBuffer) -> usize {
        let is_last =
            || core.stream.outstanding_receives() == 0 && core.landing.memory.used() == core.landing.memory.count();
        let is_safe = match self.safeguard {
            Safeguard::Trust => true,
            Safeguard::Windows => buffer.window_state() == WindowState::Closed,
            Safeguard::None => false,
        };
        if !is_safe || self.settings.mode == Mode::DirectOnly && is_last() {
            return usize::MAX;
        }
        if core.landing.expected.in_use && limit.exact > 0 {
            1
        } else {
            self.settings.direct_bytes
        }
    }

    /// Notes the begin of a read. If a self-polling reader reads again before it was woken, it needs neither wake nor
    /// event: disarms. In any other case a waiting reader is not the caller, and continues to wait.
    #[inline]
    fn resume_reader(&self, core: &mut Core) {
        if core.polled_by == PolledBy::Reader && core.reader.wake() {
            self.qp.disarm();
        }
        core.reader.begin_read();
    }

    /// True only if all arrived bytes are read, so that another look would find nothing. May be false spuriously.
    #[inline]
    fn is_read_up(&self, core: &Core) -> bool {
        core.stream.ring_bytes_readable() == 0
            && core.landing.landings.is_empty()
            && !core.holds_record()
            && self.qp.is_quiet()
    }
}

impl Core {
    /// Notes a complete packet. True: it completes an expected read.
    #[inline]
    fn satisfied(&mut self, whom: For) -> bool {
        match whom {
            For::Caller => false,
            For::Expected => {
                self.landing.expected.pop();
                true
            }
        }
    }
}
