//! The bookkeeping of a connection, behind its lock: what came in, what must go out, who waits.

use inet_rdma_stream::{Arrival, ControlEvent, Notice, Receive, ReceiveId, Stream};

use super::advert_policy::{AdvertPolicy, Advice, Situation};
use super::landings::Landings;
use super::posting::Posted;
use super::{Closed, Connection, Settings, Wakes};
use crate::assembly::Buffer;
use crate::fabric::Completion;
use crate::landing::LandingPool;
use crate::primitive::prefetch;

/// What the reader is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    /// Its last read has ended, and it has not asked to be woken.
    Away,
    /// It reads, or has been woken and is about to.
    Reads,
    /// It is woken when there is something to read, or the end.
    Waits,
    /// It is woken at the next look, whatever there is.
    Called,
    /// Its last read found the end.
    AtEnd,
    /// The user wants to read no more: each read finds the end.
    Stopped,
}

/// What the writer is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Writer {
    /// It writes, or has not asked to be woken.
    Writes,
    /// It is woken when the peer has made room, or at the end.
    WaitsForPeer,
    /// It is woken when the fabric has room, too.
    WaitsForFabric,
    /// It is woken at the next look, whether there is room or not.
    Called,
    /// This side's stream has ended: nothing more is written.
    Finished,
}

/// How far the connection is from its end.
#[derive(Debug)]
pub(super) enum End {
    /// Both sides may go on.
    Open,
    /// The peer has said where its stream ends.
    PeerFinished,
    /// The connection is over.
    Closed(Closed),
}

pub(super) struct Core {
    pub(super) stream: Stream,
    /// The landing buffers that the peer has or had.
    pub(super) landings: Landings,
    /// The receives that are posted.
    pub(super) posted: Posted,
    /// When to advertise landing buffers, and how many.
    pub(super) policy: AdvertPolicy,
    pub(super) reader: Reader,
    pub(super) writer: Writer,
    pub(super) end: End,
    /// What the writer wrote last is bulk: it waits for an advertisement if one is to come.
    pub(super) wants_advert: bool,
    /// The reader looks by itself between a wake and the next [`Connection::arm`].
    pub(super) self_polling: bool,
    /// A polling thread looks.
    pub(super) thread_polls: bool,
    /// A writer copies with `core` free: nobody else may write.
    pub(super) writing: bool,
    /// Completions taken so far.
    pub(super) arrivals: u64,
}

/// Completions taken from the queue at a time.
const POLL_BATCH: usize = 8;

/// Completions handled under one lock at most: keeps a flooding peer from holding the reader.
const PROGRESS_MAX: usize = 512;

/// So few bytes are copied with `core` locked: to give it back and take it again would take longer.
pub(super) const COPIED_AT_ONCE_BYTES: usize = 2048;

/// The largest transfer that is prefetched: as many lines as a core loads at a time, about.
const PREFETCHED_BYTES: usize = 16 * LINE_BYTES;
const LINE_BYTES: usize = 64;

impl Core {
    pub(super) fn new(stream: Stream, policy: AdvertPolicy, landing: &LandingPool, settings: &Settings) -> Self {
        Self {
            stream,
            landings: Landings::new(landing.count(), landing.buffer_bytes()),
            posted: Posted::default(),
            policy,
            reader: Reader::Away,
            writer: Writer::Writes,
            end: End::Open,
            wants_advert: false,
            self_polling: false,
            thread_polls: settings.busy,
            writing: false,
            arrivals: 0,
        }
    }
}

impl Core {
    /// Why the connection is over; None: it is not.
    #[inline]
    pub(super) fn closed(&self) -> Option<&Closed> {
        match &self.end {
            End::Closed(closed) => Some(closed),
            End::Open | End::PeerFinished => None,
        }
    }

    #[inline]
    pub(super) fn is_up(&self) -> bool {
        self.closed().is_none()
    }

    /// The reader looks at the receive queue again and again, without an event.
    #[inline]
    pub(super) fn reader_polls(&self) -> bool {
        self.self_polling && matches!(self.reader, Reader::Away | Reader::Reads)
    }

    /// Nobody reads before the user asks for it.
    #[inline]
    fn reader_is_away(&self) -> bool {
        matches!(self.reader, Reader::Away | Reader::AtEnd | Reader::Stopped)
    }

    /// The reader may go on. True: it must be told, as it waits.
    #[inline]
    pub(super) fn wake_reader(&mut self) -> bool {
        let waits = matches!(self.reader, Reader::Waits | Reader::Called);
        if waits {
            self.reader = Reader::Reads;
        }
        waits
    }

    #[inline]
    fn writer_waits(&self) -> bool {
        matches!(self.writer, Writer::WaitsForPeer | Writer::WaitsForFabric)
    }

    /// The writer may go on. True: it must be told, as it waits.
    #[inline]
    pub(super) fn wake_writer(&mut self) -> bool {
        let waits = self.writer_waits() || self.writer == Writer::Called;
        if waits {
            self.writer = Writer::Writes;
        }
        waits
    }

    /// Takes back all that was advertised and can never be filled any more.
    fn withdraw(&mut self) {
        while let Some(ReceiveId(index)) = self.stream.withdraw() {
            self.landings.withdraw(index as usize);
        }
    }

    /// Something has landed that the reader takes.
    #[inline]
    pub(super) fn has_landed(&self) -> bool {
        match self.landings.next() {
            Some((bytes, is_part)) => !(is_part && self.waits_for_rest(bytes)),
            None => false,
        }
    }
}

impl<B: Buffer> Connection<B> {
    pub(super) fn is_readable(&self, core: &Core) -> bool {
        matches!(core.reader, Reader::Stopped | Reader::Called)
            || core.has_landed()
            || core.stream.ring_bytes_readable() > 0
            || core.stream.is_end()
            || !core.is_up()
    }

    /// Handles what the receive queue holds, gives back credit, and says whom to tell.
    pub(super) fn progress(&self, core: &mut Core) -> Wakes {
        let mut wakes = Wakes::default();
        if core.is_up() {
            self.tally.polls.add(core, 1);
            if !self.qp.is_quiet()
                && let Err(closed) = self.take_completions(core, &mut wakes)
            {
                self.fail_locked(core, closed, &mut wakes);
            }
            self.flush_controls(core, &mut wakes);
        }
        wakes.writer |= match core.writer {
            Writer::WaitsForFabric if self.qp.write_room() > 0 => core.wake_writer(),
            Writer::Called => core.wake_writer(),
            _ => false,
        };
        if matches!(core.reader, Reader::Waits | Reader::Called) && self.is_readable(core) {
            wakes.reader = core.wake_reader();
        }
        wakes
    }

    /// A few bytes that have come alone are here by the time that they are copied. Where more come than are read the lines
    /// are better left to the peer that writes them.
    #[inline]
    fn prefetch(&self, core: &Core, notice: Notice) {
        let bytes = notice.bytes as usize;
        if notice.direct || bytes > PREFETCHED_BYTES || core.stream.ring_bytes_readable() > 0 {
            return;
        }
        let offset = core.stream.ring_writable().offset as usize;
        let first = self.qp.memory().base().cast_const().wrapping_add(offset);
        for at in (0..bytes).step_by(LINE_BYTES) {
            prefetch(first.wrapping_add(at));
        }
    }

    pub(super) fn take_completions(&self, core: &mut Core, wakes: &mut Wakes) -> Result<(), Closed> {
        for _ in 0..PROGRESS_MAX / POLL_BATCH {
            let nothing = Notice {
                direct: false,
                bytes: 0,
            };
            let mut batch = [Completion::Notice(nothing); POLL_BATCH];
            let taken = self.qp.poll(&mut batch)?;
            core.arrivals += taken as u64;
            for completion in &batch[..taken] {
                match completion {
                    Completion::Notice(notice) => self.handle_notice(core, *notice)?,
                    Completion::Control(message) => self.handle_control(core, message, wakes)?,
                }
            }
            if taken < POLL_BATCH {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn handle_notice(&self, core: &mut Core, notice: Notice) -> Result<(), Closed> {
        self.prefetch(core, notice);
        match core
            .stream
            .handle_notice(notice)
            .map_err(|error| Closed::PeerMisbehaved(error.into()))?
        {
            // The peer went on through the ring: what was advertised before can never be filled.
            Arrival::Ring { .. } => core.withdraw(),
            Arrival::Direct {
                id: ReceiveId(index),
                offset,
                bytes,
                done,
            } => {
                core.landings
                    .arrive(index as usize, offset as usize, bytes as usize, done);
                if core.stream.is_end() {
                    core.withdraw();
                }
            }
        }
        Ok(())
    }

    pub(super) fn handle_control(&self, core: &mut Core, message: &[u8], wakes: &mut Wakes) -> Result<(), Closed> {
        match core
            .stream
            .handle_control(message)
            .map_err(|error| Closed::PeerMisbehaved(error.into()))?
        {
            ControlEvent::Nothing => return Ok(()),
            ControlEvent::Writable => {}
            ControlEvent::Ticked => {
                self.tally.packets_received.add(core, 1);
            }
            ControlEvent::Finished => {
                core.end = End::PeerFinished;
                if core.stream.is_end() {
                    core.withdraw();
                }
            }
        }
        // Each of them may have brought the credit that the writer waits for, and no other message need follow.
        wakes.writer |= core.wake_writer();
        Ok(())
    }

    /// Posts the control messages that credits allow.
    pub(super) fn flush_controls(&self, core: &mut Core, wakes: &mut Wakes) {
        if core.writer_waits() && core.reader_is_away() {
            // Who writes now and reads later may be what the peer is, too: its writer must not wait for this reader.
            core.stream.pass();
        }
        while core.is_up()
            && core.stream.has_control()
            && let Some(control) = core.stream.poll_control()
        {
            if let Err(error) = self.qp.post_control(&control.emit()) {
                self.fail_locked(core, error.into(), wakes);
            }
        }
    }

    /// Offers the peer the landing buffers that the policy says.
    pub(super) fn advertise(&self, core: &mut Core) {
        let advice = core.policy.advice(Situation {
            // Behind its end the peer writes no more.
            is_over: !matches!(core.end, End::Open),
            ring_holds_bytes: core.stream.ring_bytes_readable() > 0,
            is_posted: core.posted.in_use,
            advertised: core.stream.receives_posted(),
            landed: core.landings.landed(),
            last_bytes: core.landings.last_bytes(),
        });
        match advice {
            Advice::Keep => return,
            Advice::Whole(count) => {
                let bytes = self.landing.buffer_bytes();
                let _none_is_free = (0..count).all(|_| self.advertise_one(core, bytes, false));
            }
            Advice::Posted(count) => self.advertise_posted(core, count),
        }
        if core.landings.next().is_none() {
            core.stream.pass();
        }
    }

    #[inline(never)]
    fn advertise_posted(&self, core: &mut Core, count: usize) {
        let Some(covered) = core.landings.covered() else {
            return;
        };
        let pieces = core.posted.pieces(covered, self.landing.buffer_bytes().max(1));
        let pieces: Vec<usize> = pieces.take(count).collect();
        let _none_is_free = pieces.into_iter().all(|bytes| self.advertise_one(core, bytes, true));
    }

    /// False: no buffer is free.
    #[inline]
    fn advertise_one(&self, core: &mut Core, bytes: usize, fill: bool) -> bool {
        let Some(buffer) = self.landing.take() else {
            return false;
        };
        core.stream.post_receive(Receive {
            id: ReceiveId(buffer.index().into()),
            target: buffer.remote_address(),
            bytes: saturating_u32(bytes),
            fill,
        });
        core.landings.advertise(buffer, bytes, fill);
        true
    }

    /// Nobody polls from here on: ask for an event, and look again until there is surely nothing.
    pub(super) fn rest(&self, core: &mut Core, wakes: &mut Wakes) {
        while !core.thread_polls && !core.reader_polls() && core.is_up() {
            match self.qp.arm() {
                Ok(true) => break,
                Ok(false) => wakes.merge(self.progress(core)),
                Err(error) => {
                    self.fail_locked(core, error.into(), wakes);
                }
            }
        }
    }

    pub(super) fn fail(&self, closed: Closed, wakes: &mut Wakes) -> Closed {
        self.fail_locked(&mut self.core.lock(), closed, wakes)
    }

    /// Ends the connection, once; the reason that holds.
    pub(super) fn fail_locked(&self, core: &mut Core, mut closed: Closed, wakes: &mut Wakes) -> Closed {
        if core.is_up() {
            if closed == Closed::PeerGone {
                // Who found nobody to write to has not looked at what the peer said last. Over iWARP the queue pair itself
                // ends when the peer hangs up, which had said all it had to say.
                let _gone_either_way = self.take_completions(core, wakes);
                if matches!(core.end, End::PeerFinished) {
                    closed = Closed::ByPeer;
                }
            }
            self.qp.disconnect();
        }
        wakes.reader |= core.wake_reader();
        wakes.writer |= core.wake_writer();
        if let Some(earlier) = core.closed() {
            return earlier.clone();
        }
        core.end = End::Closed(closed.clone());
        closed
    }
}

pub(super) fn saturating_u32(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
