//! The event fd of a connection: an epoll set that holds the socket and is armed for one event at a time.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use inet_rdma_fabric::FabricError;
use parking_lot::Mutex;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

const DOING: &str = "asking for an event of a connection";
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The epoll set. `EPOLLONESHOT` disables the socket with each event, until the set is armed again.
///
/// No wake-up is lost: when it is armed the kernel checks the present state of the socket, so bytes that came before
/// make an event, too.
pub(crate) struct Interest {
    epoll: OwnedFd,
    /// True from a call that arms until the event is taken.
    is_armed: Mutex<bool>,
}

impl Interest {
    pub(crate) fn new(socket: BorrowedFd<'_>) -> Result<Interest, FabricError> {
        let failed = |errno| FabricError::system(DOING, errno);
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        epoll::add(&epoll, socket, EventData::new_u64(0), EventFlags::ONESHOT).map_err(failed)?;
        Ok(Interest {
            epoll,
            is_armed: Mutex::new(false),
        })
    }

    pub(crate) fn is_armed(&self) -> bool {
        *self.is_armed.lock()
    }

    /// Asks for an event when bytes come or, with a backlog, when there is room to send. Calls `has_backlog` with the
    /// state locked, so that a backlog that begins meanwhile is seen here or by [`Self::note_backlog`].
    pub(crate) fn arm(&self, socket: BorrowedFd<'_>, has_backlog: impl FnOnce() -> bool) -> Result<(), FabricError> {
        let mut is_armed = self.is_armed.lock();
        self.ask(socket, has_backlog())?;
        *is_armed = true;
        Ok(())
    }

    /// Notes that a backlog has begun. If armed, room to send makes an event from now on, too. If not, some party
    /// polls, and sends the backlog then.
    pub(crate) fn note_backlog(&self, socket: BorrowedFd<'_>) -> Result<(), FabricError> {
        if *self.is_armed.lock() {
            self.ask(socket, true)
        } else {
            Ok(())
        }
    }

    fn ask(&self, socket: BorrowedFd<'_>, has_backlog: bool) -> Result<(), FabricError> {
        let mut flags = EventFlags::IN | EventFlags::ONESHOT;
        flags.set(EventFlags::OUT, has_backlog);
        let asked = epoll::modify(&self.epoll, socket, EventData::new_u64(0), flags);
        asked.map_err(|errno| FabricError::system(DOING, errno))
    }

    pub(crate) fn drain(&self) {
        let mut is_armed = self.is_armed.lock();
        let mut events = Vec::with_capacity(1);
        // Only a signal can make it fail; the event stays then.
        let taken = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&NOW));
        *is_armed &= !matches!(taken, Ok(1..));
    }
}

impl AsFd for Interest {
    /// The descriptor is readable while there is an event.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
