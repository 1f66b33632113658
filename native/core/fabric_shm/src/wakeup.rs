//! Wake-ups: how a side makes the other one, which sleeps, look into its queue.
//!
//! Each side makes a pair of Unix sockets. It keeps one end, in an epoll set, and its greeting brings the peer the
//! other one. A wake-up is shutdown(2) of the peer's end for writing. The call changes nothing, as the peer has shut
//! that direction down already. The kernel notifies the pollers of the other end all the same: an edge-triggered epoll
//! set returns that end once more, and a set around it, as the VM has one, reports that ([`is_supported`] tries both).
//!
//! So a wake-up takes no memory, unlike a message. No peer can make the call block: the call takes no mutex, where that
//! of a pipe is held while a reader copies, and it depends on no flag of an open file description, where those of an
//! event fd are the peer's as well. This side polls only what it has made itself, and no message comes there.
//!
//! The peer's end shows there, too: when all copies of its end are closed. A hostile peer can leave one with a process
//! that lives on, also with this one, in a message to the end that wakes it (SECURITY.md).

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use inet_rdma_fabric::closing::Stray;
use inet_rdma_fabric::crash::EndsAtCrash;
use inet_rdma_fabric::{FabricError, Misbehaviour, closing, waiting};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, sockopt};

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The end of a pair by which this side is woken.
pub(crate) struct Watch {
    watched: OwnedFd,
    /// An epoll set of `watched` alone.
    events: OwnedFd,
}

impl Watch {
    /// Also returns the end for the peer.
    pub(crate) fn create() -> Result<(Watch, OwnedFd), FabricError> {
        if !is_supported()? {
            return Err(FabricError::system("waking a peer by a shutdown", Errno::OPNOTSUPP));
        }
        create()
    }

    /// Readable once the peer has woken this side, or has ended.
    pub(crate) fn event_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// Takes all wake-ups. False: the peer's end has come, maybe after some of them.
    pub(crate) fn take(&self) -> bool {
        let has_ended = taken(&self.events).is_some_and(|flags| flags.contains(EventFlags::HUP));
        if has_ended {
            // Level-triggered from here on: the end, which needs no flag, stays readable.
            let _ = epoll::modify(&self.events, &self.watched, EventData::new_u64(0), EventFlags::empty());
        }
        !has_ended
    }

    /// Fails once the peer has disconnected, or its process has ended.
    pub(crate) fn check_alive(&self) -> Result<(), FabricError> {
        // Without flags the kernel reports the end of both directions. A wake-up ends one.
        waiting::check_peer(self.watched.as_fd(), PollFlags::empty())
    }

    /// Ends it: its event fd becomes readable.
    pub(crate) fn disconnect(&self) {
        let _ = rustix::net::shutdown(&self.watched, Shutdown::Both);
    }
}

/// The end of the peer's pair, by which this side wakes it. Its shutdown shows the peer the end, also when the VM
/// crashes.
pub(crate) struct Waker {
    /// None: it is being dropped.
    socket: Option<(EndsAtCrash, OwnedFd)>,
}

impl Waker {
    pub(crate) fn of(theirs: Stray) -> Result<Waker, FabricError> {
        // Fails for a file that is not a socket.
        let kind = sockopt::socket_domain(&theirs).and_then(|domain| Ok((domain, sockopt::socket_type(&theirs)?)));
        match kind {
            Ok((AddressFamily::UNIX, SocketType::STREAM)) => {
                // The drop of the waker asks whether the close would wait.
                let theirs = theirs.checked();
                let socket = Some((EndsAtCrash::enter(theirs.as_fd()), theirs));
                Ok(Waker { socket })
            }
            _ => Err(FabricError::PeerMisbehaved(Misbehaviour::GreetingIncomplete)),
        }
    }

    /// Never blocks. After the peer's end it has no effect.
    pub(crate) fn wake(&self) -> Result<(), FabricError> {
        self.shut(Shutdown::Write)
            .map_err(|errno| FabricError::system("waking the peer", errno))
    }

    /// Shows the peer the end, also if a process that was forked at this moment holds a copy of the socket.
    pub(crate) fn disconnect(&self) {
        let _ = self.shut(Shutdown::Both);
    }

    fn shut(&self, directions: Shutdown) -> Result<(), Errno> {
        self.socket
            .as_ref()
            .map_or(Ok(()), |(_, socket)| rustix::net::shutdown(socket, directions))
    }
}

impl Drop for Waker {
    /// Never blocks: a message that the peer has sent here, and that nobody reads, may hold files whose close waits.
    fn drop(&mut self) {
        // From here on no message comes.
        self.disconnect();
        let Some((ends_at_crash, socket)) = self.socket.take() else {
            return;
        };
        drop(ends_at_crash);
        // An error: the peer has given a socket that listens, and connections with messages may wait there.
        if !matches!(rustix::io::ioctl_fionread(&socket), Ok(0)) {
            closing::close(socket);
        }
    }
}

fn no_set(errno: Errno) -> FabricError {
    FabricError::system("creating an epoll set", errno)
}

fn taken(events: &OwnedFd) -> Option<EventFlags> {
    let mut event = [MaybeUninit::<Event>::uninit()];
    let (taken, _) = epoll::wait(events, &mut event, Some(&NOW)).ok()?;
    taken.first().map(|event| event.flags)
}

fn create() -> Result<(Watch, OwnedFd), FabricError> {
    let sockets = |errno| FabricError::system("creating sockets for wake ups", errno);
    let (waking, watched) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(sockets)?;
    // A message, which could hold descriptors, would stay: nobody reads here.
    rustix::net::shutdown(&watched, Shutdown::Read).map_err(sockets)?;
    let events = epoll::create(CreateFlags::CLOEXEC).map_err(no_set)?;
    epoll::add(
        &events,
        &watched,
        EventData::new_u64(0),
        EventFlags::IN | EventFlags::ET,
    )
    .map_err(no_set)?;
    let watch = Watch { watched, events };
    // This side's shutdown is an event, too.
    taken(&watch.events);
    Ok((watch, waking))
}

/// An epoll set around the event fd, as the VM's poll set is: it tells once, until it is armed again.
struct Around<'a> {
    set: OwnedFd,
    watch: &'a Watch,
}

impl Around<'_> {
    const ONCE: EventFlags = EventFlags::IN.union(EventFlags::ONESHOT);

    fn create(watch: &Watch) -> Result<Around<'_>, FabricError> {
        let set = epoll::create(CreateFlags::CLOEXEC).map_err(no_set)?;
        epoll::add(&set, &watch.events, EventData::new_u64(0), Self::ONCE).map_err(no_set)?;
        Ok(Around { set, watch })
    }

    /// Takes its events, and arms it again. True: one of them is the event fd's.
    fn take(&self) -> bool {
        let is_told = taken(&self.set).is_some();
        is_told && epoll::modify(&self.set, &self.watch.events, EventData::new_u64(0), Self::ONCE).is_ok()
    }
}

/// Tries whether a further shutdown of a socket makes an event, also for a set around the event fd. Linux does so; a
/// kernel that imitates it might not. Err: there are no sockets to try it with.
fn is_supported() -> Result<bool, FabricError> {
    static HAS_WORKED: AtomicBool = AtomicBool::new(false);
    if HAS_WORKED.load(Ordering::Relaxed) {
        return Ok(true);
    }
    let (watch, waking) = create()?;
    let around = Around::create(&watch)?;
    let wakes = (0..3).all(|_| {
        let woken = rustix::net::shutdown(&waking, Shutdown::Write);
        let is_told = around.take();
        let flags = taken(&watch.events);
        let is_event = woken.is_ok() && is_told && flags.is_some_and(|flags| !flags.contains(EventFlags::HUP));
        is_event && taken(&watch.events).is_none() && !around.take()
    });
    // A process that was forked at this moment may hold a copy of the socket: closing it might not show.
    let ends = rustix::net::shutdown(&waking, Shutdown::Both).is_ok() && around.take() && !watch.take();
    // The end stays.
    let stays = around.take() && around.take();
    HAS_WORKED.store(wakes && ends && stays, Ordering::Relaxed);
    Ok(wakes && ends && stays)
}

#[cfg(test)]
mod tests {
    use rustix::event::PollFd;
    use rustix::net::SendFlags;

    use super::*;

    fn pair() -> (Watch, Waker) {
        let (watch, theirs) = Watch::create().expect("sockets");
        (watch, Waker::of(theirs.into()).expect("the right kind"))
    }

    impl Waker {
        fn socket(&self) -> &OwnedFd {
            &self.socket.as_ref().expect("not dropped").1
        }
    }

    fn is_readable(watch: &Watch) -> bool {
        let mut event_fd = [PollFd::new(&watch.events, PollFlags::IN)];
        rustix::event::poll(&mut event_fd, Some(&NOW)).expect("polled") == 1
    }

    #[test]
    fn wake_ups_are_one_event_until_they_are_taken() {
        let (watch, waker) = pair();
        for wakes in [1, 3, 1, 200] {
            assert!(!is_readable(&watch));
            (0..wakes).for_each(|_| waker.wake().expect("woken"));
            assert!(is_readable(&watch));
            assert!(watch.take());
            watch.check_alive().expect("alive");
        }
        assert!(watch.take(), "without an event");
    }

    /// The VM's poll set holds the event fd, and tells once until it is armed again, before or after the wake-ups are
    /// taken.
    #[test]
    fn a_set_around_the_event_fd_tells_of_each_wake_up_and_of_the_end() {
        let (watch, waker) = pair();
        let around = Around::create(&watch).expect("a set");
        for _ in 0..5 {
            assert!(!around.take());
            waker.wake().expect("woken");
            assert!(around.take(), "armed again before the wake-up is taken");
            assert!(around.take(), "level-triggered");
            assert!(watch.take());
        }
        waker.disconnect();
        for _ in 0..3 {
            assert!(around.take());
            assert!(!watch.take());
        }
    }

    #[test]
    fn the_end_shows_with_and_without_wake_ups_before_it() {
        for (wakes, disconnects) in [(0, false), (0, true), (2, false), (2, true)] {
            let (watch, mut waker) = pair();
            (0..wakes).for_each(|_| waker.wake().expect("woken"));
            // As after a fork: a copy stays.
            let copy = disconnects.then(|| waker.socket().try_clone().expect("a copy"));
            if disconnects {
                waker.disconnect();
            }
            // As at the death of the process: without the shutdown of a drop.
            drop(waker.socket.take());
            for _ in 0..3 {
                assert!(is_readable(&watch));
                assert!(!watch.take());
                assert_eq!(watch.check_alive(), Err(FabricError::PeerGone));
            }
            drop(copy);
        }
    }

    #[test]
    fn a_wake_up_of_a_side_that_has_ended_is_no_fault() {
        let (watch, waker) = pair();
        drop(watch);
        waker.wake().expect("nobody is there");
    }

    /// A message could keep the peer's own end in it, so that the peer's death would not show.
    #[test]
    fn the_peer_can_send_no_message() {
        let (_watch, waker) = pair();
        let sent = rustix::net::send(waker.socket(), b"hello", SendFlags::NOSIGNAL);
        assert_eq!(sent, Err(Errno::PIPE));
    }

    #[test]
    fn only_stream_sockets_wake() {
        let unix = |kind| rustix::net::socket(AddressFamily::UNIX, kind, None).expect("a socket");
        let tcp = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        let set = epoll::create(CreateFlags::CLOEXEC).expect("a set");
        let file = std::fs::File::open("/proc/self/exe").expect("a file").into();
        for other in [unix(SocketType::DGRAM), unix(SocketType::SEQPACKET), tcp, set, file] {
            assert!(Waker::of(OwnedFd::into(other)).is_err());
        }
    }
}
