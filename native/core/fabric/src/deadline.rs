//! When a side gives up.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::FabricError;

/// The time after `timeout`. A timeout that ends beyond what the clock can say ends in 34 years.
pub fn time_after(timeout: Duration) -> Instant {
    Instant::now() + timeout.min(Duration::from_secs(1 << 30))
}

/// The time left until `at`; Err if it has passed.
pub fn left_until(at: Instant) -> Result<Duration, FabricError> {
    match at.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(FabricError::TimedOut),
        left => Ok(left),
    }
}

/// A time at which to give up; None: never.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// `timeout` from now. Never, where that is beyond what the clock can say.
    pub fn after(timeout: Duration) -> Deadline {
        Deadline(Instant::now().checked_add(timeout))
    }

    /// The time left; Err if the deadline has passed.
    pub fn left(self) -> Result<Option<Duration>, FabricError> {
        self.0.map(left_until).transpose()
    }

    /// Blocks until the socket is readable, or has failed.
    pub fn wait_readable(self, socket: BorrowedFd<'_>) -> Result<(), FabricError> {
        self.wait(socket, PollFlags::IN)
    }

    /// Blocks until the socket is writable, or has failed.
    pub fn wait_writable(self, socket: BorrowedFd<'_>) -> Result<(), FabricError> {
        self.wait(socket, PollFlags::OUT)
    }

    fn wait(self, socket: BorrowedFd<'_>, what: PollFlags) -> Result<(), FabricError> {
        loop {
            let left = self.left()?.and_then(|left| Timespec::try_from(left).ok());
            match rustix::event::poll(&mut [PollFd::from_borrowed_fd(socket, what)], left.as_ref()) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(FabricError::system("waiting for the peer", errno)),
            }
        }
    }
}
