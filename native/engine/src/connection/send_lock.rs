//! The right to write of one of several writers.

use inet_rdma_assembly::Gather;
use parking_lot::MutexGuard;

use super::Connection;
use super::closed::Closed;
use super::core::Woken;
use super::notifier::Notifier;
use super::notifying::Caller;
use super::sending::{Holder, Sending};
use super::writing::Written;

/// The right to write during one call. Dropped, it stays with the writer between its calls, by name; see [`Self::release`].
pub struct SendLock<'a, N: Notifier> {
    connection: &'a Connection<N>,
    /// None: released to be told of.
    sending: Option<MutexGuard<'a, Sending<N>>>,
    woken: Woken,
}

impl<'a, N: Notifier> SendLock<'a, N> {
    pub(super) fn take(connection: &'a Connection<N>, writer: N::Writer) -> Result<Self, Holder<N::Writer>> {
        let mut sending = connection.sending.lock();
        sending.take(writer)?;
        Ok(Self {
            connection,
            sending: Some(sending),
            woken: Woken::default(),
        })
    }

    /// As [`Connection::write`].
    pub fn write(&mut self, gather: &Gather<'_>, at: usize, max: usize) -> Result<Written, Closed> {
        let Some(sending) = &self.sending else {
            return Err(Closed::Here);
        };
        let mut core = self.connection.core.lock();
        let written = self.connection.write_locked(sending, &mut core, gather, at, max);
        self.woken.merge(core.take_woken());
        written
    }

    /// The last byte is written, or none ever will be: other writers may begin, posted sends first.
    pub fn release(mut self) {
        if let Some(sending) = &mut self.sending {
            sending.release();
            self.woken.writer |= sending.take_wanted() || !sending.posted().is_empty();
        }
    }
}

impl<N: Notifier> Drop for SendLock<'_, N> {
    fn drop(&mut self) {
        self.sending = None;
        self.connection.heed(self.woken, Caller::User);
    }
}
