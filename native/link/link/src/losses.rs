//! Paths that are lost.

use std::time::Instant;

use inet_rdma_paths::Path;
use inet_rdma_session::Memory;

use crate::life::Life;
use crate::link::Link;
use crate::notice::{Loss, Notice};
use crate::tcp::Tcp;
use crate::work::Work;

/// How a queue pair ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueEnd {
    /// The peer or this side has closed it in order, or the peer broke its rules.
    Closed,
    /// The peer's side is gone, or the device has failed.
    Lost,
}

impl<H: AsRef<[u8]>, L: Memory> Link<H, L> {
    pub(crate) fn lose_tcp(&mut self, now: Instant, loss: Loss) {
        if !self.tcp.is_present() {
            return;
        }
        self.tcp = Tcp::Absent { loss: Some(loss) };
        self.paths.remove(Path::Tcp);
        self.order(Work::ResetTcp);
        self.session.lose_tcp();
        self.forget_tcp(now);
        self.tell_loss(loss);
    }

    /// The TCP connection is gone, whatever comes in its place.
    pub(crate) fn forget_tcp(&mut self, now: Instant) {
        self.echo.forget_question();
        self.changes.losses += 1;
        self.note_carried(now);
    }

    /// The guard is told of a loss while there is no TCP connection.
    pub(crate) fn tell_lost(&mut self, lost: Loss) {
        if let Tcp::Absent { loss } | Tcp::Resuming { loss, .. } = &mut self.tcp {
            *loss = Some(lost);
        }
        self.tell_loss(lost);
    }

    /// Tells the last loss, if no TCP connection has come since then.
    pub(crate) fn tell_lost_again(&mut self) {
        if let Some(loss) = self.tcp.loss() {
            self.tell_loss(loss);
        }
    }

    /// Handles the end of the queue pair. If the peer may still live, the session continues over TCP: both sides give
    /// up the TCP connection and resume over another one.
    pub fn handle_queue_end(&mut self, now: Instant, end: QueueEnd) {
        if self.session.has_left_queue() {
            // The peer closes the queue pair in order.
            self.lose_unused_queue(now);
            return;
        }
        let is_loss = end == QueueEnd::Lost && self.queue.is_some_and(|queue| queue.can_be_lost);
        if !is_loss || self.is_ending() {
            self.life = Life::Over;
            return;
        }
        self.lose_queue(now);
        self.lose_with_queue(now);
        self.debug_check();
    }

    /// The peer has ended the queue pair before it sent there. If this side has moved there, both resume without it.
    pub fn handle_unread_queue_end(&mut self, now: Instant) {
        let is_used = self.session.is_sent_by_queue() || self.session.awaits_queue();
        if is_used {
            self.lose_queue(now);
            self.lose_with_queue(now);
        } else {
            self.lose_unused_queue(now);
        }
        self.debug_check();
    }

    /// Gives up the TCP connection beside a queue pair that is lost. If that was lost before, the guard, which took
    /// the link for carried, is told all the same.
    pub(crate) fn lose_with_queue(&mut self, now: Instant) {
        if self.tcp.is_present() {
            self.lose_tcp(now, Loss::QueuePair)
        } else {
            self.tell_lost(Loss::QueuePair)
        }
    }

    /// Gives the queue pair up, if there is one.
    pub(crate) fn lose_queue(&mut self, now: Instant) {
        if self.queue.is_some() {
            self.order(Work::CloseQueue);
            self.remove_queue(now);
            self.session.lose_path();
        }
    }

    /// As [`Self::lose_queue`], for a queue pair that this side does not send over: no loss is told, unless the peer
    /// has moved there.
    pub(crate) fn lose_unused_queue(&mut self, now: Instant) {
        let was_suspected = self.paths.is_suspected(Path::QueuePair);
        self.lose_queue(now);
        if self.session.awaits_queue() {
            self.lose_with_queue(now);
        } else if was_suspected {
            self.tell_if_trusted();
        }
    }

    /// A queue pair that was suspected is gone, and no loss is told. The guard has another path made, until it is told
    /// that none is suspected.
    fn tell_if_trusted(&mut self) {
        if self.queue.is_none() && self.tcp.is_present() && !self.paths.is_suspected(Path::Tcp) {
            self.tell(Notice::Trusted);
        }
    }

    /// The link has no queue pair any longer. The caller of this function says what becomes of it.
    pub(crate) fn remove_queue(&mut self, now: Instant) {
        self.queue = None;
        self.paths.remove(Path::QueuePair);
        self.note_carried(now);
    }
}
