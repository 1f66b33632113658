//! The thread that ends connections: one for the process, started with the first connection.
//!
//! Disconnecting flushes what was posted and is not sent yet, so it has to wait for that; and taking a queue pair apart
//! asks the kernel, which may take its time. A scheduler or a polling thread must do neither. The thread waits for orders,
//! for completions of what is still to be sent, and for deadlines; [`ended`] tells it of the peers' goodbyes.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use inet_rdma_fabric::event::Event;
use inet_rdma_fabric::{FabricError, threads};
use inet_rdma_stream::RemoteAddress;
use parking_lot::Mutex;
use rustix::event::{Timespec, epoll};

use crate::fate::Fate;
use crate::parts::Parts;

/// How long to wait until all is sent, and again until the peer has disconnected, too.
const PATIENCE: Duration = Duration::from_secs(2);

enum Order {
    /// Disconnect when all is sent.
    Disconnect(Arc<Parts>),
    /// Destroy it after the peer's disconnect. No user has a reference any more.
    Bury(Arc<Parts>),
    /// Destroy parts that were never connected.
    Abandon(Box<Parts>),
    /// Wake the other users of a connection whose end one of them has seen.
    Wake(Arc<Fate>),
    /// Look at the connection with this token: its end was told, or an event of its completion channel was taken.
    Look(usize),
}

/// The thread's letter box.
struct Reaper {
    orders: Mutex<Vec<Order>>,
    /// Set when there are orders.
    called: Event,
    /// An epoll set: `called`, and the completion channels of connections that have something to send.
    watch: OwnedFd,
}

static REAPER: OnceLock<Arc<Reaper>> = OnceLock::new();

/// Starts the thread where it does not run: called before a connection is made, so that each has it at its end.
pub(crate) fn start() -> Result<(), FabricError> {
    static STARTING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = STARTING.lock();
    if REAPER.get().is_some() {
        return Ok(());
    }
    let watching = |errno: rustix::io::Errno| FabricError::system("watching connections that end", errno);
    let reaper = Arc::new(Reaper {
        orders: Mutex::default(),
        called: Event::new()?,
        watch: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(watching)?,
    });
    let called = epoll::EventData::new_u64(CALLED);
    epoll::add(&reaper.watch, &reaper.called, called, epoll::EventFlags::IN).map_err(watching)?;
    let thread = Arc::clone(&reaper);
    threads::start("inet_rdma/reaper", move || Work::new(thread).run())?;
    let _first = REAPER.set(reaper);
    Ok(())
}

fn give(order: Order) {
    // Each connection has started the thread before.
    if let Some(reaper) = REAPER.get() {
        reaper.orders.lock().push(order);
        reaper.called.set();
    }
}

/// Disconnects as soon as all that was posted is sent. `target` is somewhere in the peer's memory.
pub(crate) fn disconnect(parts: &Arc<Parts>, target: RemoteAddress) {
    parts.with_sending(|sending, outlet| sending.ask_for_the_end(outlet, target));
    give(Order::Disconnect(Arc::clone(parts)));
}

/// Takes a disconnected connection apart, later. It is the last reference but for the reaper's own.
pub(crate) fn bury(parts: Arc<Parts>) {
    give(Order::Bury(parts));
}

/// Takes apart a connection that no peer has confirmed.
pub(crate) fn abandon(parts: Parts) {
    give(Order::Abandon(Box::new(parts)));
}

/// Wakes the users of a connection whose end was told, later.
pub(crate) fn wake(fate: Arc<Fate>) {
    give(Order::Wake(fate));
}

/// The end of the connection with this token was told.
pub(crate) fn ended(token: usize) {
    give(Order::Look(token));
}

/// An event of a connection that was disconnected here was taken: the reaper may have waited for it.
pub(crate) fn look(parts: &Parts) {
    give(Order::Look(parts.id().token()));
}

/// The data of `called` in the epoll set. That of a connection is its token, which is an address.
const CALLED: u64 = 0;

/// A connection that this side has closed.
struct Dying {
    parts: Arc<Parts>,
    stage: Stage,
    /// The user has dropped it.
    is_dropped: bool,
    until: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Until all is sent. Its completion channel is in the epoll set.
    Sending,
    /// Disconnected, until the peer is, too.
    Parting,
}

/// What the thread does. Connections are named by the tokens of their ids.
struct Work {
    reaper: Arc<Reaper>,
    dying: HashMap<usize, Dying>,
    /// Of `dying`, in the order of time, as each wait is equally long. Some are out of date: [`Dying::until`] counts.
    deadlines: VecDeque<(Instant, usize)>,
    /// To be destroyed. One at a time, as orders may come meanwhile that take less time.
    over: VecDeque<Arc<Parts>>,
}

impl Work {
    fn new(reaper: Arc<Reaper>) -> Work {
        Work {
            reaper,
            dying: HashMap::new(),
            deadlines: VecDeque::new(),
            over: VecDeque::new(),
        }
    }

    fn run(mut self) {
        let mut ready = Vec::with_capacity(16);
        loop {
            ready.clear();
            let timeout = self.timeout();
            // Neither the set nor the buffer can be at fault; a signal is as good as an event.
            let _ = epoll::wait(
                &self.reaper.watch,
                rustix::buffer::spare_capacity(&mut ready),
                timeout.as_ref(),
            );
            // A panic is a defect, and costs the connection that it concerns at most.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                self.take_turn(ready.iter().map(|event| event.data.u64()));
            }));
        }
    }

    /// None: no bound.
    fn timeout(&self) -> Option<Timespec> {
        if !self.over.is_empty() {
            return Some(Timespec::default());
        }
        let (next, _) = self.deadlines.front()?;
        Timespec::try_from(next.saturating_duration_since(Instant::now())).ok()
    }

    fn take_turn(&mut self, readable: impl Iterator<Item = u64>) {
        for source in readable {
            match source {
                CALLED => self.take_orders(),
                token => self.look(token as usize),
            }
        }
        self.expire(Instant::now());
        // Takes it apart.
        drop(self.over.pop_front());
    }

    fn take_orders(&mut self) {
        self.reaper.called.clear();
        let orders = std::mem::take(&mut *self.reaper.orders.lock());
        for order in orders {
            match order {
                Order::Disconnect(parts) => self.disconnect(parts),
                Order::Bury(parts) => self.bury(parts),
                Order::Abandon(parts) => self.over.push_back(Arc::from(parts)),
                Order::Wake(fate) => fate.wake(),
                Order::Look(token) => self.look(token),
            }
        }
    }

    fn disconnect(&mut self, parts: Arc<Parts>) {
        let token = parts.id().token();
        if is_all_sent(&parts) {
            goodbye(&parts);
            return;
        }
        let data = epoll::EventData::new_u64(token as u64);
        // Without memory for it the time ends the wait.
        let _ = epoll::add(&self.reaper.watch, parts.channel.as_fd(), data, epoll::EventFlags::IN);
        self.wait(parts, Stage::Sending, false);
        // The event may have been taken before the channel was watched.
        self.look(token);
    }

    fn bury(&mut self, parts: Arc<Parts>) {
        let token = parts.id().token();
        match self.dying.get_mut(&token) {
            Some(dying) => dying.is_dropped = true,
            None => self.part(parts),
        }
    }

    /// Of a connection that was disconnected, and that its user has dropped.
    fn part(&mut self, parts: Arc<Parts>) {
        if parts.life.fate().end().is_some() {
            self.over.push_back(parts);
        } else {
            self.wait(parts, Stage::Parting, true);
        }
    }

    fn wait(&mut self, parts: Arc<Parts>, stage: Stage, is_dropped: bool) {
        let until = Instant::now() + PATIENCE;
        let token = parts.id().token();
        self.deadlines.push_back((until, token));
        let dying = Dying {
            parts,
            stage,
            is_dropped,
            until,
        };
        self.dying.insert(token, dying);
    }

    /// Looks whether a connection has got what it waits for.
    fn look(&mut self, token: usize) {
        let Some(dying) = self.dying.get(&token) else { return };
        let is_over = match dying.stage {
            Stage::Sending => {
                // An error shows in the queue as well.
                let _ = dying.parts.channel.drain();
                is_all_sent(&dying.parts)
            }
            Stage::Parting => dying.parts.life.fate().end().is_some(),
        };
        if is_over {
            self.go_on(token);
        }
    }

    /// The stage is over, or its time is.
    fn go_on(&mut self, token: usize) {
        let Some(dying) = self.dying.remove(&token) else { return };
        match dying.stage {
            Stage::Sending => {
                // Its descriptor is open; it may not have been added.
                let _ = epoll::delete(&self.reaper.watch, dying.parts.channel.as_fd());
                goodbye(&dying.parts);
                if dying.is_dropped {
                    self.part(dying.parts);
                }
            }
            Stage::Parting => self.over.push_back(dying.parts),
        }
    }

    fn expire(&mut self, now: Instant) {
        while self.deadlines.front().is_some_and(|(until, _)| *until <= now) {
            let Some((_, token)) = self.deadlines.pop_front() else {
                break;
            };
            if self.dying.get(&token).is_some_and(|dying| dying.until <= now) {
                self.go_on(token);
            }
        }
    }
}

/// Whether all is sent, or nothing more will be. False: an event of the completion channel tells when to look again.
fn is_all_sent(parts: &Parts) -> bool {
    let is_over = || parts.with_sending(|sending, outlet| sending.is_over(outlet));
    // Completions from before the request raise no event: look again.
    parts.life.fate().end().is_some() || is_over() || parts.arm_send_queue().is_err() || is_over()
}

fn goodbye(parts: &Parts) {
    // Fails only when the peer was faster.
    let _ = parts.id().disconnect();
}
