//! The right to write of one of several writers.

use inet_rdma_assembly::{Framing, Gather};
use parking_lot::MutexGuard;

use super::notifier::StreamNotifier;
use super::sending::{Holder, WriteDirection};
use super::shared::StreamSocket;
use inet_rdma_engine::connection::{Caller, Closed, Woken, Written};

/// The right to write during one call. When this is dropped the writer keeps the right between its calls, under its
/// name, until [`Self::release`].
pub struct SendLock<'a, N: StreamNotifier> {
    socket: &'a StreamSocket<N>,
    framing: Framing,
    /// None only in `drop`: unlock before `notify_and_continue` calls the notifier.
    direction: Option<MutexGuard<'a, WriteDirection<N>>>,
    woken: Woken,
}

impl<'a, N: StreamNotifier> SendLock<'a, N> {
    pub(super) fn take(socket: &'a StreamSocket<N>, writer: N::Writer) -> Result<Self, Holder<N::Writer>> {
        let mut direction = socket.write_direction.lock();
        direction.take(writer)?;
        Ok(Self {
            socket,
            framing: direction.framing_of_send(),
            direction: Some(direction),
            woken: Woken::default(),
        })
    }

    /// The framing of this send.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// As [`StreamSocket::write`].
    pub fn write(&mut self, gather: &Gather<'_>, at: usize, max: usize) -> Result<Written, Closed> {
        let Some(direction) = &mut self.direction else {
            return Err(Closed::Here);
        };
        let (written, woken) = direction.half.write_without_notify(gather, at, max);
        self.woken.merge(woken);
        written
    }

    /// Ends the send, as its last byte is written, or no byte will be: other writers may begin, posted sends first.
    pub fn release(mut self) {
        if let Some(direction) = &mut self.direction {
            direction.release();
            self.woken.writer |= direction.take_wanted() || !direction.posted.is_empty();
        }
    }
}

impl<N: StreamNotifier> Drop for SendLock<'_, N> {
    fn drop(&mut self) {
        self.direction = None;
        self.socket.notify_and_continue(self.woken, Caller::User);
    }
}
