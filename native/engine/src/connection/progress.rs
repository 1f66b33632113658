//! A look at the receive queue: takes completions, posts the control messages that are due, arms.

use inet_rdma_fabric::Completion;
use inet_rdma_records::{RING_BYTES_MIN, Violation};
use inet_rdma_stream::{Arrival, CONTROL_BYTES, ControlEvent, Mode, Notice, Receive, ReceiveId};

use super::Connection;
use super::advert_policy::{Advice, Situation};
use super::closed::Closed;
use super::core::{Core, End, Reader, Writer, saturating_u32};
use super::notifier::Notifier;
use crate::prefetch::prefetch;

/// Completions taken from the queue at a time.
const POLL_BATCH: usize = 8;

/// Completions handled under one lock at most: keeps a flooding peer from holding the reader.
const PROGRESS_MAX: usize = 512;

/// Looks for completions between attempts to arm, within one turn. An honest peer runs out of credits and ring before.
const ARMS_MAX: usize = 16;

/// The largest transfer that is prefetched: as many lines as a core loads at a time, about.
const PREFETCHED_BYTES: usize = 16 * LINE_BYTES;
const LINE_BYTES: usize = 64;

impl<N: Notifier> Connection<N> {
    pub(super) fn is_readable(&self, core: &Core<N::Token>) -> bool {
        core.reading_stopped
            || core.reader == Reader::Called
            || core.has_landed()
            || !core.awaits_landed()
                && (core.stream.ring_bytes_readable() > 0 || core.stream.is_end() || core.holds_opened)
            || !core.is_up()
    }

    /// Handles what the receive queue holds, gives back credit, and wakes those that can go on.
    pub(super) fn progress(&self, core: &mut Core<N::Token>) {
        if core.is_up() {
            self.tally.polls.add(core, 1);
            if !self.qp.is_quiet() {
                if let Err(closed) = self.take_completions(core) {
                    self.fail(core, closed);
                }
                if let Some(since) = core.unkept_since {
                    self.have_kept_again(core, since);
                }
            }
            self.flush_controls(core);
        }
        if core.writer == Writer::Called || core.writer == Writer::WaitsForFabric && self.qp.write_room() > 0 {
            core.wake_writer();
        }
        if core.reader_waits() && self.is_readable(core) {
            core.wake_reader();
        }
    }

    /// Prefetches a small transfer that finds the ring empty: its lines arrive by the time that they are copied. With
    /// unread bytes before it the copy comes later, and the lines are better left with the peer, which still writes to
    /// them.
    #[inline]
    fn prefetch(&self, core: &Core<N::Token>, notice: Notice) {
        let bytes = notice.bytes as usize;
        if notice.direct || bytes > PREFETCHED_BYTES || core.stream.ring_bytes_readable() > 0 {
            return;
        }
        let offset = core.stream.ring_writable().offset as usize;
        let first = core.ring.memory(false).base().cast_const().wrapping_add(offset);
        for at in (0..bytes).step_by(LINE_BYTES) {
            prefetch(first.wrapping_add(at));
        }
    }

    pub(super) fn take_completions(&self, core: &mut Core<N::Token>) -> Result<(), Closed> {
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
                    Completion::Control(message) => self.handle_control(core, message)?,
                }
            }
            if taken < POLL_BATCH {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn handle_notice(&self, core: &mut Core<N::Token>, notice: Notice) -> Result<(), Closed> {
        self.prefetch(core, notice);
        match core
            .stream
            .handle_notice(notice)
            .map_err(|error| Closed::PeerMisbehaved(error.into()))?
        {
            // The peer wrote to the ring, or was asked: buffers that were advertised before can never be filled.
            Arrival::Ring { .. } => {
                core.withdraw();
                if core.ring.is_elastic() {
                    self.note_ring_arrival(core);
                }
            }
            Arrival::Mark { ring } => {
                core.withdraw();
                if ring {
                    core.ring.replaced();
                    self.release_ring(core);
                }
            }
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

    pub(super) fn handle_control(
        &self,
        core: &mut Core<N::Token>,
        message: &[u8; CONTROL_BYTES],
    ) -> Result<(), Closed> {
        let opened;
        let message = match &mut core.controls {
            None => message,
            Some(controls) => {
                opened = controls.open(message)?;
                &opened
            }
        };
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
        core.wake_writer();
        Ok(())
    }

    /// Posts the control messages that credits allow.
    pub(super) fn flush_controls(&self, core: &mut Core<N::Token>) {
        if core.writer_waits() && core.reader_is_away() {
            // Both peers may write before they read; answer the peer's wait for an advertisement, so that neither
            // deadlocks.
            core.stream.pass();
        }
        while core.is_up() && core.stream.has_control() {
            let Some(control) = core.stream.poll_control() else {
                break;
            };
            let mut message = control.emit();
            if let Some(controls) = &mut core.controls {
                if let Err(used_up) = controls.seal(&mut message, &self.notifier) {
                    self.fail(core, used_up.into());
                    return;
                }
            }
            if let Err(error) = self.qp.post_control(&message) {
                self.fail(core, error.into());
            }
        }
        if core.stream.owes_mark() {
            self.post_mark(core);
        }
    }

    /// Posts the mark that the peer waits for. Behind a transfer that is about to be posted it comes later: with that
    /// transfer, or where there is no room with the next look.
    #[cold]
    #[inline(never)]
    pub(super) fn post_mark(&self, core: &mut Core<N::Token>) {
        if core.posts_transfer || !core.is_up() || self.qp.write_room() == 0 {
            return;
        }
        let before = core.stream.peer_ring_bytes();
        let Some(mark) = core.stream.poll_mark() else { return };
        let ring_bytes = core.stream.peer_ring_bytes();
        if core.controls.is_some() && ring_bytes < RING_BYTES_MIN {
            self.fail(core, Violation::RecordRing(ring_bytes).into());
            return;
        }
        if let Err(error) = self.qp.post_write(&[], mark.target, mark.notice) {
            self.fail(core, error.into());
        } else if ring_bytes != before {
            self.claim_staging(core);
        }
    }

    /// Offers the peer the landing buffers that the policy says.
    pub(super) fn advertise(&self, core: &mut Core<N::Token>) {
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
                let bytes = core.landing.buffer_bytes();
                let _none_is_free = (0..count).all(|_| self.advertise_one(core, bytes, false));
            }
            Advice::Posted(count) => self.advertise_posted(core, count),
        }
        if core.landings.next().is_none() {
            core.stream.pass();
        }
    }

    #[inline(never)]
    fn advertise_posted(&self, core: &mut Core<N::Token>, count: usize) {
        let Some(covered) = core.landings.covered() else {
            return;
        };
        let pieces = core.posted.pieces(covered, core.landing.buffer_bytes().max(1));
        let pieces: Vec<usize> = pieces.take(count).collect();
        let _none_is_free = pieces.into_iter().all(|bytes| self.advertise_one(core, bytes, true));
    }

    /// False: no buffer is free.
    #[inline]
    fn advertise_one(&self, core: &mut Core<N::Token>, bytes: usize, fill: bool) -> bool {
        let mut buffer = core.landing.take();
        if buffer.is_none() && self.claim_landing(core) {
            buffer = core.landing.take();
        }
        let Some(buffer) = buffer else { return false };
        let target = match buffer.open() {
            Ok(target) => target,
            // Its bytes go through the ring, and are copied there.
            Err(_) if self.settings.mode == Mode::Dynamic => return false,
            Err(error) => {
                self.fail(core, error.into());
                return false;
            }
        };
        if core.landing.wants_sweep() {
            let _later = self.have_kept(core);
        }
        core.stream.post_receive(Receive {
            id: ReceiveId(buffer.index().into()),
            target,
            bytes: saturating_u32(bytes),
            fill,
        });
        core.landings.advertise(buffer, bytes, fill);
        true
    }

    /// Arms the queue pair if no party polls it. Completions that arrive before it is armed raise no event: takes them
    /// in and arms again, until the queue is empty when armed. False: it is not armed, as the peer sends faster than this
    /// side takes in. The caller must look again, or have the polling thread do it.
    #[inline]
    #[must_use]
    pub(super) fn arm_if_unpolled(&self, core: &mut Core<N::Token>) -> bool {
        core.is_polled() || !core.is_up() || self.arm_unpolled(core)
    }

    #[inline(never)]
    fn arm_unpolled(&self, core: &mut Core<N::Token>) -> bool {
        for _ in 0..ARMS_MAX {
            match self.qp.arm() {
                Ok(true) => return true,
                Ok(false) => self.progress(core),
                Err(error) => {
                    self.fail(core, error.into());
                }
            }
            if core.is_polled() || !core.is_up() {
                return true;
            }
        }
        false
    }

    /// As [`Self::arm_if_unpolled`], for callers that do not look again themselves: the polling thread does, after its other
    /// connections. Without one it goes on until the queue pair is armed.
    pub(super) fn arm_or_kick(&self, core: &mut Core<N::Token>) {
        while !self.arm_if_unpolled(core) {
            if let Some(kicker) = self.kicker.get() {
                kicker.kick();
                return;
            }
        }
    }

    /// Ends the connection and returns the reason: that of the first call.
    pub(super) fn fail(&self, core: &mut Core<N::Token>, mut closed: Closed) -> Closed {
        if core.is_up() {
            if closed == Closed::PeerGone {
                // The write failed before the receive queue was drained. Drain it: a FINISH in it means an orderly
                // close. Over iWARP the queue pair fails as soon as the peer disconnects, also after an orderly close.
                let _gone_either_way = self.take_completions(core);
                if matches!(core.end, End::PeerFinished) {
                    closed = Closed::ByPeer;
                }
            }
            self.qp.disconnect();
        }
        core.wake_reader();
        core.wake_writer();
        if let Some(earlier) = core.closed() {
            return earlier.clone();
        }
        core.end = End::Closed(closed.clone());
        self.notifier.over();
        closed
    }

    /// Looks for the end. False: the connection is over.
    pub(super) fn check_alive(&self, core: &mut Core<N::Token>) -> bool {
        let Err(error) = self.qp.check_alive() else {
            return true;
        };
        self.fail_behind_arrivals(core, error.into());
        false
    }

    /// The peer is gone. What it sent before its end is still valid, and is at most a full receive queue. A process
    /// that closes its socket and goes on sending is cut off there. The end of a stream that the peer has ended in
    /// order is no failure.
    pub(super) fn fail_behind_arrivals(&self, core: &mut Core<N::Token>, reason: Closed) {
        let start = core.arrivals;
        loop {
            let before = core.arrivals;
            self.progress(core);
            if core.arrivals == before || core.arrivals - start > u64::from(u16::MAX) {
                break;
            }
        }
        let closed = if matches!(core.end, End::PeerFinished) {
            Closed::ByPeer
        } else {
            reason
        };
        self.fail(core, closed);
    }
}
