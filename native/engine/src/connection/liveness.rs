//! Whether the peer lives, and the end of a connection whose peer does not.

use super::closed::Closed;
use super::core::{Core, End};
use super::shared::Connection;

impl Connection {
    /// Looks for the end. False: the connection is over.
    pub(super) fn check_alive(&self, core: &mut Core) -> bool {
        let Err(error) = self.qp.check_alive() else {
            return true;
        };
        self.fail_behind_arrivals(core, error.into());
        false
    }

    /// The peer is gone. What it sent before its end is still valid, and is at most a full receive queue. A process
    /// that closes its socket and goes on sending is cut off there. The end of a stream that the peer has ended in
    /// order is no failure.
    pub(super) fn fail_behind_arrivals(&self, core: &mut Core, reason: Closed) {
        let start = core.arrivals;
        loop {
            let before = core.arrivals;
            self.progress(core);
            if core.arrivals == before || core.arrivals - start > u64::from(u16::MAX) {
                break;
            }
        }
        let closed = match core.end {
            End::PeerFinished => Closed::ByPeer,
            End::Open | End::Closed(_) => reason,
        };
        self.fail(core, closed);
    }
}
