//! What the port tells the guard of its link, as terms.

use std::ffi::CStr;
use std::io;

use inet_rdma_link::{Loss, Notice};
use inet_rdma_path_tcp::Lost;

/// The second element of a notice's pair.
pub(crate) enum Detail<'a> {
    Atom(&'static CStr),
    /// The atom of a system's error.
    Errno(i32),
    Binary(&'a [u8]),
}

pub(crate) fn detail(notice: &Notice) -> Option<Detail<'_>> {
    match notice {
        Notice::Lost(Loss::System(errno)) => Some(Detail::Errno(*errno)),
        Notice::Lost(loss) => Some(Detail::Atom(loss.name())),
        Notice::Message(bytes) => Some(Detail::Binary(bytes)),
        Notice::PeerMisbehaved(how) | Notice::RolledBack(how) | Notice::Unread(how) => {
            Some(Detail::Binary(how.as_bytes()))
        }
        Notice::Stalled
        | Notice::StallEnded
        | Notice::Busy
        | Notice::Full
        | Notice::Suspected
        | Notice::Trusted
        | Notice::Restored
        | Notice::Changed
        | Notice::Earned
        | Notice::Moved
        | Notice::Returned
        | Notice::PeerClosed => None,
    }
}

/// The loss of a TCP connection that can no longer be used.
pub(crate) fn loss_of(lost: Lost) -> Loss {
    match lost {
        Lost::Eof => Loss::Closed,
        Lost::Error(error) => Loss::System(error.raw_os_error()),
    }
}

/// The loss of a TCP connection for which there is no descriptor.
pub(crate) fn loss_of_error(error: &io::Error) -> Loss {
    error.raw_os_error().map_or(Loss::SystemLimit, Loss::System)
}
