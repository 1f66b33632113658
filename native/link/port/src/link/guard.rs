//! The process that watches the link.

use std::ffi::CStr;
use std::fmt::Display;

use inet_rdma_path_tcp::ReceiveError;
use inet_rdma_paths::{LinkState, StallChange};
use inet_rdma_session::Violation;

use super::Link;
use super::notices::{EARNED, KEY_DUE, LOST, Loss, PEER_MISBEHAVED, ROLLED_BACK, STALL_ENDED, STALLED};
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

    /// What carries the session now.
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
            error => self.tell_ending(port, PEER_MISBEHAVED, error),
        }
    }

    /// Tells that the peer broke the rules, or that the sides' positions contradict each other, and how.
    pub(super) fn tell_violation(&self, port: Port, violation: Violation) {
        let what = match violation {
            Violation::RolledBack(_) => ROLLED_BACK,
            _ => PEER_MISBEHAVED,
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
                    StallChange::Stalled => STALLED,
                    StallChange::Ended => STALL_ENDED,
                },
            );
        }
    }

    pub(super) fn tell_lost(&mut self, port: Port, loss: Loss) {
        self.loss = Some(loss);
        if let Some(guard) = self.guard {
            port.tell_of(guard, LOST, loss.name(), self.state());
        }
    }

    /// Tells the last loss, if no TCP connection has come since then.
    pub(super) fn tell_lost_again(&mut self, port: Port) {
        if let (None, Some(loss)) = (&self.tcp, self.loss) {
            self.tell_lost(port, loss);
        }
    }

    /// Tells, once, that the link has earned a queue pair. While the port still has the last one, the peer has not
    /// followed back to TCP.
    pub(super) fn look_whether_earned(&mut self, port: Port) {
        if self.guard.is_some() && self.queue.is_none() && self.earning.is_earned_by(self.passed()) {
            self.tell(port, EARNED);
        }
    }

    pub(super) fn tell_key_due(&self, port: Port) {
        if self.guard.is_some() && self.queue.as_ref().is_some_and(Queue::take_key_due) {
            self.tell(port, KEY_DUE);
        }
    }
}
