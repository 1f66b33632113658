//! Messages to the process that watches the link.

use std::ffi::CStr;
use std::io;

use inet_rdma_path_tcp::Lost;

use crate::port::errno_atom;

/// The link's sending key nears its limit.
pub(super) const KEY_DUE: &CStr = c"key_due";
/// The port is busy, and the peer takes nothing.
pub(super) const STALLED: &CStr = c"stalled";
/// The peer takes bytes again.
pub(super) const STALL_ENDED: &CStr = c"stall_ended";
/// A path is suspected, or another one of two answers again.
pub(super) const SUSPECTED: &CStr = c"suspected";
/// What was suspected has answered.
pub(super) const TRUSTED: &CStr = c"trusted";
/// The TCP connection is gone, and a queue pair that may be lost with it, too; with the reason, a [`Loss`].
pub(super) const LOST: &CStr = c"lost";
/// Another TCP connection is there.
pub(super) const RESTORED: &CStr = c"restored";
/// Packets of the peer come over the queue pair.
pub(super) const MOVED: &CStr = c"moved";
/// Packets go and come over the TCP connection again, and the queue pair is closed.
pub(super) const RETURNED: &CStr = c"returned";
/// The link has had enough traffic over TCP to earn a queue pair.
pub(super) const EARNED: &CStr = c"earned";
/// The peer has ended the session in order.
pub(super) const PEER_CLOSED: &CStr = c"peer_closed";
/// The peer broke the rules of the session.
pub(super) const PEER_MISBEHAVED: &CStr = c"peer_misbehaved";

/// The positions of both sides contradict each other.
pub(super) const ROLLED_BACK: &CStr = c"rolled_back";

/// The reason of the loss of the TCP connection: an atom for the guard.
#[derive(Clone, Copy)]
pub(super) struct Loss(&'static CStr);

impl Loss {
    /// The atom.
    pub(super) fn name(self) -> &'static CStr {
        self.0
    }

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
        error
            .raw_os_error()
            .map_or(Loss::SYSTEM_LIMIT, |errno| Loss(errno_atom(errno)))
    }
}
