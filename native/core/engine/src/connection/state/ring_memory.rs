//! The memory of a connection's ring, if it is pinned. The first ring is small. While the peer finds it full, a large
//! ring takes its place, of the size that the options allow.

use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use inet_rdma_fabric::{Exposed, Memory};
use inet_rdma_stream::NewRing;

use crate::memory_thread::IDLE_SWEEPS;

/// Number of arrivals that leave less than a quarter of the ring free after which a larger ring replaces it. A writer
/// of bulk fills a small ring that often within a few round trips; a burst of small messages does not. One arrival that
/// leaves nothing free is enough: the peer may write three quarters of the option `ring_bytes` before anything is read.
const CROWDED_ARRIVALS: u32 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The first ring is in use.
    Small,
    /// Memory for the large ring has been asked for.
    Claimed,
    /// The peer is asked to go on in the large ring.
    Growing,
    /// The large ring is in use.
    Large,
    /// The peer is asked to go on in the first ring.
    Shrinking,
    /// The peer writes the first ring; the large one may hold unread bytes.
    Shrunk,
    /// The system has refused memory for the large ring; it is asked again later.
    Refused,
}

/// The ring that a connection begins with, and the large one that takes its place for a while.
pub(crate) struct RingMemory {
    /// True if the ring can grow.
    pub(crate) is_elastic: bool,
    first: Arc<dyn Memory>,
    /// The first byte of `first`, kept here as each packet needs it. Atomic, as a plain pointer is not `Send`.
    first_base: AtomicPtr<u8>,
    large_bytes: u32,
    large: Option<Box<dyn Exposed>>,
    /// A large ring to revoke: the peer no longer writes it, and all its bytes have been read.
    pub(crate) unused: Option<Box<dyn Exposed>>,
    state: State,
    /// Arrivals that found the ring crowded, since it was replaced or swept.
    crowded: u32,
    /// Maximum number of used bytes since the last sweep.
    used_bytes: u32,
    idle_sweeps: u32,
}

impl RingMemory {
    /// `large_bytes`: size of the large ring. If it is not larger than `first` the ring never grows.
    pub(crate) fn new(first: Arc<dyn Memory>, large_bytes: u32) -> Self {
        Self {
            is_elastic: large_bytes as usize > first.bytes(),
            first_base: AtomicPtr::new(first.base()),
            first,
            large_bytes,
            large: None,
            unused: None,
            state: State::Small,
            crowded: 0,
            used_bytes: 0,
            idle_sweeps: 0,
        }
    }

    fn first_bytes(&self) -> u32 {
        u32::try_from(self.first.bytes()).unwrap_or(u32::MAX)
    }

    /// The first byte of the ring that the peer writes, or of the one before it.
    #[inline]
    pub(crate) fn base(&self, is_old: bool) -> *const u8 {
        match &self.large {
            Some(large) if self.writes_large() != is_old => large.memory().base(),
            _ => self.first_base.load(Ordering::Relaxed),
        }
    }

    fn writes_large(&self) -> bool {
        matches!(self.state, State::Large | State::Shrinking)
    }

    /// Notes an arrival: as far as the peer knows, `room` of the ring's `bytes` are free. Returns true if memory must
    /// be fetched.
    pub(crate) fn note_arrival(&mut self, room: u32, bytes: u32) -> bool {
        self.used_bytes = self.used_bytes.max(bytes - room);
        if self.state != State::Small || room >= bytes / 4 {
            return false;
        }
        self.crowded += 1;
        let is_crowded = self.crowded >= CROWDED_ARRIVALS || room == 0;
        if is_crowded {
            self.state = State::Claimed;
        }
        is_crowded
    }

    /// Bytes to expose for the large ring. None: nothing is claimed.
    pub(crate) fn claimed_bytes(&self) -> Option<usize> {
        (self.state == State::Claimed && self.large.is_none()).then_some(self.large_bytes as usize)
    }

    pub(crate) fn add(&mut self, exposed: Box<dyn Exposed>) {
        self.large = Some(exposed);
    }

    pub(crate) fn refuse(&mut self) {
        self.state = State::Refused;
        self.idle_sweeps = 0;
    }

    /// The ring that the peer should use. Call [`Self::asked`] after asking the peer.
    pub(crate) fn wanted(&self) -> Option<NewRing> {
        let (memory, bytes) = match (self.state, &self.large) {
            (State::Claimed, Some(large)) => (large.memory(), self.large_bytes),
            (State::Large, Some(_)) if self.idle_sweeps >= IDLE_SWEEPS => (&self.first, self.first_bytes()),
            _ => return None,
        };
        let target = memory.remote_address(0);
        Some(NewRing { target, bytes })
    }

    pub(crate) fn asked(&mut self) {
        self.state = match self.state {
            State::Claimed => State::Growing,
            _ => State::Shrinking,
        };
    }

    /// Notes that the peer has changed to the new ring.
    pub(crate) fn replaced(&mut self) {
        self.state = match self.state {
            State::Growing => State::Large,
            _ => State::Shrunk,
        };
        self.crowded = 0;
        self.used_bytes = 0;
        self.idle_sweeps = 0;
    }

    /// Called when the ring was replaced, or read to its end. Returns true if a large ring must be revoked: it was
    /// replaced, and all its bytes have been read.
    #[must_use]
    pub(crate) fn release(&mut self, reads_old: bool) -> bool {
        if self.state != State::Shrunk || reads_old {
            return false;
        }
        self.state = State::Small;
        // There is at most one: the next large ring is made after this one is taken to be revoked.
        self.unused = self.large.take();
        true
    }

    /// Called at intervals. Returns false if there is nothing left to do.
    pub(crate) fn sweep(&mut self) -> bool {
        let is_idle = self.used_bytes <= self.first_bytes() / 2;
        self.used_bytes = 0;
        self.crowded = 0;
        match self.state {
            State::Large => self.idle_sweeps = if is_idle { self.idle_sweeps + 1 } else { 0 },
            State::Refused => {
                self.idle_sweeps += 1;
                if self.idle_sweeps >= IDLE_SWEEPS {
                    self.state = State::Small;
                }
            }
            State::Small | State::Claimed | State::Growing | State::Shrinking | State::Shrunk => {}
        }
        self.state != State::Small
    }

    pub(crate) fn bytes(&self) -> usize {
        self.large.as_ref().map_or(0, |large| large.memory().bytes())
    }
}
