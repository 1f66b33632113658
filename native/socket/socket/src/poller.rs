//! Polling threads: a small fixed number for all connections of streams. Each waits for events of its connections,
//! polls those with recent arrivals for a bounded time, and tells the users of connections that they can go on.

use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use inet_rdma_engine::connection::PollingThread;
use inet_rdma_fabric::FabricError;
use inet_rdma_fabric::event::Event;
use parking_lot::Mutex;
use rustix::event::{Timespec, epoll};

/// When a polling thread looks and when it sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polling {
    /// Poll for `spin` after the last arrival, then ask for an event and sleep.
    Adaptive {
        /// The time of polling after the last arrival.
        spin: Duration,
    },
    /// Ask for an event at once.
    Event,
    /// Never sleep.
    Busy,
}

/// A connection, as a polling thread serves it.
pub trait Polled: Send + Sync {
    /// Its event fds; the thread waits until one is readable.
    fn event_fds(&self) -> Vec<BorrowedFd<'_>>;
    /// The event fd with this index was readable.
    fn handle_event(&self, index: usize, spin: bool) -> PollStep;
    /// [`Poller::kick`] was called.
    fn handle_kick(&self, spin: bool) -> PollStep;
    /// Looks for work while the thread polls.
    fn poll(&self) -> PollStep;
    /// The thread stops polling.
    fn sleep(&self);
    /// Called after a panic in one of the other methods: the connection must end.
    fn fail(&self);
}

/// What a polling thread does next with a [`Polled`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PollStep {
    /// Something came: poll on.
    Busy,
    /// Nothing came: poll on until the spin time is over.
    Quiet,
    /// Wait for an event.
    Wait,
    /// The connection has ended: stop watching its events. Kicks are served until it is removed.
    Over,
}

/// Identifies a [`Polled`] of a polling thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PolledId(u64);

struct Shared {
    epoll: OwnedFd,
    /// Makes the thread look at `kicked`.
    wakeup: Event,
    polled: Mutex<HashMap<u64, Arc<dyn Polled>>>,
    kicked: Mutex<Vec<u64>>,
    stop: AtomicBool,
    next_id: AtomicU64,
    polling: Polling,
}

/// One polling thread.
pub struct Poller {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Makes a polling thread look at a [`Polled`]; does nothing once it is removed from the thread.
pub struct Kicker {
    shared: Weak<Shared>,
    id: PolledId,
}

impl PollingThread for Kicker {
    fn kick(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.kick(self.id);
        }
    }
}

/// An event's data: in the low bits the index of the fd, in the rest the id of the [`Polled`].
const FD_BITS: u32 = 2;
const WAKEUP: u64 = u64::MAX;
/// Polls of each hot entry between two looks at the event fds.
const POLLS_PER_WAIT: u32 = 64;

impl Poller {
    /// Starts the thread.
    pub fn start(polling: Polling, name: String) -> Result<Self, FabricError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|errno| FabricError::system("creating an epoll set", errno))?;
        let wakeup = Event::new()?;
        let data = epoll::EventData::new_u64(WAKEUP);
        epoll::add(&epoll, &wakeup, data, epoll::EventFlags::IN)
            .map_err(|errno| FabricError::system("watching an event", errno))?;
        let shared = Arc::new(Shared {
            epoll,
            wakeup,
            polled: Mutex::new(HashMap::new()),
            kicked: Mutex::new(Vec::new()),
            stop: AtomicBool::new(false),
            next_id: AtomicU64::new(0),
            polling,
        });
        let thread = spawn(Arc::clone(&shared), name)
            .map_err(|error| FabricError::system("starting a polling thread", error))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Adds a [`Polled`] to the thread.
    pub fn add(&self, polled: Arc<dyn Polled>) -> Result<PolledId, FabricError> {
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        self.shared.polled.lock().insert(id, Arc::clone(&polled));
        for (index, fd) in polled.event_fds().into_iter().enumerate() {
            let data = epoll::EventData::new_u64(id << FD_BITS | index as u64);
            if let Err(error) = epoll::add(&self.shared.epoll, fd, data, epoll::EventFlags::IN) {
                self.remove(PolledId(id));
                return Err(FabricError::system("watching an event", error));
            }
        }
        // Completions may have arrived before its fds were watched, and busy polling has to begin.
        self.kick(PolledId(id));
        Ok(PolledId(id))
    }

    /// Makes the thread poll the connection once, soon.
    pub fn kick(&self, id: PolledId) {
        self.shared.kick(id);
    }

    /// A handle for calls of [`Self::kick`] by other owners.
    pub fn kicker(&self, id: PolledId) -> Kicker {
        Kicker {
            shared: Arc::downgrade(&self.shared),
            id,
        }
    }

    /// Removes the connection from the thread.
    pub fn remove(&self, id: PolledId) {
        if self.shared.forget(id.0) {
            // The thread may be polling it.
            self.kick(id);
        }
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.wakeup.set();
        if let Some(thread) = self.thread.take() {
            if thread.thread().id() != std::thread::current().id() {
                // A panic of the thread was reported when it happened.
                let _ = thread.join();
            }
        }
    }
}

impl Shared {
    fn kick(&self, id: PolledId) {
        self.kicked.lock().push(id.0);
        self.wakeup.set();
    }

    /// Returns false if it was removed before.
    fn forget(&self, id: u64) -> bool {
        let Some(polled) = self.polled.lock().remove(&id) else {
            return false;
        };
        self.stop_waiting_for(&*polled);
        true
    }

    fn stop_waiting_for(&self, polled: &dyn Polled) {
        for fd in polled.event_fds() {
            // An fd that was never added, was deleted before, or is closed, is not in the set.
            let _ = epoll::delete(&self.epoll, fd);
        }
    }
}

/// Starts the thread with all signals blocked: the process's other threads handle them.
fn spawn(shared: Arc<Shared>, name: String) -> std::io::Result<JoinHandle<()>> {
    let _blocked = inet_rdma_fabric::signals::block_all();
    std::thread::Builder::new().name(name).spawn(move || {
        crate::scheduling::ask_for_short_turns();
        let hot = Vec::new();
        Loop { shared, hot }.run();
    })
}

/// A [`Polled`] that is polled at the moment, and the time of its last arrival.
struct Hot {
    id: u64,
    polled: Arc<dyn Polled>,
    last: Instant,
}

struct Loop {
    shared: Arc<Shared>,
    hot: Vec<Hot>,
}

impl Loop {
    fn run(mut self) {
        let mut events = Vec::with_capacity(64);
        while !self.shared.stop.load(Ordering::Relaxed) {
            events.clear();
            // No hot entry: no bound.
            let timeout = (!self.hot.is_empty()).then(Timespec::default);
            let buffer = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.shared.epoll, buffer, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                // The set and the buffer are valid: the kernel has failed.
                Err(_) => break,
            }
            for event in &events {
                self.handle(event.data.u64());
            }
            self.poll_hot();
        }
    }

    fn handle(&mut self, data: u64) {
        let spin = self.shared.polling != Polling::Event;
        if data == WAKEUP {
            self.shared.wakeup.clear();
            let kicked = std::mem::take(&mut *self.shared.kicked.lock());
            for id in kicked {
                self.attend(id, |polled| polled.handle_kick(spin));
            }
            return;
        }
        let index = (data & ((1 << FD_BITS) - 1)) as usize;
        self.attend(data >> FD_BITS, |polled| polled.handle_event(index, spin));
    }

    /// Calls `handle` for a connection. A panic ends that connection only.
    fn attend(&mut self, id: u64, handle: impl Fn(&dyn Polled) -> PollStep) {
        let found = self.shared.polled.lock().get(&id).cloned();
        let Some(polled) = found else {
            // The connection was removed after the kick.
            self.hot.retain(|hot| hot.id != id);
            return;
        };
        let mut next = guarded(&*polled, handle);
        if self.shared.polling == Polling::Event && matches!(next, PollStep::Busy | PollStep::Quiet) {
            next = put_to_sleep(&*polled);
        }
        match next {
            PollStep::Busy | PollStep::Quiet => {
                if !self.hot.iter().any(|hot| hot.id == id) {
                    self.hot.push(Hot {
                        id,
                        polled,
                        last: Instant::now(),
                    });
                }
            }
            PollStep::Wait => {}
            PollStep::Over => {
                self.shared.stop_waiting_for(&*polled);
                self.hot.retain(|hot| hot.id != id);
            }
        }
    }

    fn poll_hot(&mut self) {
        for _ in 0..POLLS_PER_WAIT {
            if self.hot.is_empty() {
                return;
            }
            let (shared, polling) = (&self.shared, self.shared.polling);
            self.hot.retain_mut(|hot| {
                let next = match (guarded(&*hot.polled, |polled| polled.poll()), polling) {
                    (PollStep::Quiet, Polling::Adaptive { spin }) if hot.last.elapsed() >= spin => {
                        put_to_sleep(&*hot.polled)
                    }
                    (next, _) => next,
                };
                match next {
                    PollStep::Busy => {
                        hot.last = Instant::now();
                        true
                    }
                    PollStep::Quiet => true,
                    PollStep::Wait => false,
                    PollStep::Over => {
                        shared.stop_waiting_for(&*hot.polled);
                        false
                    }
                }
            });
            std::hint::spin_loop();
        }
    }
}

fn put_to_sleep(polled: &dyn Polled) -> PollStep {
    guarded(polled, |polled| {
        polled.sleep();
        PollStep::Wait
    })
}

fn guarded(polled: &dyn Polled, handle: impl Fn(&dyn Polled) -> PollStep) -> PollStep {
    catch_unwind(AssertUnwindSafe(|| handle(polled))).unwrap_or_else(|_| {
        let _ = catch_unwind(AssertUnwindSafe(|| polled.fail()));
        PollStep::Over
    })
}
