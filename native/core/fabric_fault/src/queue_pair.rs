//! A queue pair that suffers the plan.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use inet_rdma_fabric::event::Event;
use inet_rdma_fabric::{
    Answer, Capabilities, Completion, Counts, Exposer, FabricError, FabricName, Memory, QueuePair, Safeguard, WriteRoom,
};
use inet_rdma_stream::{CONTROL_BYTES, Hello, Notice, RemoteAddress};
use parking_lot::Mutex;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use crate::exposing::{Exposing, Granted, Staging};
use crate::inbound::{FaultPlan, Inbound, NextDue};
use crate::stall::Stall;
use crate::windows::Windowing;

/// A queue pair that suffers. Its event is readable when the inner one's is, when a delayed completion is due, or when
/// a stall has ended.
pub(crate) struct FaultQueuePair {
    inner: Box<dyn QueuePair>,
    plan: FaultPlan,
    stall: Stall,
    inbound: Mutex<Inbound>,
    posts: AtomicU64,
    /// Holds the inner event, the timer and the stall's event.
    event: OwnedFd,
    timer: OwnedFd,
    resumed: Arc<Event>,
    owner: Arc<()>,
    staging: Staging,
}

impl FaultQueuePair {
    /// Each queue pair has a seed of its own.
    pub(crate) fn new(
        inner: Box<dyn QueuePair>,
        plan: &FaultPlan,
        stall: &Stall,
        seed: u64,
    ) -> Result<FaultQueuePair, FabricError> {
        let system = |doing| move |errno: Errno| FabricError::system(doing, errno);
        let event = epoll::create(CreateFlags::CLOEXEC).map_err(system("creating an epoll set"))?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer =
            rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags).map_err(system("creating a timer"))?;
        let resumed = stall.enrol()?;
        for fd in [inner.event_fd(), timer.as_fd(), resumed.as_fd()] {
            epoll::add(&event, fd, EventData::new_u64(0), EventFlags::IN).map_err(system("watching an event"))?;
        }
        Ok(FaultQueuePair {
            staging: Staging::new(&**inner.memory()),
            inner,
            plan: plan.clone(),
            stall: stall.clone(),
            inbound: Mutex::new(Inbound::new(seed)),
            posts: AtomicU64::new(0),
            event,
            timer,
            resumed,
            owner: Arc::default(),
        })
    }

    /// Counts a post; the post after the last that the plan allows ends the connection.
    fn count_post(&self) -> Result<(), FabricError> {
        let before = self.posts.fetch_add(1, Ordering::Relaxed);
        if self.plan.drop_after_posts.is_some_and(|allowed| before >= allowed) {
            self.inner.disconnect();
            return Err(FabricError::PeerGone);
        }
        Ok(())
    }

    fn set_timer(&self, due: Instant) -> Result<(), FabricError> {
        // Zero would switch the timer off.
        let left = due.saturating_duration_since(Instant::now());
        let setting = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec::try_from(left.max(Duration::from_nanos(1))).unwrap_or(Timespec {
                tv_sec: i64::MAX,
                tv_nsec: 0,
            }),
        };
        let set = rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &setting);
        set.map_err(|errno| FabricError::system("setting a timer", errno))?;
        Ok(())
    }
}

impl QueuePair for FaultQueuePair {
    fn memory(&self) -> &Arc<dyn Memory> {
        self.inner.memory()
    }

    fn exposer(&self) -> Arc<dyn Exposer> {
        match &self.plan.exposing {
            Exposing::AsInner => self.inner.exposer(),
            Exposing::Pinning(grants) => Arc::new(Granted {
                inner: self.inner.exposer(),
                grants: Arc::clone(grants),
            }),
            Exposing::Windows(windows) => Arc::new(Windowing {
                inner: self.inner.exposer(),
                windows: Arc::clone(windows),
                owner: Arc::downgrade(&self.owner),
            }),
        }
    }

    fn remote_hello(&self) -> &Hello {
        self.inner.remote_hello()
    }

    fn capabilities(&self) -> Capabilities {
        let inner = self.inner.capabilities();
        let is_far = !self.plan.distance.is_zero();
        Capabilities {
            landing_window_bytes: if is_far { usize::MAX } else { inner.landing_window_bytes },
            safeguard: match self.plan.exposing {
                Exposing::Windows(_) => Safeguard::Windows,
                Exposing::AsInner | Exposing::Pinning(_) => inner.safeguard,
            },
            windows: inner.windows || matches!(self.plan.exposing, Exposing::Windows(_)),
            pins: inner.pins || matches!(self.plan.exposing, Exposing::Pinning(_)),
            ..inner
        }
    }

    fn post_write(
        &self,
        room: WriteRoom,
        source: &[&[u8]],
        target: RemoteAddress,
        notice: Notice,
    ) -> Result<(), Box<FabricError>> {
        self.count_post()?;
        let target = match &self.plan.exposing {
            Exposing::Windows(windows) => windows.resolve(target, source.iter().map(|piece| piece.len()).sum())?,
            Exposing::AsInner | Exposing::Pinning(_) => target,
        };
        self.inner.post_write(room, source, target, notice)
    }

    fn post_control(&self, message: &[u8; CONTROL_BYTES]) -> Result<(), FabricError> {
        self.count_post()?;
        self.inner.post_control(message)
    }

    fn prepare_staging(&self, bytes: usize) -> Result<(), FabricError> {
        match &self.plan.exposing {
            Exposing::Pinning(grants) => self.staging.prepare(bytes, grants),
            Exposing::AsInner | Exposing::Windows(_) => self.inner.prepare_staging(bytes),
        }
    }

    fn replace_staging(&self) {
        match self.plan.exposing {
            Exposing::Pinning(_) => self.staging.replace(),
            Exposing::AsInner | Exposing::Windows(_) => self.inner.replace_staging(),
        }
    }

    fn release_staging(&self) -> bool {
        self.staging.release();
        self.inner.release_staging()
    }

    fn write_room(&self) -> Option<WriteRoom> {
        let staging = match self.plan.exposing {
            Exposing::Pinning(_) => self.staging.bytes(),
            Exposing::AsInner | Exposing::Windows(_) => usize::MAX,
        };
        let inner = self.inner.write_room()?;
        let bytes_max = self.plan.write_room_max.unwrap_or(usize::MAX).min(staging);
        WriteRoom::new(inner.bytes().min(bytes_max))
    }

    fn poll(&self, out: &mut [Completion]) -> Result<usize, FabricError> {
        if self.stall.is_on() {
            return Ok(0);
        }
        if let Exposing::Windows(windows) = &self.plan.exposing {
            windows.poll(&self.owner);
        }
        self.inbound.lock().poll(&*self.inner, &self.plan, out)
    }

    fn disarm(&self) {
        self.inner.disarm();
    }

    fn arm(&self) -> Result<bool, FabricError> {
        // The end of the stall makes an event of its own; the poll after it finds the completions of that time.
        if self.stall.is_on() {
            return Ok(true);
        }
        if let Exposing::Windows(windows) = &self.plan.exposing {
            if windows.is_due(&self.owner) {
                return Ok(false);
            }
        }
        let next = self.inbound.lock().next();
        match next {
            NextDue::Unknown => self.inner.arm(),
            NextDue::AfterPolls => Ok(false),
            NextDue::At(due) => {
                self.set_timer(due)?;
                Ok(true)
            }
            NextDue::UnderWay(due) => {
                if !self.inner.arm()? {
                    return Ok(false);
                }
                self.set_timer(due)?;
                Ok(true)
            }
        }
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn drain_event(&self) -> bool {
        let is_event = self.inner.drain_event();
        for fd in [self.timer.as_fd(), self.resumed.as_fd()] {
            // EAGAIN: it was another of the three.
            let _ = rustix::io::read(fd, &mut [0u8; 8]);
        }
        is_event
    }

    fn liveness_fd(&self) -> BorrowedFd<'_> {
        self.inner.liveness_fd()
    }

    fn check_alive(&self) -> Result<(), FabricError> {
        self.inner.check_alive()
    }

    fn ask(&self) -> Answer {
        self.inner.ask()
    }

    fn disconnect(&self) {
        self.inner.disconnect();
    }

    fn pinned_bytes(&self) -> u64 {
        self.inner.pinned_bytes()
    }

    fn wakeups_sent(&self) -> u64 {
        self.inner.wakeups_sent()
    }

    fn fabric(&self) -> FabricName {
        self.inner.fabric()
    }

    fn route(&self) -> String {
        self.inner.route()
    }

    fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.inner.addresses()
    }

    fn counts(&self) -> Counts {
        self.inner.counts()
    }
}
