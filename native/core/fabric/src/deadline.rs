//! When a side gives up.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use crate::FabricError;
use crate::waiting::poll_until;

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

/// A time at which to give up.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Instant);

impl Deadline {
    /// As [`time_after`].
    pub fn after(timeout: Duration) -> Deadline {
        Deadline(time_after(timeout))
    }

    /// As [`left_until`].
    pub fn left(self) -> Result<Duration, FabricError> {
        left_until(self.0)
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
            self.left()?;
            match poll_until(&mut [PollFd::from_borrowed_fd(socket, what)], Some(self.0)) {
                Ok(0) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(FabricError::system("waiting for the peer", errno)),
            }
        }
    }
}
