//! What users and polling threads call: one step each, then whatever follows from it ([`super::notifying`]).

use std::sync::atomic::Ordering;
use std::time::Duration;

use inet_rdma_assembly::{Framing, Gather, ReadLimit, Received};

use super::Connection;
use super::closed::Closed;
use super::core::{Core, Woken, Writer};
use super::notifier::Notifier;
use super::notifying::Caller;
use super::reading::{For, ReadEnd, Taken};
use super::writing::Written;
use crate::poller::Kicker;

impl<N: Notifier> Connection<N> {
    /// One step with `core` locked.
    #[inline]
    fn step<R>(&self, caller: Caller, step: impl FnOnce(&mut Core<N::Token>) -> R) -> R {
        let mut core = self.core.lock();
        let result = step(&mut core);
        let woken = core.take_woken();
        drop(core);
        self.heed(woken, caller);
        result
    }
}

/// The reader.
impl<N: Notifier> Connection<N> {
    /// Reads up to `limit`; the packets that are complete are added to `out`.
    #[inline]
    pub fn read(&self, limit: ReadLimit, out: &mut Vec<Received<N::Buffer>>) -> ReadEnd {
        let mut receiving = self.receiving.lock();
        let mut taken = Taken::default();
        let end = self.read_now(&mut receiving.assembly, limit, For::Caller, out, &mut taken);
        drop(receiving);
        self.heed(taken.woken, Caller::User);
        end
    }

    /// As [`Self::read`]; also returns the number of bytes copied. None: receives are posted and get all that arrives,
    /// or `limit` has an exact size and the framing says the sizes of packets.
    pub fn read_unposted(&self, limit: ReadLimit, out: &mut Vec<Received<N::Buffer>>) -> Option<(ReadEnd, usize)> {
        let mut receiving = self.receiving.lock();
        if limit.exact > 0 && receiving.assembly.framing() != Framing::Raw || !self.core.lock().posted.is_empty() {
            return None;
        }
        let had = out.len();
        let mut taken = Taken::default();
        let end = self.read_locked(&mut receiving.assembly, limit, For::Caller, out, &mut taken);
        drop(receiving);
        self.heed(taken.woken, Caller::User);
        Some((end, taken.copied(&out[had..])))
    }

    /// The reader looks no more until [`Notifier::readable`]. False: there may be something already, read again.
    pub fn arm(&self) -> bool {
        self.step(Caller::User, |core| self.arm_locked(core))
    }

    /// The reader promises that between a wake and the next [`Self::arm`] it reads again and again, so that the peer need
    /// not send events.
    pub fn set_self_polling(&self) {
        // In busy polling a thread looks anyway.
        self.core.lock().self_polling = !self.settings.busy;
    }

    /// True only if the receive queue is empty. Takes no lock; may return false spuriously. The end of the connection
    /// does not show.
    pub fn is_quiet(&self) -> bool {
        self.qp.is_quiet()
    }

    /// Polls until there is something to read, for `duration` at most; whether there is. For a reader that polls by
    /// itself. Yields the processor between polls: on few cores the peer may need this one.
    pub fn spin(&self, duration: Duration) -> bool {
        let (found, woken) = self.spin_for(duration);
        self.heed(woken, Caller::User);
        found
    }

    /// Each read finds the end from now on, even if more arrives.
    pub fn stop_reading(&self) {
        self.step(Caller::User, |core| {
            core.reading_stopped = true;
            core.wake_reader();
        });
    }

    /// Changes how what is yet to come is cut, and the largest packet accepted. False, and nothing changed: while receives
    /// are posted, in the middle of a packet, or behind a raw read that has taken a part of what it wants.
    #[must_use]
    pub fn reframe(&self, framing: Framing, packet_max_bytes: usize) -> bool {
        let mut receiving = self.receiving.lock();
        let (is_posted, is_active) = {
            let core = self.core.lock();
            (!core.posted.is_empty(), core.active.is_some())
        };
        let reframed = !is_posted && receiving.assembly.reframe(framing, packet_max_bytes);
        drop(receiving);
        if reframed && is_active {
            // The part of a line that was kept may be a message in the new framing.
            self.call_back(Woken::READER);
        }
        reframed
    }

    /// How the stream is cut.
    pub fn framing(&self) -> Framing {
        self.receiving.lock().assembly.framing()
    }
}

/// The writer of a connection that has only one.
impl<N: Notifier> Connection<N> {
    /// Writes from `at` on, up to about `max` bytes, as far as the peer has room. Only a packet that lands goes beyond
    /// `max`, by less than 1 MiB. When [`Written::blocked`] the writer tries again, or asks with [`Self::arm_writer`] to be
    /// woken.
    #[inline]
    pub fn write(&self, gather: &Gather<'_>, at: usize, max: usize) -> Result<Written, Closed> {
        let sending = self.sending.lock();
        let mut core = self.core.lock();
        let written = self.write_locked(&sending, &mut core, gather, at, max);
        let woken = core.take_woken();
        drop(core);
        drop(sending);
        self.heed(woken, Caller::User);
        written
    }

    /// The writer looks no more until [`Notifier::writable`]. False: there is room already, write again.
    pub fn arm_writer(&self) -> bool {
        self.step(Caller::User, |core| self.arm_writer_locked(core))
    }

    /// Asks for a keepalive to the peer. Never waits.
    pub fn tick(&self) -> Result<(), Closed> {
        self.step(Caller::User, |core| {
            if let Some(closed) = core.closed() {
                return Err(closed.clone());
            }
            core.stream.tick();
            self.tally.packets_sent.add(core, 1);
            self.progress(core);
            self.flush_controls(core);
            Ok(())
        })
    }

    /// Ends the outgoing stream behind the last transfer; the peer reads to its end. What is posted does not go any more.
    pub fn finish(&self) -> Result<(), Closed> {
        let sending = self.sending.lock();
        let mut core = self.core.lock();
        if let Some(closed) = core.closed() {
            return Err(closed.clone());
        }
        core.stream.finish();
        // The credit that the last message needs may have come.
        self.progress(&mut core);
        // A writer that waits for room finds out that there will be none.
        core.wake_writer();
        core.writer = Writer::Finished;
        self.flush_controls(&mut core);
        let woken = core.take_woken();
        drop(core);
        drop(sending);
        self.heed(woken, Caller::User);
        Ok(())
    }
}

/// The end.
impl<N: Notifier> Connection<N> {
    /// Ends the connection. The peer reads what was written, then the end. What is posted ends with [`Closed::Here`], active
    /// mode without a word.
    pub fn close(&self) {
        let mut receiving = self.receiving.lock();
        receiving.active = None;
        self.core.lock().active = None;
        drop(receiving);
        let _ended_already = self.finish();
        let mut core = self.core.lock();
        self.fail(&mut core, Closed::Here);
        let mut woken = core.take_woken();
        drop(core);
        let mut sending = self.sending.lock();
        sending.end(&self.notifier, &Closed::Here);
        woken.writer |= sending.take_wanted();
        drop(sending);
        let receiving = self.receiving.lock();
        self.end_receives(&Closed::Here);
        drop(receiving);
        self.heed(woken, Caller::User);
    }

    /// Ends the connection, unless it has ended already: reads, writes and posted operations end with `reason`.
    pub fn close_with(&self, reason: Closed) {
        self.step(Caller::User, |core| {
            self.fail(core, reason);
        });
    }

    /// As [`Self::close_with`], behind what the peer has sent before, which can still be read. A stream that the peer
    /// has ended in order ends with [`Closed::ByPeer`].
    pub fn close_behind_arrivals(&self, reason: Closed) {
        self.step(Caller::User, |core| self.fail_behind_arrivals(core, reason));
    }

    /// Why the connection ended; None: it is up.
    pub fn closed(&self) -> Option<Closed> {
        self.core.lock().closed().cloned()
    }

    /// Whether the peer has ended its stream and all of it was read.
    pub fn is_end(&self) -> bool {
        let core = self.core.lock();
        core.stream.is_end() && !core.holds_opened && !core.awaits_landed()
    }
}

/// The polling thread, or the user that watches the descriptors itself.
impl<N: Notifier> Connection<N> {
    /// The event fd was readable. False: with the connection's end; call [`Self::handle_liveness`].
    pub fn drain_event(&self) -> bool {
        let is_event = self.qp.drain_event();
        if is_event {
            self.tally.wakeups_received.fetch_add(1, Ordering::Relaxed);
        }
        is_event
    }

    /// Looks once. True: it pays to [`Self::poll`] on for a while; else an event has been asked for.
    pub fn attend(&self, spin: bool) -> bool {
        self.step(Caller::PollingThread, |core| {
            self.progress(core);
            // `progress` has woken a self-polling reader if there is something to read. That reader polls from there
            // on, so a polling thread beside it would find nothing sooner.
            core.thread_polls = core.is_up() && (self.settings.busy || spin && !core.self_polling);
            self.arm_or_kick(core);
            core.thread_polls
        })
    }

    /// Looks while the thread polls; whether something came. None: it need not look again before the next event.
    #[must_use]
    pub fn poll(&self) -> Option<bool> {
        self.step(Caller::PollingThread, |core| {
            core.thread_polls &= !core.reader_polls();
            if !core.thread_polls || !core.is_up() {
                return None;
            }
            let before = core.arrivals;
            self.progress(core);
            Some(core.arrivals != before)
        })
    }

    /// The thread stops to look: asks for an event, unless the reader polls.
    pub fn sleep(&self) {
        self.step(Caller::PollingThread, |core| {
            core.thread_polls = false;
            self.arm_or_kick(core);
        });
    }

    /// The liveness fd was readable. False: the connection is over.
    pub fn handle_liveness(&self) -> bool {
        self.step(Caller::PollingThread, |core| self.check_alive(core))
    }

    /// How the polling thread is called back. Each connection is attached once.
    pub(crate) fn set_kicker(&self, kicker: Kicker) {
        let _attached_before = self.kicker.set(kicker);
    }
}
