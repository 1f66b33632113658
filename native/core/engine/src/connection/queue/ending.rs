//! The end of a connection, also of one whose peer no longer lives.

use crate::connection::closed::{Closed, Ended};
use crate::connection::state::{Connection, Core, End};

impl Connection {
    /// Ends the connection, unless it has ended before: the reason of the first call stays.
    pub(crate) fn fail(&self, core: &mut Core, mut closed: Closed) {
        if core.is_up() {
            if closed == Closed::PeerGone {
                // The write failed before the receive queue was drained. Drain it: a FINISH in it means an orderly
                // close. Over iWARP the queue pair fails as soon as the peer disconnects, also after an orderly close.
                let _gone_either_way = self.take_completions(core);
                if matches!(core.end, End::PeerFinished) {
                    closed = Closed::ByPeer;
                }
            }
            self.qp.disconnect();
            core.end = End::Closed(closed);
            self.notifier.over();
        }
        core.wake_reader();
        core.wake_writer();
    }

    /// As [`Self::fail`], for a caller that gives the reason later.
    #[cold]
    pub(crate) fn end(&self, core: &mut Core, closed: Closed) -> Ended {
        self.fail(core, closed);
        Ended
    }

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
