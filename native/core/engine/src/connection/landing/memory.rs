//! The memory of a connection's landing buffers: claimed when bulk comes, doubled when all of it is in use, given back
//! when nothing has landed for a while.

use std::sync::Arc;

use inet_rdma_assembly::{LandingBuffer, LandingPool};
use inet_rdma_fabric::Exposed;

use crate::memory_thread::IDLE_SWEEPS;

/// Size of the first area of a fabric that pins exposed memory. Each further area doubles the whole: little is pinned
/// for little bulk, and the bound of 17 MiB is reached with six registrations.
const FIRST_AREA_BYTES: usize = 1 << 20;

/// Minimum number of buffers in the first area: one is written while another one is read.
const FIRST_AREA_BUFFERS: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The fabric pins the memory. A thread that may wait gets it, area by area.
    Pinned,
    /// All memory is mapped from the start, and takes nothing until it is touched, so it comes at once.
    Mapped,
}

/// Whether more memory is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LandingState {
    /// No memory was needed so far, or it was given back.
    Unused,
    /// Memory has been asked for.
    Claimed,
    /// There are landing buffers.
    Ready,
    /// The system refuses more memory for now: bytes without a landing buffer go through the ring.
    Refused,
}

struct Area {
    pool: Arc<LandingPool>,
    exposed: Box<dyn Exposed>,
}

pub(crate) struct LandingMemory {
    source: Source,
    pub(crate) buffer_bytes: usize,
    pub(crate) count_max: u16,
    areas: Vec<Area>,
    pub(crate) state: LandingState,
    /// Number of landings at the last claim, and at the last sweep.
    landings_at_claim: u64,
    landings_at_sweep: u64,
    idle_sweeps: u32,
    /// Sweeps until memory that was refused is asked for again.
    refused_sweeps: u32,
    pub(crate) refusals: u64,
    /// True if the sweeping thread knows the connection.
    is_swept: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing to do now; sweep again.
    Later,
    /// Nothing to do until memory is claimed again.
    Never,
    /// Nothing has landed for a while: give the memory back.
    GiveBack,
}

impl LandingMemory {
    pub(crate) fn new(source: Source, buffer_bytes: usize, landing_area_bytes: usize) -> Self {
        let count_max = landing_area_bytes.checked_div(buffer_bytes).unwrap_or(0);
        Self {
            source,
            buffer_bytes,
            count_max: u16::try_from(count_max).unwrap_or(u16::MAX),
            areas: Vec::new(),
            state: LandingState::Unused,
            landings_at_claim: 0,
            landings_at_sweep: 0,
            idle_sweeps: 0,
            refused_sweeps: 0,
            refusals: 0,
            is_swept: false,
        }
    }

    /// Takes a free buffer. None: the peer or the user has all present buffers.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<LandingBuffer> {
        // Usually the first area has a free buffer.
        let (first, others) = self.areas.split_first()?;
        first
            .pool
            .take()
            .or_else(|| others.iter().find_map(|area| area.pool.take()))
    }

    pub(crate) fn count(&self) -> u16 {
        self.areas.iter().map(|area| area.pool.count()).sum()
    }

    /// Number of buffers that the peer or the user has.
    pub(crate) fn used(&self) -> u16 {
        self.areas.iter().map(|area| area.pool.used()).sum()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.areas.iter().map(|area| area.exposed.memory().bytes()).sum()
    }

    /// Called when a buffer is needed and none is free. Returns true if it has claimed memory: the caller must have it
    /// fetched.
    pub(crate) fn claim(&mut self, landings: u64) -> bool {
        let is_used = self.areas.is_empty() || landings > self.landings_at_claim;
        let may = matches!(self.state, LandingState::Unused | LandingState::Ready);
        if !may || !is_used || self.count() == self.count_max {
            return false;
        }
        self.landings_at_claim = landings;
        self.state = LandingState::Claimed;
        self.is_swept = true;
        true
    }

    /// Returns true once, when buffers come into use that the sweeping thread does not know of.
    #[inline]
    pub(crate) fn wants_sweep(&mut self) -> bool {
        let wants = !self.is_swept;
        self.is_swept = true;
        wants
    }

    /// Bytes that are claimed and not fetched yet. None: nothing is claimed.
    pub(crate) fn claimed_bytes(&self) -> Option<usize> {
        if self.state != LandingState::Claimed {
            return None;
        }
        let have = usize::from(self.count());
        let left = usize::from(self.count_max) - have;
        let more = match self.source {
            Source::Mapped => left,
            Source::Pinned if have > 0 => have.min(left),
            Source::Pinned => (FIRST_AREA_BYTES / self.buffer_bytes.max(1))
                .max(FIRST_AREA_BUFFERS)
                .min(left),
        };
        Some(more * self.buffer_bytes)
    }

    pub(crate) fn add(&mut self, exposed: Box<dyn Exposed>) {
        let pool = LandingPool::new(
            Arc::clone(exposed.memory()),
            exposed.windows(),
            self.buffer_bytes,
            self.count(),
        );
        self.areas.push(Area { pool, exposed });
        self.state = LandingState::Ready;
    }

    pub(crate) fn refuse(&mut self) {
        self.state = LandingState::Refused;
        self.refused_sweeps = IDLE_SWEEPS;
        self.refusals += 1;
    }

    /// Called at intervals, with the landings so far.
    pub(crate) fn sweep(&mut self, landings: u64) -> Due {
        if self.state == LandingState::Refused {
            self.refused_sweeps = self.refused_sweeps.saturating_sub(1);
            if self.refused_sweeps == 0 {
                self.state = if self.areas.is_empty() {
                    LandingState::Unused
                } else {
                    LandingState::Ready
                };
            }
        }
        let is_idle = landings == std::mem::replace(&mut self.landings_at_sweep, landings);
        self.idle_sweeps = if is_idle { self.idle_sweeps + 1 } else { 0 };
        match self.state {
            LandingState::Unused => self.forget(),
            LandingState::Ready | LandingState::Refused
                if !self.areas.is_empty() && self.idle_sweeps >= IDLE_SWEEPS =>
            {
                Due::GiveBack
            }
            _ => Due::Later,
        }
    }

    fn forget(&mut self) -> Due {
        self.is_swept = false;
        self.idle_sweeps = 0;
        Due::Never
    }

    /// True if all memory can be given back now. False: the device still uses it; ask again later.
    pub(crate) fn is_unused(&self) -> bool {
        self.areas.iter().fold(true, |all, area| all & area.exposed.is_unused())
    }

    /// Gives the memory back: pinned areas, or the pages of free mapped buffers. Call it when no buffer is advertised.
    /// [`GivenBack::release`] must follow, on a thread that may wait.
    pub(crate) fn give_back(&mut self) -> GivenBack {
        self.forget();
        match self.source {
            Source::Mapped => GivenBack {
                revoked: Vec::new(),
                pools: self.areas.iter().map(|area| Arc::clone(&area.pool)).collect(),
            },
            Source::Pinned => {
                self.state = LandingState::Unused;
                let (pools, revoked) = self.areas.drain(..).map(|area| (area.pool, area.exposed)).unzip();
                GivenBack { revoked, pools }
            }
        }
    }
}

/// Memory that a connection has given back.
#[must_use]
pub(crate) struct GivenBack {
    revoked: Vec<Box<dyn Exposed>>,
    pools: Vec<Arc<LandingPool>>,
}

impl GivenBack {
    /// Revokes the peer's access, and gives the pages of free buffers back to the system. Buffers that the user holds
    /// keep their pages. May take long.
    pub(crate) fn release(self) {
        self.revoked.into_iter().for_each(|exposed| exposed.revoke());
        self.pools.iter().for_each(|pool| pool.discard_free());
    }
}

#[cfg(test)]
mod tests;
