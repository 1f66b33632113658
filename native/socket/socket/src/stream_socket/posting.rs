//! Calls of a stream's user beside reads and writes: writers that take turns, posted sends and receives, active mode.

use inet_rdma_assembly::{Framing, Header};

use super::active_mode::{ActiveOption, Left};
use super::notifier::{Parcel, StreamNotifier};
use super::posted_sends::Cancelled;
use super::send_lock::SendLock;
use super::sending::Holder;
use super::shared::StreamSocket;
use inet_rdma_engine::connection::{Caller, Closed, Woken};

/// The reason why an operation is not posted, or a mode is not changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The connection is over.
    Closed(Closed),
    /// The number of posted operations has reached [`super::Bounds`].
    Full,
    /// The framing's length field cannot hold the packet's size.
    TooLarge,
    /// Posted receives and active mode exclude each other, as do a receive of a given size and a framing that gives
    /// sizes.
    Unfit,
}

/// Totals of posted operations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PostedTotals {
    /// Number of sends.
    pub sends: usize,
    /// Unsent bytes of these sends, with the headers.
    pub send_bytes: usize,
    /// Number of receives.
    pub receives: usize,
}

/// Writers that take turns.
impl<N: StreamNotifier> StreamSocket<N> {
    /// Gives the writer the right to begin a send, or to continue its unfinished one. Err: the holder of an unfinished
    /// send; [`StreamNotifier::writable`] tells when that send is done.
    pub fn send_lock(&self, writer: N::Writer) -> Result<SendLock<'_, N>, Holder<N::Writer>> {
        SendLock::take(self, writer)
    }

    /// As [`Self::arm_writer`], for one of several writers.
    pub fn arm_writer_in_turn(&self, writer: N::Writer) -> bool {
        let may_write = self.write_direction.lock().check(writer).is_ok();
        // The end of another party's send wakes all writers that wait for it: do not ask for room.
        !may_write || self.arm_writer()
    }

    /// Posts a send, after the others. Returns the writer whose unfinished send goes before it, if any.
    /// [`StreamNotifier::sent`] reports the end.
    pub fn post_send(&self, token: N::Token) -> Result<Option<N::Writer>, Refused> {
        if let Some(closed) = self.connection.closed() {
            return Err(Refused::Closed(closed));
        }
        let mut direction = self.write_direction.lock();
        let header = header(direction.framing, &token)?;
        if direction.posted.len() >= self.bounds.sends {
            return Err(Refused::Full);
        }
        direction.posted.push(token, header);
        let holder = direction.holder();
        drop(direction);
        self.go_on(Woken::WRITER, Caller::User);
        Ok(holder)
    }

    /// Ends the turn of a writer that gives up its unfinished send. `rest`: the token with the send's bytes, and the
    /// number of sent bytes, header included; the polling thread sends the unsent bytes before all posted sends. None:
    /// no byte is sent. Does nothing for a writer that is not the holder.
    pub fn leave(&self, writer: N::Writer, rest: Option<(N::Token, usize)>) -> Result<(), Refused> {
        let mut direction = self.write_direction.lock();
        if direction.holder() != Some(writer) {
            return Ok(());
        }
        let rest = match rest {
            Some((token, sent)) => Some((header(direction.framing_of_send(), &token)?, token, sent)),
            None => None,
        };
        direction.release();
        if let Some((header, token, sent)) = rest {
            direction.posted.push_rest(token, header, sent);
        }
        let writer = direction.take_wanted() || !direction.posted.is_empty();
        drop(direction);
        self.notify_and_continue(Woken { reader: false, writer }, Caller::User);
        Ok(())
    }

    /// The writer in the middle of a send, if any.
    pub fn holder(&self) -> Option<N::Writer> {
        self.write_direction.lock().holder()
    }

    /// Handles the death of a writer. If it is in the middle of a send the stream cannot continue: the connection ends.
    pub fn writer_died(&self, writer: N::Writer) {
        if self.write_direction.lock().holder() == Some(writer) {
            self.connection.close_with(Closed::HalfSent);
            self.notify_and_continue(Woken::WRITER, Caller::User);
        }
    }
}

fn header(framing: Framing, token: &impl Parcel) -> Result<Header, Refused> {
    framing.header(token.bytes()).ok_or(Refused::TooLarge)
}

/// Receives that complete by themselves.
impl<N: StreamNotifier> StreamSocket<N> {
    /// Posts a receive, after the others, of exactly `bytes` bytes ([`Framing::Raw`]). 0: the bytes that are there, or
    /// the next packet. [`StreamNotifier::received`] reports the end.
    pub fn post_receive(&self, token: N::Token, bytes: usize) -> Result<(), Refused> {
        let read_half = self.read_half.lock();
        let mut demand = self.demand.lock();
        if bytes > 0 && read_half.framing() != Framing::Raw || demand.active.is_on() {
            return Err(Refused::Unfit);
        }
        if demand.posted.len() >= self.bounds.receives {
            return Err(Refused::Full);
        }
        demand.posted.push_back(token);
        drop(demand);
        self.connection.expect_read(bytes);
        drop(read_half);
        self.go_on(Woken::READER, Caller::User);
        Ok(())
    }

    /// Cancels the posted send or receive that `is` finds, without a notification. False: there is none, or bytes of
    /// the send are sent.
    pub fn cancel(&self, is: impl Fn(&N::Token) -> bool) -> bool {
        let mut direction = self.write_direction.lock();
        let send = direction.posted.cancel(&is);
        let writer = direction.take_wanted();
        drop(direction);
        self.notify_and_continue(Woken { reader: false, writer }, Caller::User);
        match send {
            Cancelled::Removed(_token) => return true,
            Cancelled::Started => return false,
            Cancelled::NotFound => {}
        }
        let read_half = self.read_half.lock();
        let mut demand = self.demand.lock();
        let Some(index) = demand.posted.iter().position(is) else {
            return false;
        };
        let _cancelled = demand.posted.remove(index);
        drop(demand);
        self.connection.cancel_expected_read(index);
        drop(read_half);
        // Bytes that were kept for the cancelled receive may complete the next one.
        self.go_on(Woken::READER, Caller::User);
        true
    }

    /// Totals of posted operations.
    pub fn posted(&self) -> PostedTotals {
        let direction = self.write_direction.lock();
        let (sends, send_bytes) = (direction.posted.len(), direction.posted.bytes());
        drop(direction);
        PostedTotals {
            sends,
            send_bytes,
            receives: self.demand.lock().posted.len(),
        }
    }

    /// Switches active mode: the polling thread gives arriving packets to [`StreamNotifier::message`] with `token`. If
    /// the sum is 0 or less this calls [`StreamNotifier::passive`] at once.
    pub fn set_active(&self, option: ActiveOption, token: N::Token) -> Result<(), Refused> {
        let read_half = self.read_half.lock();
        let mut demand = self.demand.lock();
        if option.turns_on() && !demand.posted.is_empty() {
            return Err(Refused::Unfit);
        }
        let turned_off = demand.active.set(option, token).map_err(|_| Refused::Unfit)?;
        drop(demand);
        match turned_off {
            // Called with the lock of the direction held, so that it comes before any message of the next mode.
            Some(token) if matches!(option, ActiveOption::Add(_)) => self.notifier.passive(&token),
            Some(_) => {}
            None => {
                drop(read_half);
                self.connection.call_back(Woken::READER);
            }
        }
        Ok(())
    }

    /// Turns active mode off. Returns the messages that it had left; None: it was off.
    pub fn make_passive(&self) -> Option<Left> {
        let _read_half = self.read_half.lock();
        let mut demand = self.demand.lock();
        let left = demand.active.left();
        demand.active.turn_off();
        left
    }

    /// The messages that active mode has left. None: passive mode.
    pub fn active(&self) -> Option<Left> {
        self.demand.lock().active.left()
    }
}
