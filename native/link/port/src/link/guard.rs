//! The process that watches the link, and its notices: `WATCH` of the commands says what each means.

use std::ffi::CStr;
use std::fmt::Display;

use inet_rdma_path_tcp::ReceiveError;
use inet_rdma_paths::{LinkState, StallChange};
use inet_rdma_session::Violation;

use super::Link;
use super::loss::Loss;
use crate::port::Port;
use crate::queue::Queue;

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
