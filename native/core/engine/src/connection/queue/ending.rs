//! The end of a connection.

use crate::connection::closed::{Closed, Ended};
use crate::connection::state::{Connection, Core, End};

impl Connection {
    /// Ends the connection and returns the reason of the end, which is that of the first call.
    pub(crate) fn fail(&self, core: &mut Core, mut closed: Closed) -> Closed {
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
        }
        core.wake_reader();
        core.wake_writer();
        if let Some(earlier) = core.closed() {
            return earlier.clone();
        }
        core.end = End::Closed(closed.clone());
        self.notifier.over();
        closed
    }

    /// As [`Self::fail`], for a caller that gives the reason later.
    #[cold]
    pub(crate) fn end(&self, core: &mut Core, closed: Closed) -> Ended {
        self.fail(core, closed);
        Ended
    }
}
