//! The ends of connections. All connections of a device read the same descriptor of asynchronous events, so the connection
//! that takes an event tells it to those that it concerns.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, LazyLock, Weak};

use inet_rdma_verbs::async_event::{AsyncEvent, Concerns};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, epoll, eventfd};

use crate::fabric::FabricError;

/// How a connection ended, as far as it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// The peer disconnected, or its process ended.
    Peer,
    /// Something else.
    Failed(FabricError),
}

/// The end of one connection, and the descriptor that wakes its owner.
pub(super) struct Fate {
    end: Mutex<Option<End>>,
    /// An epoll set: readable when something of it is, or when an end was told that the owner has not heard of.
    watch: OwnedFd,
}

/// Readable for ever: in the epoll set of a connection it wakes the owner. One for the process, so that a connection needs
/// no descriptor of its own for it. None: descriptors ran out; owners find out at their next look.
static READABLE: LazyLock<Option<OwnedFd>> = LazyLock::new(|| eventfd(1, EventfdFlags::CLOEXEC).ok());

impl Fate {
    /// Of a connection that listens to these descriptors.
    pub(super) fn watching(fds: &[BorrowedFd<'_>]) -> rustix::io::Result<Fate> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for fd in fds {
            watch(&set, *fd)?;
        }
        Ok(Fate {
            end: Mutex::default(),
            watch: set,
        })
    }

    /// Readable when there is something to listen to, or an end to hear of.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    /// The first word counts. Wakes the owner.
    pub(super) fn tell(&self, end: End) {
        let mut told = self.end.lock();
        if told.is_none() {
            *told = Some(end);
            if let Some(readable) = &*READABLE {
                // Without memory for it the owner finds out at its next look.
                let _ = watch(&self.watch, readable.as_fd());
            }
        }
    }

    /// The end, if it was told.
    pub(super) fn end(&self) -> Option<End> {
        self.end.lock().clone()
    }

    /// The owner looks now: an end that was told wakes it no more.
    pub(super) fn hear(&self) {
        if self.end.lock().is_some() {
            if let Some(readable) = &*READABLE {
                // Fails if it was heard before.
                let _ = epoll::delete(&self.watch, readable);
            }
        }
    }
}

fn watch(set: &OwnedFd, fd: BorrowedFd<'_>) -> rustix::io::Result<()> {
    epoll::add(set, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
}

/// By which names asynchronous events call a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names {
    pub(super) device: usize,
    pub(super) queue_pair: usize,
    pub(super) completion_queues: [usize; 2],
}

/// The connections that asynchronous events may be about. Each leaves before what it is named after is destroyed.
#[derive(Default)]
pub(super) struct Known(Mutex<Vec<(Names, Weak<Fate>)>>);

impl Known {
    pub(super) fn enter(&self, names: Names, fate: &Arc<Fate>) {
        self.0.lock().push((names, Arc::downgrade(fate)));
    }

    pub(super) fn leave(&self, names: Names) {
        self.0.lock().retain(|(of, _)| of.queue_pair != names.queue_pair);
    }

    /// Tells each connection what concerns it of the events of a device. `next` takes them, with the table locked: a
    /// connection that is new cannot be taken for one that had its names before and has left meanwhile.
    pub(super) fn tell(&self, device: usize, name: impl Fn() -> String, mut next: impl FnMut() -> Option<AsyncEvent>) {
        let known = self.0.lock();
        while let Some(event) = next() {
            let concerned = known.iter().filter(|(names, _)| match event.concerns {
                Concerns::QueuePair(fallen) => names.queue_pair == fallen,
                Concerns::CompletionQueue(fallen) => names.completion_queues.contains(&fallen),
                Concerns::Device => names.device == device,
                Concerns::News => false,
            });
            for fate in concerned.filter_map(|(_, fate)| fate.upgrade()) {
                fate.tell(End::Failed(FabricError::DeviceEvent {
                    device: name(),
                    event: event.what.clone(),
                }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    const NAMES: [Names; 3] = [names(1, 10), names(1, 20), names(2, 30)];

    const fn names(device: usize, first: usize) -> Names {
        Names {
            device,
            queue_pair: first,
            completion_queues: [first + 1, first + 2],
        }
    }

    fn is_woken(fate: &Fate) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(fate.fd(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).expect("poll") > 0
    }

    /// Which of three connections, the first two on one device, are told of the event, and woken.
    fn concerned(concerns: Concerns) -> [bool; 3] {
        let known = Known::default();
        let fates = NAMES.map(|names| {
            let fate = Arc::new(Fate::watching(&[]).expect("an epoll set"));
            known.enter(names, &fate);
            fate
        });
        let mut events = vec![AsyncEvent {
            concerns,
            what: "an error".to_owned(),
        }];
        known.tell(1, || "rxe0".to_owned(), || events.pop());
        fates.map(|fate| {
            let is_told = fate.end()
                == Some(End::Failed(FabricError::DeviceEvent {
                    device: "rxe0".to_owned(),
                    event: "an error".to_owned(),
                }));
            assert_eq!(is_woken(&fate), is_told);
            fate.hear();
            assert!(!is_woken(&fate), "the owner has heard of it");
            is_told
        })
    }

    #[test]
    fn an_event_reaches_and_wakes_the_connections_that_it_concerns() {
        assert_eq!(concerned(Concerns::QueuePair(20)), [false, true, false]);
        assert_eq!(concerned(Concerns::CompletionQueue(11)), [true, false, false]);
        assert_eq!(concerned(Concerns::CompletionQueue(12)), [true, false, false]);
        assert_eq!(concerned(Concerns::Device), [true, true, false]);
        assert_eq!(concerned(Concerns::News), [false; 3]);
    }

    #[test]
    fn who_has_left_is_not_told() {
        let known = Known::default();
        let fate = Arc::new(Fate::watching(&[]).expect("an epoll set"));
        known.enter(NAMES[0], &fate);
        known.leave(NAMES[0]);
        let mut events = vec![AsyncEvent {
            concerns: Concerns::Device,
            what: String::new(),
        }];
        known.tell(1, || "rxe0".to_owned(), || events.pop());
        assert_eq!(fate.end(), None);
    }
}
