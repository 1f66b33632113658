//! The event that wakes a sleeping consumer.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::EventfdFlags;
use rustix::io::Errno;

use super::mapping::system;
use crate::fabric::FabricError;

/// This side's doorbell: the peer rings it, this side sleeps on it.
#[derive(Debug)]
pub(super) struct OwnDoorbell(OwnedFd);

impl OwnDoorbell {
    pub(super) fn create() -> Result<OwnDoorbell, FabricError> {
        rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(OwnDoorbell)
            .map_err(|errno| system("creating an event", errno))
    }

    /// Takes all rings so far.
    pub(super) fn drain(&self) {
        // EAGAIN: nothing to take. Any other failure would only leave it readable, which costs a poll and no more.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for OwnDoorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The peer's doorbell: this side rings it.
#[derive(Debug)]
pub(super) struct PeerDoorbell(OwnedFd);

impl PeerDoorbell {
    /// Takes what the peer sent as its doorbell. Refused unless it is an event that does not block a writer.
    pub(super) fn verify(fd: OwnedFd) -> Result<PeerDoorbell, FabricError> {
        let flags = rustix::fs::fcntl_getfl(&fd).map_err(|errno| system("looking at the peer's doorbell", errno))?;
        // A file, pipe or socket has a type in its mode; an event, being anonymous, has none.
        let stat = rustix::fs::fstat(&fd).map_err(|errno| system("looking at the peer's doorbell", errno))?;
        let is_anonymous = rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Unknown;
        if !is_anonymous || !flags.contains(rustix::fs::OFlags::NONBLOCK) {
            return Err(FabricError::PeerMisbehaved(
                "its doorbell is not an event that never blocks".to_owned(),
            ));
        }
        Ok(PeerDoorbell(fd))
    }

    /// Wakes the peer.
    pub(super) fn ring(&self) {
        // EAGAIN: it was rung 2^64 - 2 times and not drained, so it is readable already. After any other failure the
        // peer's own poll interval or its death, seen on the socket, decides.
        while rustix::io::write(&self.0, &1u64.to_ne_bytes()) == Err(Errno::INTR) {}
    }
}
