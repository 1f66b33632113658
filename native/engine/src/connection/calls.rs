//! What users and polling threads call: one step each, then whatever follows from it ([`super::notifying`]).

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Connection;
use super::active::{ActiveOption, Left};
use super::closed::Closed;
use super::core::{Core, Woken, Writer};
use super::notifier::{Notifier, Parcel};
use super::notifying::Caller;
use super::reading::{For, ReadEnd, Taken};
use super::send_lock::SendLock;
use super::sending::Holder;
use super::writing::Written;
use crate::assembly::{Framing, Header, ReadLimit, Received};
use crate::fabric::FabricError;
use crate::gather::Gather;
use crate::poller::Kicker;

/// Why something is not posted, or a mode not changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The connection is over.
    Closed(Closed),
    /// As many are posted as [`super::Bounds`] says.
    Full,
    /// The packet is too large for a length of the framing's size.
    TooLarge,
    /// Posted receives and active mode exclude each other, as do a receive of a given size and packets that say theirs.
    Unfit,
}

/// What is posted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Posted {
    /// Sends.
    pub sends: usize,
    /// Bytes of them that have not gone, with the headers.
    pub send_bytes: usize,
    /// Receives.
    pub receives: usize,
}

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
        let end = self.read_locked(&mut receiving.assembly, limit, For::Caller, out, &mut taken);
        drop(receiving);
        self.heed(taken.woken, Caller::User);
        end
    }

    /// As [`Self::read`], with the bytes that were copied. None: receives are posted, and what comes is theirs; or a size is
    /// asked for where packets say theirs.
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

    /// Surely nothing has come since the last look: worth another such look, which takes no lock, before a read. False:
    /// perhaps something has. The end of the connection does not show.
    pub fn is_quiet(&self) -> bool {
        self.qp.is_quiet()
    }

    /// Looks for something to read for a while; whether there is. For a reader that polls by itself and has nothing better
    /// to do. Lets other threads have the processor: on few cores the peer may need just this one.
    pub fn spin(&self, duration: Duration) -> bool {
        let (found, woken) = self.spin_for(duration);
        self.heed(woken, Caller::User);
        found
    }

    /// The reader finds the end from now on, whatever else comes.
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
            // What was kept of a line may be a message now.
            self.call_back(Woken::READER);
        }
        reframed
    }

    /// How the stream is cut.
    pub fn framing(&self) -> Framing {
        self.receiving.lock().assembly.framing()
    }
}

/// The writer, where it is one alone.
impl<N: Notifier> Connection<N> {
    /// Writes from `at` on, up to about `max` bytes, as far as the peer has room. Only a packet that lands goes beyond
    /// `max`, by less than 1 MiB. When [`Written::blocked`] the writer tries again, or asks with [`Self::arm_writer`] to be
    /// woken.
    #[inline]
    pub fn write(&self, gather: &Gather<'_>, at: usize, max: usize) -> Result<Written, Closed> {
        let mut woken = Woken::default();
        let sending = self.sending.lock();
        let written = self.write_locked(&sending, gather, at, max, &mut woken);
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

/// Writers that take turns.
impl<N: Notifier> Connection<N> {
    /// This writer begins a send, or goes on with the one that it is in the middle of. Err: another one is; when that is
    /// done [`Notifier::writable`] says so.
    pub fn send_lock(&self, writer: N::Writer) -> Result<SendLock<'_, N>, Holder<N::Writer>> {
        SendLock::take(self, writer)
    }

    /// As [`Self::arm_writer`], for one of several writers.
    pub fn arm_sender(&self, writer: N::Writer) -> bool {
        match self.sending.lock().check(writer) {
            Ok(()) => {}
            // Whoever is in the middle of a send wakes all that wait for its end.
            Err(_) => return true,
        }
        self.arm_writer()
    }

    /// Posts a send, behind the others; the writer that is in the middle of one of its own. [`Notifier::sent`] tells of the
    /// end.
    pub fn post_send(&self, token: N::Token) -> Result<Option<N::Writer>, Refused> {
        if let Some(closed) = self.closed() {
            return Err(Refused::Closed(closed));
        }
        let header = self.header(&token)?;
        let mut sending = self.sending.lock();
        if sending.posted().len() >= self.settings.bounds.sends {
            return Err(Refused::Full);
        }
        sending.post(token, header);
        let holder = sending.holder();
        drop(sending);
        self.go_on(Woken::WRITER, Caller::User);
        Ok(holder)
    }

    /// This writer gives up the send that it is in the middle of. The rest of it, a token's bytes but for so many that have
    /// gone with the header, goes by itself; None: nothing of it has gone. Does nothing for another writer.
    pub fn leave(&self, writer: N::Writer, rest: Option<(N::Token, usize)>) -> Result<(), Refused> {
        let rest = match rest {
            Some((token, sent)) => Some((self.header(&token)?, token, sent)),
            None => None,
        };
        let mut sending = self.sending.lock();
        if sending.holder() != Some(writer) {
            return Ok(());
        }
        sending.release();
        if let Some((header, token, sent)) = rest {
            sending.post_rest(token, header, sent);
        }
        let writer = sending.take_wanted() || !sending.posted().is_empty();
        drop(sending);
        self.heed(Woken { reader: false, writer }, Caller::User);
        Ok(())
    }

    /// This writer will never call again. If it is in the middle of a send the stream cannot go on: the connection ends.
    pub fn writer_died(&self, writer: N::Writer) {
        if self.sending.lock().holder() == Some(writer) {
            self.close_with(Closed::Fabric(FabricError::HalfSent));
            self.heed(Woken::WRITER, Caller::User);
        }
    }

    fn header(&self, token: &N::Token) -> Result<Header, Refused> {
        self.framing().header(token.bytes()).ok_or(Refused::TooLarge)
    }
}

/// Receives that complete by themselves.
impl<N: Notifier> Connection<N> {
    /// Posts a receive, behind the others, of exactly so many bytes ([`Framing::Raw`]), or with 0 of whatever is there or of
    /// the next packet. [`Notifier::received`] tells of the end.
    pub fn post_receive(&self, token: N::Token, bytes: usize) -> Result<(), Refused> {
        let receiving = self.receiving.lock();
        let mut core = self.core.lock();
        if bytes > 0 && receiving.assembly.framing() != Framing::Raw || core.active.is_some() {
            return Err(Refused::Unfit);
        }
        if core.posted.len() >= self.settings.bounds.receives {
            return Err(Refused::Full);
        }
        core.posted.push(token, bytes);
        drop(core);
        drop(receiving);
        self.go_on(Woken::READER, Caller::User);
        Ok(())
    }

    /// Takes back the posted send or receive that `is` finds: nothing is told of it. False: it is not there, or bytes of the
    /// send have gone.
    pub fn cancel(&self, is: impl Fn(&N::Token) -> bool) -> bool {
        let mut sending = self.sending.lock();
        let send = sending.cancel(&is);
        let writer = sending.take_wanted();
        drop(sending);
        self.heed(Woken { reader: false, writer }, Caller::User);
        if let Some(send) = send {
            return send.is_some();
        }
        let receiving = self.receiving.lock();
        let receive = self.core.lock().posted.cancel(&is);
        drop(receiving);
        if receive.is_some() {
            // What was kept for it may be what the next one waits for.
            self.go_on(Woken::READER, Caller::User);
        }
        receive.is_some()
    }

    /// How much is posted.
    pub fn posted(&self) -> Posted {
        let sending = self.sending.lock();
        let (sends, send_bytes) = (sending.posted().len(), sending.posted().bytes());
        drop(sending);
        Posted {
            sends,
            send_bytes,
            receives: self.core.lock().posted.len(),
        }
    }

    /// Switches active mode: what arrives goes to [`Notifier::message`] with `token`, from the polling thread. A sum of 0 or
    /// less is told to [`Notifier::passive`] at once.
    pub fn set_active(&self, option: ActiveOption, token: N::Token) -> Result<(), Refused> {
        let mut receiving = self.receiving.lock();
        let mut core = self.core.lock();
        if option.turns_on() && !core.posted.is_empty() {
            return Err(Refused::Unfit);
        }
        core.active = option.left(core.active).map_err(|_| Refused::Unfit)?;
        let is_on = core.active.is_some();
        drop(core);
        if is_on {
            receiving.active = Some(token);
            drop(receiving);
            self.call_back(Woken::READER);
            return Ok(());
        }
        receiving.active = None;
        if matches!(option, ActiveOption::Add(_)) {
            self.notifier.passive(&token);
        }
        Ok(())
    }

    /// How many messages active mode has left; None: passive mode.
    pub fn active(&self) -> Option<Left> {
        self.core.lock().active
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

    /// Ends the connection for a reason that those who wait shall see.
    pub fn close_with(&self, reason: Closed) {
        self.step(Caller::User, |core| {
            self.fail(core, reason);
        });
    }

    /// Why the connection ended; None: it is up.
    pub fn closed(&self) -> Option<Closed> {
        self.core.lock().closed().cloned()
    }

    /// Whether the peer has ended its stream and all of it was read.
    pub fn is_end(&self) -> bool {
        self.core.lock().stream.is_end()
    }
}

/// The polling thread, or whoever watches the descriptors.
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
        self.step(Caller::PollingThread, |core| self.attend_locked(core, spin))
    }

    /// Looks while the thread polls; whether something came. None: it need not look again before the next event.
    #[must_use]
    pub fn poll(&self) -> Option<bool> {
        self.step(Caller::PollingThread, |core| self.poll_locked(core))
    }

    /// The thread stops to look: asks for an event, unless the reader polls.
    pub fn sleep(&self) {
        self.step(Caller::PollingThread, |core| {
            core.thread_polls = false;
            self.rest(core);
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
