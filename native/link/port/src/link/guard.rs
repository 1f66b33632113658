//! The process that watches the link, and its notices.

use inet_rdma_link::Notice;
use inet_rdma_path_tcp::descriptors;

use super::Link;
use crate::port::Port;

impl Link {
    /// Makes the calling process the guard, which gets the notices of the link.
    pub fn watch(&mut self, port: Port) {
        self.guard = Some(port.caller());
        self.state.watch();
        self.settle(port);
    }

    pub(super) fn tell_notices(&mut self, port: Port) {
        while let Some((notice, standing)) = self.state.poll_notice() {
            if matches!(notice, Notice::Lost(_)) {
                self.lend_spare();
            }
            if let Some(guard) = self.guard {
                port.notify(guard, &notice, standing);
            }
        }
    }

    /// OTP's TLS opens files in each handshake, on either side: a node that has no other descriptor has the spare's
    /// place for them until the link has its connection.
    fn lend_spare(&mut self) {
        if self.is_sealed && self.tcp.is_none() {
            self.lent = Some(descriptors::lend());
        }
    }

    /// Whether a decision on the standing with this number still holds.
    pub fn is_current(&mut self, number: u64) -> bool {
        self.state.is_current(number)
    }
}
