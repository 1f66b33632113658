//! Both paths of a link.

use std::time::{Duration, Instant};

use crate::look::Look;
use crate::patience::Patience;
use crate::watch::{Change, Watch};

/// The longest time between looks at a suspected path.
const LOOKS_EVERY: Duration = Duration::from_secs(1);

/// A path of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Path {
    /// The TCP connection.
    Tcp,
    /// The queue pair.
    QueuePair,
}

/// What carries the session; part of each notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinkState {
    /// Whether a path carries it.
    pub state: State,
    /// The path of this side's outgoing packets.
    pub path: CarryingPath,
    /// Nothing may be written over that path ([`Paths::is_held`]).
    pub is_held: bool,
    /// There is a TCP connection that may be written to.
    pub has_tcp: bool,
}

/// Whether a path carries the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// A path that is not suspected.
    Carried = 0,
    /// A path that is suspected.
    Suspected = 1,
    /// None.
    Suspended = 2,
}

/// The path of outgoing packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CarryingPath {
    /// The TCP connection.
    Tcp,
    /// The queue pair.
    QueuePair,
    /// There is none.
    None,
}

/// A change that the guard must be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// A path is suspected; or another one of two answers again.
    Suspected,
    /// A path that was suspected has answered, and none is suspected.
    Trusted,
}

/// The suspicions since the link began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Counts {
    /// All.
    pub suspicions: u64,
    /// Suspicions of a path that has answered again by itself.
    pub false_suspicions: u64,
}

/// The paths of one link.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Paths {
    /// None: no path is suspected, except by [`Self::hold_writes`].
    patience: Option<Patience>,
    /// By [`Path`].
    watches: [Watch; 2],
    /// The suspicions have changed since the last [`Self::poll_notice`].
    has_changed: bool,
    counts: Counts,
}

impl Paths {
    /// Suspects a path that owes an answer for this time; None: no path.
    pub fn set_patience(&mut self, time: Option<Duration>) {
        self.patience = time.map(Patience::new);
        if time.is_none() {
            for watch in &mut self.watches {
                if matches!(watch, Watch::Ticked | Watch::Waiting { .. }) {
                    *watch = Watch::Rest;
                }
            }
        }
    }

    /// The time of [`Self::set_patience`].
    pub fn patience(&self) -> Option<Duration> {
        self.patience.as_ref().map(Patience::shortest)
    }

    /// There is such a path now, over which nothing was written yet.
    pub fn add(&mut self, path: Path) {
        self.watches[path as usize] = Watch::Rest;
    }

    /// There is such a path now, which is never suspected: the kernel reports its end.
    pub fn add_exempt(&mut self, path: Path) {
        self.watches[path as usize] = Watch::Exempt;
    }

    /// The path is lost or given up.
    pub fn remove(&mut self, path: Path) {
        self.watches[path as usize] = Watch::Absent;
    }

    /// Whether the path is suspected.
    pub fn is_suspected(&self, path: Path) -> bool {
        self.watches[path as usize].is_suspected()
    }

    /// Whether nothing may be written over the path: [`Self::hold_writes`], and no answer since.
    pub fn is_held(&self, path: Path) -> bool {
        self.watches[path as usize].is_held()
    }

    /// What carries the link whose packets go over the queue pair, or over TCP.
    pub fn state(&self, is_sent_by_queue: bool) -> LinkState {
        let [tcp, queue] = self.watches;
        let (path, watch) = if is_sent_by_queue {
            (CarryingPath::QueuePair, queue)
        } else {
            (CarryingPath::Tcp, tcp)
        };
        let (state, path) = match watch {
            Watch::Absent => (State::Suspended, CarryingPath::None),
            Watch::Suspected { .. } => (State::Suspected, path),
            Watch::Exempt | Watch::Rest | Watch::Ticked | Watch::Waiting { .. } => (State::Carried, path),
        };
        LinkState {
            state,
            path,
            is_held: watch.is_held(),
            has_tcp: tcp != Watch::Absent && !tcp.is_held(),
        }
    }

    /// True if the caller must report a write over this path for which a process waits: [`Self::handle_data_written`].
    pub fn wants_data_written(&self, path: Path) -> bool {
        self.patience.is_some() && matches!(self.watches[path as usize], Watch::Rest | Watch::Ticked)
    }

    /// True if the caller must look at this path before it sends a tick, or bytes for which a process waits. The answer
    /// that is owed then is not one to those bytes.
    pub fn must_look_first(&self, path: Path) -> bool {
        self.watches[path as usize] == Watch::Ticked
    }

    /// Bytes were written for which a process waits: a look follows when the patience has passed.
    pub fn handle_data_written(&mut self, path: Path, now: Instant) {
        if let Some(patience) = self.patience.as_mut().map(|patience| patience.at(now)) {
            self.watches[path as usize].handle_data_written(now, patience);
        }
    }

    /// A tick was written, or an answer: the next write looks at the path first, or the next tick.
    pub fn handle_tick_written(&mut self, path: Path) {
        if self.patience.is_some() {
            self.watches[path as usize].handle_tick_written();
        }
    }

    /// Takes the facts of a look at this time.
    pub fn handle_look(&mut self, path: Path, now: Instant, look: Look) {
        let (patience, interval) = match &mut self.patience {
            Some(patience) => (Some(patience.at(now)), patience.shortest().min(LOOKS_EVERY)),
            None => (None, LOOKS_EVERY),
        };
        match self.watches[path as usize].handle_look(now, look, patience, interval) {
            None => return,
            Some(Change::Suspected) => self.counts.suspicions += 1,
            Some(Change::Trusted { is_false: false }) => {}
            Some(Change::Trusted { is_false: true }) => {
                self.counts.false_suspicions += 1;
                if let Some(patience) = &mut self.patience {
                    patience.handle_false(now);
                }
            }
        }
        self.has_changed = true;
    }

    /// Suspects and [holds](Self::is_held) each path until it answers: the node did not run for a while.
    pub fn hold_writes(&mut self, now: Instant) {
        let look_at = now + LOOKS_EVERY;
        for watch in &mut self.watches {
            if matches!(watch, Watch::Absent | Watch::Exempt) {
                continue;
            }
            if !watch.is_suspected() {
                self.counts.suspicions += 1;
                self.has_changed = true;
            }
            *watch = Watch::Suspected {
                since: now,
                look_at,
                is_held: true,
            };
        }
    }

    /// The time of the next look at a path. None: none is due, whatever time passes.
    pub fn at(&self) -> Option<Instant> {
        self.watches.iter().filter_map(Watch::at).min()
    }

    /// Whether it is time to look at this path.
    pub fn is_due(&self, path: Path, now: Instant) -> bool {
        self.watches[path as usize].at().is_some_and(|at| at <= now)
    }

    /// What the guard must be told, with [`Self::state`].
    pub fn poll_notice(&mut self) -> Option<Notice> {
        let has_changed = std::mem::take(&mut self.has_changed);
        let is_suspected = self.watches.iter().any(Watch::is_suspected);
        let notice = if is_suspected {
            Notice::Suspected
        } else {
            Notice::Trusted
        };
        has_changed.then_some(notice)
    }

    /// The suspicions so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Clears the counts, so that states of a model are equal that differ in nothing else.
    #[cfg(test)]
    pub(crate) fn forget_counts(&mut self) {
        self.counts = Counts::default();
    }
}
