//! The state of a link, and what its caller asks.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use inet_rdma_paths::{Damages, LinkState, Outage, Path, Paths, Silence, Stall, Traffic, TrafficMeter};
use inet_rdma_session::{Log, Memory, Role, Session};

use crate::backlog::Backlog;
use crate::echo::Echo;
use crate::fullness::Fullness;
use crate::life::Life;
use crate::notice::{Notice, Standing};
use crate::queue_pair::QueuePair;
use crate::tcp::{Output, Present, Tcp};
use crate::transmission::{Gathering, Transmission};
use crate::window::Window;
use crate::work::Work;

/// A link. `H`: outgoing bytes that stay where they are. `L`: memory of a large incoming packet.
///
/// # Invariants
/// `paths` has a watch over each path that is present, and over no other. The session has the queue pair of `queue`, if
/// there is one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Link<H, L> {
    pub(crate) session: Session<H, L>,
    pub(crate) life: Life,
    pub(crate) tcp: Tcp,
    pub(crate) queue: Option<QueuePair>,
    /// The caller keeps a queue pair that this side has given up in an attempt to resume, and that the peer may still
    /// have.
    pub(crate) has_retired: bool,
    pub(crate) paths: Paths,
    pub(crate) outage: Outage,
    pub(crate) stall: Stall,
    pub(crate) silence: Silence,
    pub(crate) traffic: TrafficMeter,
    pub(crate) damages: Damages,
    pub(crate) echo: Echo,
    pub(crate) window: Window,
    pub(crate) backlog: Backlog,
    pub(crate) fullness: Fullness,
    pub(crate) gathering: Gathering,
    pub(crate) transmission: Transmission,
    pub(crate) changes: Changes,
    /// There is a guard, which gets notices.
    pub(crate) is_watched: bool,
    /// With what carried the link at that time.
    pub(crate) notices: VecDeque<(Notice, Standing)>,
    /// What carried the session when that was last asked.
    pub(crate) standing: Standing,
    /// The number of the standing that the guard was told last.
    pub(crate) told: u64,
    /// Closes and resets, in order.
    orders: VecDeque<Work>,
    /// The caller must look at the path, by [`Path`].
    pub(crate) looks: [bool; 2],
    /// The caller must ask the device of the queue pair's peer.
    pub(crate) asks: bool,
    /// The time that an answer of the peer's port took, for the caller's statistics.
    pub(crate) round_trip: Option<Duration>,
}

/// The number of changes of paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Changes {
    /// TCP connections that were lost or given up.
    pub losses: u64,
    /// TCP connections that have replaced one.
    pub resumes: u64,
    /// Moves of the peer to a queue pair.
    pub moves: u64,
}

impl<H: AsRef<[u8]>, L: Memory> Link<H, L> {
    /// A link that no path carries yet. A packet above `packet_max_bytes` is a violation.
    pub fn new(role: Role, packet_max_bytes: usize) -> Self {
        Link {
            session: Session::new(role, packet_max_bytes),
            life: Life::default(),
            tcp: Tcp::Absent { loss: None },
            queue: None,
            has_retired: false,
            paths: Paths::default(),
            outage: Outage::default(),
            stall: Stall::default(),
            silence: Silence::default(),
            traffic: TrafficMeter::default(),
            damages: Damages::default(),
            echo: Echo::default(),
            window: Window::default(),
            backlog: Backlog::default(),
            fullness: Fullness::default(),
            gathering: Gathering::default(),
            transmission: Transmission::default(),
            changes: Changes::default(),
            is_watched: false,
            notices: VecDeque::new(),
            standing: Standing {
                number: 0,
                link: Paths::default().state(false),
                attempt: 0,
            },
            told: 0,
            orders: VecDeque::new(),
            looks: [false; 2],
            asks: false,
            round_trip: None,
        }
    }

    /// The VM knows the link: packets go out and come in from now on.
    pub fn start(&mut self) {
        self.life = self.life.start();
        self.request_transmission();
    }

    /// There is a guard from now on. It gets notices, and the last loss if no TCP connection has come since then.
    pub fn watch(&mut self) {
        self.is_watched = true;
        self.tell(Notice::Changed);
        self.tell_lost_again();
    }

    /// The link ends at this time at the latest.
    pub fn end_at(&mut self, until: Instant) {
        self.life = self.life.end_at(until);
    }

    /// A time of [`Self::poll_timeout`] may have come.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.life.ends_at().is_some_and(|at| at <= now) {
            self.life = Life::Over;
        }
        if self.is_over() {
            return;
        }
        if self.stall.at().is_some() {
            let change = self.stall.handle_timeout(now);
            self.tell_stall(change);
        }
        self.look_if_due(now);
        self.ask_if_silent(now);
        if self.tcp.attempt_until().is_some_and(|until| until <= now) {
            self.fail_attempt();
        }
        if self.tcp.again_at().is_some_and(|at| at <= now) {
            self.handle_writable();
        }
        if self.gathering.waits {
            self.request_transmission();
        }
    }

    /// The time of the next [`Self::handle_timeout`]. None: there is nothing to wait for but events. While
    /// [`Self::is_gathering`] the caller calls it behind its present turn.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let looks = [self.paths.at(), self.silence.at()];
        let look_at = looks.into_iter().flatten().min().filter(|_| self.is_watching());
        let times = [
            self.life.ends_at(),
            self.stall.at(),
            self.tcp.attempt_until(),
            self.tcp.again_at(),
            look_at,
        ];
        times.into_iter().flatten().min()
    }

    /// Whether [`Self::poll_work`] or [`Self::poll_notice`] may have something. Cheap, for each packet.
    pub fn has_output(&self) -> bool {
        !self.orders.is_empty()
            || !self.notices.is_empty()
            || self.is_change_due()
            || self.looks != [false; 2]
            || self.asks
            || self.transmission.is_due()
            || self.follows()
            || self.is_busy_due()
    }

    /// The next piece of work for the caller: closes and resets first, then questions and looks, then writes, then
    /// whether the port is busy. None: there is none until the next call of another function.
    #[must_use]
    pub fn poll_work(&mut self, now: Instant) -> Option<Work> {
        loop {
            if let Some(order) = self.orders.pop_front() {
                return Some(order);
            }
            if std::mem::take(&mut self.asks) {
                return Some(Work::Ask);
            }
            if let Some(path) = self.next_look(now) {
                return Some(Work::Look(path));
            }
            if self.orders.is_empty() && !self.asks {
                if let Some(path) = self.next_transmission(now) {
                    return Some(Work::Transmit(path));
                }
                // A look goes before the write; a peer that has left the queue pair is followed behind it.
                if !self.has_path_work() && !self.follow() {
                    return self.busy_change(now).map(Work::SetBusy);
                }
            }
        }
    }

    fn has_path_work(&self) -> bool {
        !self.orders.is_empty() || self.looks != [false; 2] || self.asks || self.transmission.is_due()
    }

    /// The time that the last answer of the peer's port took, once.
    pub fn take_round_trip(&mut self) -> Option<Duration> {
        self.round_trip.take()
    }

    pub(crate) fn order(&mut self, work: Work) {
        self.orders.push_back(work);
    }

    /// Whether the port ends.
    pub fn is_over(&self) -> bool {
        self.life == Life::Over
    }

    /// Whether the link ends within a time.
    pub fn is_ending(&self) -> bool {
        self.life.ends_at().is_some()
    }

    /// Whether [`Self::start`] was called.
    pub fn is_started(&self) -> bool {
        self.life.is_started()
    }

    /// Which path carries the link.
    pub fn state(&self) -> LinkState {
        self.paths.state(self.session.is_sent_by_queue())
    }

    /// Whether there is a TCP connection.
    pub fn has_tcp(&self) -> bool {
        self.tcp.is_present()
    }

    /// Whether there is a TCP connection over which this side may write.
    pub fn has_writable_tcp(&self) -> bool {
        self.tcp.is_present() && !self.paths.is_held(Path::Tcp)
    }

    /// Whether there is a queue pair over which this side may write.
    pub fn has_writable_queue(&self) -> bool {
        self.queue.is_some() && !self.paths.is_held(Path::QueuePair)
    }

    /// Whether outgoing packets go over a queue pair.
    pub fn is_sent_by_queue(&self) -> bool {
        self.session.is_sent_by_queue()
    }

    /// Whether the caller reads the queue pair: the peer sends over it, and no attempt to resume gives it up. The peer
    /// closes one that is given up, which is no end of the link.
    pub fn reads_queue(&self) -> bool {
        self.is_started()
            && self
                .queue
                .is_some_and(|queue| self.session.reads_queue(queue.id) && !self.session.is_given_up(queue.id))
    }

    /// Whether nothing may be written over the path, or read from a queue pair, as a read writes credit.
    pub fn is_held(&self, path: Path) -> bool {
        self.paths.is_held(path)
    }

    /// Whether packets wait for others to share a write.
    pub fn is_gathering(&self) -> bool {
        self.gathering.waits
    }

    /// Whether the TCP connection may take bytes, as far as its last write says.
    pub fn has_tcp_room(&self) -> bool {
        self.tcp.present().is_some_and(|present| present.output == Output::Free)
    }

    /// Whether the caller waits until the TCP socket is writable.
    pub fn waits_for_tcp_room(&self) -> bool {
        self.tcp
            .present()
            .is_some_and(|present| present.output == Output::Blocked)
    }

    /// Whether the caller must read the TCP connection even if nothing is readable, as nothing more can be sent.
    pub fn has_failed_tcp(&self) -> bool {
        self.tcp
            .present()
            .is_some_and(|present| matches!(present.output, Output::Failed(_)))
    }

    /// Bytes that wait for room.
    pub fn unsent_bytes(&self) -> usize {
        self.session.unsent_bytes() + self.tcp.present().map_or(0, |present| present.held_bytes)
    }

    /// The session.
    pub fn session(&self) -> &Session<H, L> {
        &self.session
    }

    /// The session, for a path that brings bytes or takes them.
    pub fn session_mut(&mut self) -> &mut Session<H, L> {
        &mut self.session
    }

    /// The watch over both paths.
    pub fn paths(&self) -> &Paths {
        &self.paths
    }

    /// The changes of paths.
    pub fn changes(&self) -> Changes {
        self.changes
    }

    /// TCP connections whose bytes were changed on their way.
    pub fn damages(&self) -> u64 {
        self.damages.total()
    }

    /// The time in which no path carried the link.
    pub fn suspended(&self, now: Instant) -> Duration {
        self.outage.total(now)
    }

    /// The traffic of a link that TCP carries: its growth counts only then. Ticks are left out: they pass over an idle
    /// link, too.
    pub(crate) fn passed(&self) -> Traffic {
        let counts = self.session.counts();
        Traffic {
            packets: counts.packets_received + counts.packets_sent - counts.ticks,
            bytes: counts.bytes_received + counts.bytes_sent,
        }
    }

    /// Tells, once, that the link has earned a queue pair. While it has the last one the peer has not followed to TCP.
    pub(crate) fn tell_if_earned(&mut self) {
        if self.is_watched && self.queue.is_none() && self.traffic.is_earned_by(self.passed()) {
            self.tell(Notice::Earned);
        }
    }

    pub(crate) fn is_carried_by_queue(&self) -> bool {
        self.queue.is_some() && self.session.is_sent_by_queue()
    }

    /// A path has come or gone.
    pub(crate) fn note_carried(&mut self, now: Instant) {
        if self.tcp.is_present() || self.is_carried_by_queue() {
            self.outage.end(now);
        } else if self.is_started() {
            self.outage.begin(now);
        }
    }

    /// Begins a packet's entry in the log: its length and its pieces.
    pub fn append(&mut self, bytes: usize, add: impl FnOnce(&mut Log<H>)) {
        self.session.append(bytes, add);
    }

    pub(crate) fn present_tcp(&mut self) -> Option<&mut Present> {
        self.tcp.present_mut()
    }

    /// Checks what must hold between two calls.
    pub(crate) fn debug_check(&self) {
        debug_assert_eq!(
            self.has_writable_tcp(),
            self.state().has_tcp,
            "a watch over each TCP connection"
        );
        debug_assert_eq!(
            self.queue.map(|queue| queue.id),
            self.session.path(),
            "the session has the queue pair that the link has"
        );
        debug_assert!(
            !self.has_path_work() || !self.is_over() || self.orders.len() < 16,
            "closes and resets are polled"
        );
    }
}
