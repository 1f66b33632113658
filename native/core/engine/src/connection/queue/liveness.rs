//! Checks that the peer lives, and ends the connection if it does not.

use crate::connection::closed::Closed;
use crate::connection::state::{Connection, Core, End};

impl Connection {
    /// Asks the fabric whether the peer lives. False: the connection is over.
    pub(crate) fn check_alive(&self, core: &mut Core) -> bool {
        let Err(error) = self.qp.check_alive() else {
            return true;
        };
        self.fail_behind_arrivals(core, error.into());
        false
    }

    /// Ends the connection, as the peer is gone. Takes first what the peer sent before its end, at most a full receive
    /// queue: a process that closes its socket and goes on sending is cut off there. If the peer has ended its stream
    /// in order, that is no failure.
    pub(crate) fn fail_behind_arrivals(&self, core: &mut Core, reason: Closed) {
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
