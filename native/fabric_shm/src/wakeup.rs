//! Wake-ups: how a side makes the other one, which sleeps, look into its queue.
//!
//! A wake-up is shutdown(2) of one end of a Unix socket, for writing. The first one ends a direction that carries no
//! byte any more. The others change nothing, and yet the kernel tells whoever polls the other end each time: an
//! edge-triggered epoll set returns it once more ([`is_supported`] tries that).
//!
//! So a wake-up takes no memory, unlike a message, and the two ends have no open file description in common, unlike
//! those of an event fd, whose `O_NONBLOCK` either process may clear. The kernel takes spin locks alone, where a pipe
//! has a mutex that a reader holds while it copies. No peer can make this side block, neither in a wake-up nor in a
//! poll.
//!
//! A shutdown is also told to whoever polls the end that is shut down, so each direction has a socket of its own: the
//! connecting side wakes by the socket of the rendezvous, the listening side by a second one, of which its greeting
//! brings the peer one end. Each side watches the end that the peer wakes it by. The peer's end shows there, too.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use inet_rdma_fabric::{FabricError, Misbehaviour};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, sockopt};

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Fails on a kernel on which nobody would be woken.
pub(crate) fn check_supported() -> Result<(), FabricError> {
    match is_supported() {
        true => Ok(()),
        false => Err(FabricError::system("waking a peer by a shutdown", Errno::OPNOTSUPP)),
    }
}

/// A connected pair of sockets, for the wake-ups of the listening side.
pub(crate) struct WakePair {
    /// This side's end.
    pub(crate) waking: OwnedFd,
    /// The end for the peer.
    pub(crate) watched: OwnedFd,
}

impl WakePair {
    pub(crate) fn create() -> Result<WakePair, FabricError> {
        let (waking, watched) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .map_err(|errno| FabricError::system("creating a pair of sockets", errno))?;
        Ok(WakePair { waking, watched })
    }
}

/// Checks a descriptor by which the peer wants to wake this side: to poll another file than a Unix socket may block.
pub(crate) fn check_watched(theirs: &OwnedFd) -> Result<(), FabricError> {
    // The call fails at once for a file that is not a socket.
    match sockopt::socket_domain(theirs) {
        Ok(AddressFamily::UNIX) => Ok(()),
        _ => Err(FabricError::PeerMisbehaved(Misbehaviour::GreetingIncomplete)),
    }
}

/// The wake-ups of both directions of a queue pair.
pub(crate) struct Wakeups {
    /// This side's end of the socket by which it wakes the peer.
    waking: OwnedFd,
    /// This side's end of the socket by which the peer wakes it.
    watched: OwnedFd,
    /// An epoll set of `watched` alone, which the peer does not have.
    events: OwnedFd,
}

impl Wakeups {
    pub(crate) fn new(waking: OwnedFd, watched: OwnedFd) -> Result<Wakeups, FabricError> {
        let events = watch(&watched).map_err(|errno| FabricError::system("watching for wake-ups", errno))?;
        Ok(Wakeups {
            waking,
            watched,
            events,
        })
    }

    /// Readable once the peer has woken this side, or has ended.
    pub(crate) fn event_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// Wakes the peer. Never blocks.
    pub(crate) fn wake(&self) -> Result<(), FabricError> {
        match rustix::net::shutdown(&self.waking, Shutdown::Write) {
            // `check_alive` reports the peer's end.
            Ok(()) | Err(Errno::NOTCONN) => Ok(()),
            Err(errno) => Err(FabricError::system("waking the peer", errno)),
        }
    }

    /// Takes all wake-ups. False: the peer's end has come, maybe behind some of them.
    pub(crate) fn take(&self) -> bool {
        let has_ended = taken(&self.events).is_some_and(|flags| flags.intersects(EventFlags::HUP | EventFlags::ERR));
        if has_ended {
            // Level-triggered from here on: the end stays readable. It needs no flag.
            let _ = epoll::modify(&self.events, &self.watched, EventData::new_u64(0), EventFlags::empty());
        }
        !has_ended
    }

    /// Fails once the peer has disconnected, or its process has ended.
    pub(crate) fn check_alive(&self) -> Result<(), FabricError> {
        // Without flags the kernel reports the end of both directions. A wake-up ends one.
        let mut watched = [PollFd::new(&self.watched, PollFlags::empty())];
        match rustix::event::poll(&mut watched, Some(&NOW)) {
            Ok(0) | Err(Errno::INTR) => Ok(()),
            Ok(_) => Err(FabricError::PeerGone),
            Err(errno) => Err(FabricError::system("looking after the peer", errno)),
        }
    }

    /// Shows the peer the end, also if a process that was forked at this moment holds copies of the sockets.
    pub(crate) fn disconnect(&self) {
        for socket in [&self.waking, &self.watched] {
            // Fails only if the peer has disconnected first.
            let _ = rustix::net::shutdown(socket, Shutdown::Both);
        }
    }
}

/// An epoll set that returns `socket` at each wake-up.
fn watch(socket: &OwnedFd) -> Result<OwnedFd, Errno> {
    let events = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&events, socket, EventData::new_u64(0), EventFlags::IN | EventFlags::ET)?;
    Ok(events)
}

/// Takes the event of an epoll set of one socket. None: there is none.
fn taken(events: &OwnedFd) -> Option<EventFlags> {
    let mut event = [MaybeUninit::<Event>::uninit()];
    let (taken, _) = epoll::wait(events, &mut event, Some(&NOW)).ok()?;
    taken.first().map(|event| event.flags)
}

/// Tries once whether a further shutdown of a socket makes an event. Linux does; a kernel that imitates it might not.
fn is_supported() -> bool {
    static IS_SUPPORTED: OnceLock<bool> = OnceLock::new();
    *IS_SUPPORTED.get_or_init(|| {
        let Ok(WakePair { waking, watched }) = WakePair::create() else {
            // Out of descriptors: the caller finds out itself.
            return true;
        };
        let Ok(events) = watch(&watched) else { return true };
        (0..3).all(|_| {
            let woken = rustix::net::shutdown(&waking, Shutdown::Write);
            woken.is_ok() && taken(&events).is_some() && taken(&events).is_none()
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Wakeups, Wakeups) {
        let (there, back) = (
            WakePair::create().expect("sockets"),
            WakePair::create().expect("sockets"),
        );
        let here = Wakeups::new(there.waking, back.watched).expect("a set");
        (here, Wakeups::new(back.waking, there.watched).expect("a set"))
    }

    fn is_readable(wakeups: &Wakeups) -> bool {
        let mut event_fd = [PollFd::new(&wakeups.events, PollFlags::IN)];
        rustix::event::poll(&mut event_fd, Some(&NOW)).expect("polled") == 1
    }

    #[test]
    fn each_wake_up_is_an_event_of_the_other_side_alone() {
        assert!(is_supported());
        let (here, there) = pair();
        for _ in 0..3 {
            assert!(!is_readable(&here) && !is_readable(&there));
            for _ in 0..3 {
                here.wake().expect("woken");
            }
            assert!(!is_readable(&here) && is_readable(&there));
            assert!(there.take());
            there.wake().expect("woken");
            assert!(is_readable(&here) && !is_readable(&there));
            assert!(here.take());
        }
        here.check_alive().expect("alive");
        there.check_alive().expect("alive");
    }

    #[test]
    fn the_end_shows_with_and_without_wake_ups_before_it() {
        for (wakes, disconnects) in [(0, false), (0, true), (2, false), (2, true)] {
            let (here, there) = pair();
            (0..wakes).for_each(|_| here.wake().expect("woken"));
            if disconnects {
                here.disconnect();
                assert_eq!(here.check_alive(), Err(FabricError::PeerGone));
            } else {
                drop(here);
            }
            for _ in 0..3 {
                assert!(is_readable(&there));
                assert!(!there.take());
            }
            assert_eq!(there.check_alive(), Err(FabricError::PeerGone));
            there.wake().expect("no error of this side");
        }
    }

    #[test]
    fn only_unix_sockets_are_watched() {
        let pair = WakePair::create().expect("sockets");
        check_watched(&pair.watched).expect("a Unix socket");
        let udp = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).expect("a socket");
        let set = epoll::create(CreateFlags::CLOEXEC).expect("a set");
        let file = std::fs::File::open("/proc/self/exe").expect("a file").into();
        for other in [udp, set, file] {
            assert!(check_watched(&other).is_err());
        }
    }
}
