//! One side of a connection: both directions, and the credits that both share.

mod receiving;

use crate::counters::Counters;
use crate::credit::Credit;
use crate::limits::{Limits, LimitsError, Mode};
use crate::receive::Arrival;
use crate::receiver::{Question, Receiver};
use crate::sender::Sender;
use crate::seq::Seq;
use crate::transfer::{Offer, Transfer};
use crate::violation::Violation;
use crate::wire::{Control, ControlBody, Notice, RemoteAddress, TRANSFER_BYTES_MAX};

/// The effect of a control message for the caller. After each event but [`ControlEvent::Nothing`] try again to send:
/// any message may also have brought credits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlEvent {
    /// An advertisement, room in the ring, credits, or a question that ends a wait for advertisements: a transfer that
    /// had to wait may be possible now.
    Writable,
    /// The peer is alive.
    Ticked,
    /// The peer has finished. [`Stream::is_end`] waits for its bytes that have not arrived.
    Finished,
    /// Nothing to do.
    Nothing,
}

/// The stage of a half-close.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Finish {
    Open,
    Wanted,
    Sent,
}

/// One side of a connection.
///
/// The caller moves bytes and messages: it posts the transfers of [`Stream::poll_transfer`] and the messages of
/// [`Stream::poll_control`], and makes one call for each arrived message. A [`Violation`] is final: close the
/// connection.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
pub struct Stream {
    sender: Sender,
    receiver: Receiver,
    credit: Credit,
    finish: Finish,
    tick: bool,
    /// True: the last transfer had to wait for a credit, and is not sent yet.
    stalled: bool,
    counters: Counters,
}

impl Stream {
    /// A stream before its first byte. `local`: the limits of this side's hello; `remote`: those of the peer's; `ring`:
    /// the address of the peer's ring.
    pub fn new(mode: Mode, local: Limits, remote: Limits, ring: RemoteAddress) -> Result<Stream, LimitsError> {
        Stream::starting_at(mode, local, (remote, ring), Seq(0))
    }

    /// A stream of which `start` bytes have passed through the rings, in each direction.
    pub(crate) fn starting_at(
        mode: Mode,
        local: Limits,
        (remote, ring): (Limits, RemoteAddress),
        start: Seq,
    ) -> Result<Stream, LimitsError> {
        local.check()?;
        remote.check()?;
        Ok(Stream {
            sender: Sender::new(mode, &local, (&remote, ring), start),
            receiver: Receiver::new(mode, &local, &remote, start),
            credit: Credit::new(local.receive_slots, remote.receive_slots),
            finish: Finish::Open,
            tick: false,
            stalled: false,
            counters: Counters::default(),
        })
    }

    // Arrived messages.

    /// Handles a transfer that has arrived in this side's memory. Its receive slot must be posted again already.
    #[inline]
    pub fn handle_notice(&mut self, notice: Notice) -> Result<Arrival, Violation> {
        self.credit.handle_message()?;
        if notice.bytes == 0 || notice.bytes > TRANSFER_BYTES_MAX {
            return match notice {
                Notice::MARK => self.receiver.handle_mark(&mut self.counters),
                Notice { bytes, .. } => Err(Violation::NoticeBytes(bytes)),
            };
        }
        if notice.direct {
            self.receiver.handle_direct(notice.bytes, &mut self.counters)
        } else {
            self.receiver.handle_indirect(notice.bytes, &mut self.counters)
        }
    }

    /// Handles an arrived control message. Its receive slot must be posted again already.
    pub fn handle_control(&mut self, bytes: &[u8]) -> Result<ControlEvent, Violation> {
        self.credit.handle_message()?;
        let control = Control::parse(bytes)?;
        self.credit.handle_credits(control.credits)?;
        self.counters.controls_received += 1;
        let news = match control.body {
            ControlBody::Credit => self.sender.handle_pass(),
            ControlBody::Advert(advert) => self.sender.handle_advert(advert, &mut self.counters)?,
            ControlBody::Ack { freed } => self.sender.handle_ack(freed)?,
            ControlBody::Recall => self.sender.handle_ask(Question::Recall)?,
            ControlBody::Ring(ring) => self.sender.handle_ask(Question::Ring(ring))?,
            ControlBody::Tick => {
                self.counters.ticks_received += 1;
                return Ok(ControlEvent::Ticked);
            }
            ControlBody::Finish { end } => {
                self.receiver.handle_finish(end)?;
                return Ok(ControlEvent::Finished);
            }
        };
        Ok(if news || control.credits > 0 {
            ControlEvent::Writable
        } else {
            ControlEvent::Nothing
        })
    }

    // Sending.

    /// Bytes that the next direct transfer may carry. None: no usable advertisement, or no credit for a transfer.
    /// Drops stale advertisements.
    #[must_use]
    #[inline]
    pub fn direct_room(&mut self) -> Option<u32> {
        let room = self.sender.direct_room(&mut self.counters);
        (room > 0 && self.credit.allows_transfer()).then_some(room)
    }

    /// Bytes that the next indirect transfer may carry: up to the ring's end or the first byte in use. 0: no room, or
    /// no credit for a transfer.
    #[must_use]
    pub fn indirect_room(&self) -> u32 {
        if self.credit.allows_transfer() {
            self.sender.indirect_room()
        } else {
            0
        }
    }

    /// Decides on the next transfer and counts its bytes as sent. None: wait until [`Self::handle_control`] returns an
    /// event.
    ///
    /// With a usable advertisement and `offer.direct` above 0 the transfer is direct; else it is indirect if
    /// `offer.indirect` is above 0 and the ring has room. It carries as many offered bytes as fit.
    #[must_use]
    #[inline(always)]
    pub fn poll_transfer(&mut self, offer: Offer) -> Option<Transfer> {
        let (direct, bytes) = self.sender.pick(offer, &mut self.counters)?;
        if !self.credit.allows_transfer() {
            self.counters.credit_stalls += u64::from(!self.stalled);
            self.stalled = true;
            return None;
        }
        let transfer = if direct {
            self.sender.send_direct(bytes, &mut self.counters)?
        } else {
            self.sender.send_indirect(bytes, &mut self.counters)
        };
        self.stalled = false;
        self.credit.spend_on_transfer();
        Some(transfer)
    }

    /// The mark that the peer has asked for: a transfer of no bytes, which the caller must post now, in the order of
    /// its transfers. It gives up all advertisements; with a new ring, later indirect transfers go there. None: the
    /// peer has not asked, or there is no credit for a transfer.
    #[must_use]
    pub fn poll_mark(&mut self) -> Option<Transfer> {
        if !self.owes_mark() || !self.credit.allows_transfer() {
            return None;
        }
        self.credit.spend_on_transfer();
        Some(self.sender.send_mark(&mut self.counters))
    }

    /// Size of the peer's ring into which this side writes since its last mark.
    #[must_use]
    pub fn peer_ring_bytes(&self) -> u32 {
        self.sender.ring.bytes()
    }

    /// Bytes from the place of the next indirect transfer up to the end of the peer's ring. Some may be in use.
    #[must_use]
    #[inline]
    pub fn peer_ring_to_end(&self) -> u32 {
        self.sender.ring.write_to_end()
    }

    /// True if the peer waits for a mark, even if there is no credit for it now.
    #[must_use]
    #[inline]
    pub fn owes_mark(&self) -> bool {
        self.sender.owes_mark()
    }

    /// True if the caller should wait for an advertisement before it uses the ring: direct transfers have used up the
    /// peer's advertisements, or these came too late and the ring was full. When the peer has read all sent bytes it
    /// advertises a buffer, or tells that it has none. Bulk that goes into the ring meanwhile would make its next
    /// advertisements stale: to wait, offer 0 bytes for the ring.
    #[must_use]
    pub fn awaits_advert(&self) -> bool {
        self.sender.awaits_advert()
    }

    /// The position up to which the peer has copied all bytes out of its ring, as it has acknowledged.
    pub fn ring_acknowledged(&self) -> Seq {
        self.sender.acked
    }

    /// Asks for a keepalive. If an earlier one is not sent yet, that one suffices.
    pub fn tick(&mut self) {
        self.tick = true;
    }

    /// Ends this side's direction: no transfer follows. Receiving continues. Idempotent.
    ///
    /// The message carries the stream's length, so it may overtake data. [`Self::poll_control`] gives it next, even if
    /// the peer has returned no credits.
    pub fn finish(&mut self) {
        if self.finish == Finish::Open {
            self.finish = Finish::Wanted;
            self.sender.finish();
        }
    }

    /// True if [`Self::finish`] was called and [`Self::poll_control`] has returned its message.
    #[must_use]
    pub fn is_finished_sent(&self) -> bool {
        self.finish == Finish::Sent
    }

    // Messages to send.

    /// The next control message, which the caller must post now. None: there is none, or no credit for it.
    ///
    /// Order: end of stream, keepalive, questions, advertisements, pass, acknowledgement, credits. The end never waits:
    /// it has a credit of its own. Keepalives are rare and must not wait for the rest. Advertisements come before an
    /// acknowledgement, because a blocked sender continues with the first of both that it gets, and a direct transfer
    /// is better. Every message returns all owed credits; a message for credits alone also acknowledges freed bytes.
    #[must_use]
    pub fn poll_control(&mut self) -> Option<Control> {
        let (body, credits) = if self.finish == Finish::Wanted {
            self.finish = Finish::Sent;
            let end = self.sender.next;
            (ControlBody::Finish { end }, self.credit.spend_on_finish())
        } else if self.credit.allows_control() {
            (self.next_body()?, self.credit.spend_on_control())
        } else {
            return None;
        };
        self.counters.controls_sent += 1;
        Some(Control { credits, body })
    }

    /// The next control message other than the end of the stream.
    fn next_body(&mut self) -> Option<ControlBody> {
        if std::mem::take(&mut self.tick) {
            self.counters.ticks_sent += 1;
            return Some(ControlBody::Tick);
        }
        if let Some(question) = self.receiver.take_ask() {
            return Some(question);
        }
        if let Some(advert) = self.receiver.advertise(&mut self.counters) {
            return Some(ControlBody::Advert(advert));
        }
        if self.receiver.take_pass() {
            return Some(ControlBody::Credit);
        }
        if self.receiver.ack_due() || self.credit.is_due() && self.receiver.has_unacked() {
            let freed = self.receiver.ack();
            return Some(ControlBody::Ack { freed });
        }
        self.credit.is_due().then_some(ControlBody::Credit)
    }

    /// This side's user waits for room in the peer's ring and reads nothing meanwhile: an acknowledgement of a quarter
    /// of this side's ring is due, so that both users may write three quarters of a ring before they read.
    pub fn handle_writer_waits(&mut self) {
        self.receiver.handle_writer_waits();
    }

    /// True if a control message is due, even if there is no credit for it now.
    #[must_use]
    #[inline]
    pub fn has_control(&self) -> bool {
        self.tick
            || self.finish == Finish::Wanted
            || self.receiver.ack_due()
            || self.receiver.wants_to_ask()
            || self.receiver.may_advertise()
            || self.receiver.is_passing()
            || self.credit.is_due()
    }

    /// Totals since the start.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// For the tests: the parts, to read or to break.
    #[cfg(test)]
    pub(crate) fn parts(&mut self) -> (&mut Sender, &mut Receiver, &mut Counters) {
        (&mut self.sender, &mut self.receiver, &mut self.counters)
    }

    /// For the tests: spends credits to the last one.
    #[cfg(test)]
    pub(crate) fn break_reserve(&mut self, without_reserve: bool) {
        self.credit.without_reserve = without_reserve;
    }
}
