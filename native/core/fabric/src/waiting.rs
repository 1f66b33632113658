//! Waiting for descriptors.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::FabricError;

/// Blocks until one of `fds` is readable, the deadline has passed (None: as long as it takes), or a signal came.
pub fn until_readable(
    fds: &[BorrowedFd<'_>],
    deadline: Option<Instant>,
    doing: &'static str,
) -> Result<(), FabricError> {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    let mut fds: Vec<PollFd<'_>> = fds
        .iter()
        .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
        .collect();
    match poll(&mut fds, left.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(FabricError::system(doing, errno)),
    }
}
