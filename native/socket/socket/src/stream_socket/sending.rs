//! The order of writers: the bytes of one send, direct or posted, are not mixed with those of another.

use inet_rdma_assembly::Framing;

use super::notifier::StreamNotifier;
use super::posted_sends::PostedSends;
use inet_rdma_engine::connection::{Closed, Woken, WriteHalf, Written};

/// The writing direction, behind its lock. Posted sends are written while no writer is in the middle of a send, and
/// before sends that have not begun.
pub(super) struct WriteDirection<N: StreamNotifier> {
    pub(super) half: WriteHalf,
    /// The framing of sends that begin. The reading direction has its own, so that no writer waits for a read.
    pub(super) framing: Framing,
    /// The writer that is in the middle of a send, and the framing of that send.
    holder: Option<(N::Writer, Framing)>,
    pub(super) posted: PostedSends<N::Token>,
    /// True: another writer has asked meanwhile.
    wanted: bool,
}

/// The holder of the writing direction: its send is unfinished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder<W> {
    /// Another writer.
    Writer(W),
    /// The sends that are posted.
    Posted,
}

impl<N: StreamNotifier> WriteDirection<N> {
    pub(super) fn new(half: WriteHalf, framing: Framing) -> Self {
        Self {
            half,
            framing,
            holder: None,
            posted: PostedSends::default(),
            wanted: false,
        }
    }

    /// The framing of the send that is under way; else of the next one.
    pub(super) fn framing_of_send(&self) -> Framing {
        self.holder.map_or(self.framing, |(_, framing)| framing)
    }

    /// Writes of the posted sends, up to about `max` bytes.
    pub(super) fn write_posted(&mut self, max: usize) -> (Result<Written, Closed>, Woken) {
        self.half.write_without_notify(&self.posted.gather(max), 0, max)
    }

    /// Makes `writer` the holder. Err: another party holds the direction; the end of its sends wakes the writers that
    /// asked.
    pub(super) fn take(&mut self, writer: N::Writer) -> Result<(), Holder<N::Writer>> {
        self.check(writer)?;
        self.holder = Some((writer, self.framing_of_send()));
        Ok(())
    }

    /// Fails unless this writer may begin or continue a send.
    pub(super) fn check(&mut self, writer: N::Writer) -> Result<(), Holder<N::Writer>> {
        let held = match self.holder {
            Some((holder, _)) if holder == writer => return Ok(()),
            Some((holder, _)) => Holder::Writer(holder),
            None if self.posted.is_empty() => return Ok(()),
            None => Holder::Posted,
        };
        self.wanted = true;
        Err(held)
    }

    pub(super) fn holder(&self) -> Option<N::Writer> {
        self.holder.map(|(writer, _)| writer)
    }

    /// Releases the direction, as the send is complete or given up.
    pub(super) fn release(&mut self) {
        self.holder = None;
    }

    /// Returns true once if a writer has asked meanwhile. The caller must notify the writers.
    pub(super) fn take_wanted(&mut self) -> bool {
        self.holder.is_none() && self.posted.is_empty() && std::mem::take(&mut self.wanted)
    }

    /// Ends all posted sends, as nothing will be sent.
    pub(super) fn end(&mut self, notifier: &N, closed: &Closed) {
        while let Some(token) = self.posted.pop() {
            notifier.sent(token, Err(closed.clone()));
        }
    }
}
