//! Waiting for descriptors.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::FabricError;

/// Fails once the peer's socket has one of `signs`, or an end that poll(2) reports without being asked.
pub fn check_peer(socket: BorrowedFd<'_>, signs: PollFlags) -> Result<(), FabricError> {
    match poll(
        &mut [PollFd::from_borrowed_fd(socket, signs)],
        Some(&Timespec::default()),
    ) {
        Ok(0) | Err(Errno::INTR) => Ok(()),
        Ok(_) => Err(FabricError::PeerGone),
        Err(errno) => Err(FabricError::system("looking after the peer", errno)),
    }
}

/// Blocks until one of `fds` is readable, the deadline has passed (None: as long as it takes), or a signal came.
pub fn until_readable(
    fds: &[BorrowedFd<'_>],
    deadline: Option<Instant>,
    doing: &'static str,
) -> Result<(), FabricError> {
    let mut fds: Vec<PollFd<'_>> = fds
        .iter()
        .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
        .collect();
    match poll_until(&mut fds, deadline) {
        Ok(_) => Ok(()),
        Err(errno) => Err(FabricError::system(doing, errno)),
    }
}

/// poll(2) until `deadline` (None: as long as it takes). 0: the time is over, or a signal came.
pub(crate) fn poll_until(fds: &mut [PollFd<'_>], deadline: Option<Instant>) -> Result<usize, Errno> {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    match poll(fds, left.as_ref()) {
        Err(Errno::INTR) => Ok(0),
        polled => polled,
    }
}
