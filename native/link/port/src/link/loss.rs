//! Losses of the TCP connection.

use std::ffi::CStr;
use std::io;

use inet_rdma_path_tcp::Lost;

use crate::port::errno_atom;

/// The reason of the loss of the TCP connection: an atom for the guard.
#[derive(Clone, Copy)]
pub(super) struct Loss(pub &'static CStr);

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
