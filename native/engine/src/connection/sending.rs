//! The order of writers: the bytes of one send, direct or posted, are not mixed with those of another.

use inet_rdma_assembly::Header;

use super::Connection;
use super::closed::Closed;
use super::core::Woken;
use super::notifier::{Notifier, Parcel};
use super::posted_sends::PostedSends;

/// The writing direction, behind its lock. Posted sends go when no writer is in the middle of a send, and before any that
/// has not begun.
pub(super) struct Sending<N: Notifier> {
    /// The writer that is in the middle of a send.
    holder: Option<N::Writer>,
    posted: PostedSends<N::Token>,
    /// Another writer asked meanwhile.
    wanted: bool,
}

impl<N: Notifier> Default for Sending<N> {
    fn default() -> Self {
        Self {
            holder: None,
            posted: PostedSends::default(),
            wanted: false,
        }
    }
}

/// The holder of the writing direction: its send is unfinished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder<W> {
    /// Another writer.
    Writer(W),
    /// The sends that are posted.
    Posted,
}

impl<N: Notifier> Sending<N> {
    /// Makes `writer` the holder. Err: another party holds the direction; the end of its sends wakes the writers that
    /// asked.
    pub(super) fn take(&mut self, writer: N::Writer) -> Result<(), Holder<N::Writer>> {
        self.check(writer)?;
        self.holder = Some(writer);
        Ok(())
    }

    /// Whether this writer may begin or go on.
    pub(super) fn check(&mut self, writer: N::Writer) -> Result<(), Holder<N::Writer>> {
        let held = match self.holder {
            Some(holder) if holder == writer => return Ok(()),
            Some(holder) => Holder::Writer(holder),
            None if self.posted.is_empty() => return Ok(()),
            None => Holder::Posted,
        };
        self.wanted = true;
        Err(held)
    }

    pub(super) fn holder(&self) -> Option<N::Writer> {
        self.holder
    }

    /// The send is over, or given up.
    pub(super) fn release(&mut self) {
        self.holder = None;
    }

    /// Writers that asked may begin: they must be told.
    pub(super) fn take_wanted(&mut self) -> bool {
        self.holder.is_none() && self.posted.is_empty() && std::mem::take(&mut self.wanted)
    }

    pub(super) fn post(&mut self, token: N::Token, header: Header) {
        self.posted.push(token, header);
    }

    /// The holder gives up, and the rest of its send goes by itself, before all that is posted.
    pub(super) fn post_rest(&mut self, token: N::Token, header: Header, sent: usize) {
        self.posted.push_rest(token, header, sent);
    }

    pub(super) fn posted(&self) -> &PostedSends<N::Token> {
        &self.posted
    }

    pub(super) fn cancel(&mut self, is: impl Fn(&N::Token) -> bool) -> Option<Option<N::Token>> {
        self.posted.cancel(is)
    }

    /// None of what is posted will go any more.
    pub(super) fn end(&mut self, notifier: &N, closed: &Closed) {
        while let Some(token) = self.posted.pop() {
            notifier.sent(token, Err(closed.clone()));
        }
    }
}

impl<N: Notifier> Connection<N> {
    /// Goes on with the posted sends, about [`super::Bounds::call_bytes`] at most.
    pub(super) fn send_posted(&self) -> Woken {
        let mut sending = self.sending.lock();
        if sending.posted.is_empty() {
            return Woken::default();
        }
        if sending.holder.is_some() {
            // The connection may be closed: then the holder never finishes, and the posted sends end here.
            let closed = self.core.lock().closed().cloned();
            if let Some(closed) = closed {
                sending.end(&self.notifier, &closed);
            }
            return Woken::default();
        }
        let mut woken = self.write_posted(&mut sending);
        woken.writer |= sending.take_wanted();
        woken
    }

    fn write_posted(&self, sending: &mut Sending<N>) -> Woken {
        let mut woken = Woken::default();
        let mut left = self.settings.bounds.call_bytes.max(1);
        while !sending.posted.is_empty() {
            if left == 0 {
                // More is posted, but other connections wait for their turn.
                self.call_back(Woken::WRITER);
                break;
            }
            let mut core = self.core.lock();
            let tried = self.write_locked(sending, &mut core, &sending.posted.gather(left), 0, left);
            woken.merge(core.take_woken());
            drop(core);
            let written = match tried {
                Ok(written) => written,
                Err(closed) => {
                    sending.end(&self.notifier, &closed);
                    break;
                }
            };
            left = left.saturating_sub(written.at);
            sending.posted.advance(written.at, |token| {
                let bytes = token.bytes();
                self.notifier.sent(token, Ok(bytes));
            });
            if written.blocked && !sending.posted.is_empty() {
                let mut core = self.core.lock();
                let armed = self.arm_writer_locked(&mut core);
                woken.merge(core.take_woken());
                if armed {
                    break;
                }
            }
        }
        woken
    }
}
