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

/// Who looks at the receive queue. While nobody does, it is armed: an event tells.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PolledBy {
    /// A polling thread.
    pub(super) thread: bool,
    /// The reader, which promised to read until [`Connection::arm`].
    pub(super) reader: bool,
}

impl PolledBy {
    pub(super) fn nobody(self) -> bool {
        !self.thread && !self.reader
    }
}

pub(super) struct Core {
    pub(super) stream: Stream,
    /// The landing buffers that the peer has or had.
    pub(super) landings: Landings,
    /// The receives that are posted.
    pub(super) posted: Posted,
    /// When to advertise landing buffers, and how many.
    pub(super) policy: AdvertPolicy,
    pub(super) reader_waits: bool,
    /// The last read has ended, and the reader did not ask to be woken since.
    pub(super) reader_away: bool,
    /// The reader is to be woken whatever there is.
    pub(super) reader_called: bool,
    pub(super) writer_waits: bool,
    /// The writer is to be woken whatever there is.
    pub(super) writer_called: bool,
    /// What the writer has to write is bulk.
    pub(super) writer_wants_advert: bool,
    /// The writer waits for room in the fabric, not for the peer.
    pub(super) fabric_full: bool,
    pub(super) self_polling: bool,
    pub(super) polled_by: PolledBy,
    /// A writer copies with `core` free: nobody else may write.
    pub(super) writing: bool,
    /// This side's stream has ended: nothing more is written.
    pub(super) finished: bool,
    /// The peer said where its stream ends.
    pub(super) peer_finished: bool,
    /// The user wants to read no more.
    pub(super) reading_stopped: bool,
    pub(super) closed: Option<Closed>,
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
            reader_waits: false,
            reader_away: true,
            reader_called: false,
            writer_waits: false,
            writer_called: false,
            writer_wants_advert: false,
            fabric_full: false,
            self_polling: false,
            polled_by: PolledBy {
                thread: settings.busy,
                ..PolledBy::default()
            },
            writing: false,
            finished: false,
            peer_finished: false,
            reading_stopped: false,
            closed: None,
            arrivals: 0,
        }
    }
}

impl Core {
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
        core.reading_stopped
            || core.reader_called
            || core.has_landed()
            || core.stream.ring_bytes_readable() > 0
            || core.stream.is_end()
            || core.closed.is_some()
    }

    /// Handles what the receive queue holds, gives back credit, and says whom to tell.
    pub(super) fn progress(&self, core: &mut Core) -> Wakes {
        let mut wakes = Wakes::default();
        if core.closed.is_none() {
            self.tally.polls.add(core, 1);
            if !self.qp.is_quiet()
                && let Err(closed) = self.take_completions(core, &mut wakes)
            {
                self.fail_locked(core, closed, &mut wakes);
            }
            self.flush_controls(core, &mut wakes);
        }
        if core.writer_waits && core.fabric_full && self.qp.write_room() > 0 {
            core.writer_waits = false;
            wakes.writer = true;
        }
        wakes.writer |= std::mem::take(&mut core.writer_called);
        if core.reader_waits && self.is_readable(core) {
            core.reader_waits = false;
            core.polled_by.reader = core.self_polling;
            wakes.reader = true;
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
                core.peer_finished = true;
                if core.stream.is_end() {
                    core.withdraw();
                }
            }
        }
        // Each of them may have brought the credit that the writer waits for, and no other message need follow.
        wakes.writer |= std::mem::take(&mut core.writer_waits);
        Ok(())
    }

    /// Posts the control messages that credits allow.
    pub(super) fn flush_controls(&self, core: &mut Core, wakes: &mut Wakes) {
        if core.writer_waits && core.reader_away {
            // Who writes now and reads later may be what the peer is, too: its writer must not wait for this reader.
            core.stream.pass();
        }
        while core.closed.is_none()
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
            is_over: core.closed.is_some() || core.peer_finished,
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
        while core.polled_by.nobody() && core.closed.is_none() {
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
        if core.closed.is_none() {
            if closed == Closed::PeerGone {
                // Who found nobody to write to has not looked at what the peer said last. Over iWARP the queue pair itself
                // ends when the peer hangs up, which had said all it had to say.
                let _gone_either_way = self.take_completions(core, wakes);
                if core.peer_finished {
                    closed = Closed::ByPeer;
                }
            }
            self.qp.disconnect();
        }
        wakes.reader |= std::mem::take(&mut core.reader_waits);
        wakes.writer |= std::mem::take(&mut core.writer_waits);
        core.closed.get_or_insert(closed).clone()
    }
}

pub(super) fn saturating_u32(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
