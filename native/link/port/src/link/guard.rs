//! The process that watches the link, and its notices: `WATCH` of the commands says what each means.

use std::ffi::CStr;
use std::fmt::Display;
use std::io;

use inet_rdma_path_tcp::{Lost, ReceiveError};
use inet_rdma_paths::{LinkState, StallChange};
use inet_rdma_session::Violation;

use super::Link;
use crate::port::{Port, errno_atom};
use crate::queue::Queue;

/// The reason of the loss of the TCP connection: an atom for the guard.
#[derive(Clone, Copy)]
pub(super) struct Loss(&'static CStr);

impl Loss {
    /// The queue pair is lost, or the peer uses one that this side has given up: the TCP connection is given up, too.
    pub(super) const QUEUE_PAIR: Loss = Loss(c"queue_pair");
    /// The VM cannot watch another descriptor.
    pub(super) const SYSTEM_LIMIT: Loss = Loss(c"system_limit");
    /// It was sealed before this node did not run for a while.
    pub(super) const WOKE: Loss = Loss(c"woke");
    /// An attempt of the peer to resume gives it up.
    pub(super) const SUPERSEDED: Loss = Loss(c"superseded");
}

impl From<Lost> for Loss {
    fn from(lost: Lost) -> Loss {
        match lost {
            Lost::Eof => Loss(c"closed"),
            Lost::Error(error) => Loss(errno_atom(error.raw_os_error())),
        }
    }
}

impl From<io::Error> for Loss {
    fn from(error: io::Error) -> Loss {
        let errno = error.raw_os_error();
        errno.map_or(Loss::SYSTEM_LIMIT, |errno| Loss(errno_atom(errno)))
    }
}

impl Link {
    /// Makes the calling process the guard, which gets the messages about the link.
    pub fn watch(&mut self, port: Port) {
        self.guard = Some(port.caller());
        self.tell_key_due(port);
        self.tell_lost_again(port);
    }

    pub(super) fn tell(&self, port: Port, what: &CStr) {
        if let Some(guard) = self.guard {
            port.tell(guard, what, self.state());
        }
    }

    pub(super) fn state(&self) -> LinkState {
        self.paths.state(self.session.is_sent_by_queue())
    }

    /// Gives the guard a message of the peer's guard, or a text.
    pub(super) fn tell_bytes(&self, port: Port, bytes: &[u8]) {
        if let Some(guard) = self.guard {
            port.tell_bytes(guard, bytes, self.state());
        }
    }

    /// Tells why no more can be received.
    pub(super) fn tell_receive_error(&self, port: Port, error: &ReceiveError) {
        match error {
            ReceiveError::Violation(violation) => self.tell_violation(port, *violation),
            error => self.tell_ending(port, c"peer_misbehaved", error),
        }
    }

    /// Tells that the peer broke the rules, or that the sides' positions contradict each other, and how.
    pub(super) fn tell_violation(&self, port: Port, violation: Violation) {
        let what = match violation {
            Violation::RolledBack(_) => c"rolled_back",
            _ => c"peer_misbehaved",
        };
        self.tell_ending(port, what, &violation);
    }

    fn tell_ending(&self, port: Port, what: &CStr, how: &dyn Display) {
        self.tell(port, what);
        self.tell_bytes(port, how.to_string().as_bytes());
    }

    pub(super) fn tell_stall(&self, port: Port, change: Option<StallChange>) {
        if let Some(change) = change {
            self.tell(
                port,
                match change {
                    StallChange::Stalled => c"stalled",
                    StallChange::Ended => c"stall_ended",
                },
            );
        }
    }

    pub(super) fn tell_lost(&mut self, port: Port, loss: Loss) {
        self.loss = Some(loss);
        if let Some(guard) = self.guard {
            port.tell_of(guard, c"lost", loss.0, self.state());
        }
    }

    /// Tells the last loss, if no TCP connection has come since then.
    pub(super) fn tell_lost_again(&mut self, port: Port) {
        if let (None, Some(loss)) = (&self.tcp, self.loss) {
            self.tell_lost(port, loss);
        }
    }

    /// Tells, once, that the link has earned a queue pair. While it has the last one the peer has not followed to TCP.
    pub(super) fn look_whether_earned(&mut self, port: Port) {
        if self.guard.is_some() && self.queue.is_none() && self.earning.is_earned_by(self.passed()) {
            self.tell(port, c"earned");
        }
    }

    pub(super) fn tell_key_due(&self, port: Port) {
        if self.guard.is_some() && self.queue.as_ref().is_some_and(Queue::take_key_due) {
            self.tell(port, c"key_due");
        }
    }
}
