//! The plan of faults, and its effect on the completions of one direction.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use inet_rdma_fabric::{Completion, FabricError, QueuePair};

use crate::distance::Distance;
use crate::exposing::Exposing;

/// The faults to inject. The same seed, plan and sequence of calls give the same faults (but for [`Delay::For`] and
/// `distance`, which look at the clock).
#[derive(Debug, Clone, Default)]
pub struct FaultPlan {
    /// Seed of the pseudo-random choices.
    pub seed: u64,
    /// Number of delayed notices of 1,000.
    pub delayed_notices: u16,
    /// Number of delayed control messages of 1,000.
    pub delayed_controls: u16,
    /// Length of a delay.
    pub delay: Delay,
    /// Time that every completion is under way. Completions travel side by side, as on a long line.
    pub distance: Duration,
    /// Number of posts of a queue pair that succeed; the next post ends the connection.
    pub drop_after_posts: Option<u64>,
    /// How more memory is exposed.
    pub exposing: Exposing,
    /// Maximum size of a write in bytes, at least 1.
    pub write_room_max: Option<usize>,
}

/// How long a completion is held back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delay {
    /// For this many further polls of the queue pair. This is virtual time, and repeatable. Arming fails meanwhile, so
    /// that a waiting party polls.
    Polls(RangeInclusive<u32>),
    /// For this real time.
    For(RangeInclusive<Duration>),
}

impl Default for Delay {
    fn default() -> Self {
        Delay::Polls(1..=1)
    }
}

/// The time at which the oldest completion is due.
pub(crate) enum NextDue {
    /// Nothing is held back or under way: the inner queue pair's event tells.
    Unknown,
    AfterPolls,
    At(Instant),
    /// At this time. Poll the inner queue pair meanwhile: further completions start when they are found.
    UnderWay(Instant),
}

/// The completions of one direction. At most one is held back here; later ones stay in the receive queue.
#[derive(Debug)]
pub(crate) struct Inbound {
    random: fastrand::Rng,
    held: Option<(Completion, Due)>,
    distance: Distance,
}

#[derive(Debug)]
enum Due {
    Polls(u32),
    At(Instant),
}

impl Inbound {
    pub(crate) fn new(seed: u64) -> Inbound {
        Inbound {
            random: fastrand::Rng::with_seed(seed),
            held: None,
            distance: Distance::default(),
        }
    }

    pub(crate) fn next(&self) -> NextDue {
        match &self.held {
            None => self.distance.due().map_or(NextDue::Unknown, NextDue::UnderWay),
            Some((_, Due::Polls(_))) => NextDue::AfterPolls,
            Some((_, Due::At(due))) => NextDue::At(*due),
        }
    }

    pub(crate) fn poll(
        &mut self,
        inner: &dyn QueuePair,
        plan: &FaultPlan,
        out: &mut [Completion],
    ) -> Result<usize, FabricError> {
        let mut taken = 0;
        for place in &mut *out {
            let next = match self.release() {
                Held::Nothing => self.take(inner, plan),
                Held::Due(completion) => Ok(Some(completion)),
                Held::Back => break,
            };
            match next {
                Ok(Some(completion)) => *place = completion,
                Ok(None) => break,
                // Hand over the completions before the fault; the next poll finds the fault.
                Err(_) if taken > 0 => break,
                Err(error) => return Err(error),
            }
            taken += 1;
        }
        Ok(taken)
    }

    /// Releases a completion that is held back, if its time has come.
    fn release(&mut self) -> Held {
        match self.held.take() {
            None => Held::Nothing,
            Some((completion, Due::Polls(0))) => Held::Due(completion),
            Some((completion, Due::At(due))) if due <= Instant::now() => Held::Due(completion),
            Some((completion, due)) => {
                let due = match due {
                    Due::Polls(left) => Due::Polls(left - 1),
                    at => at,
                };
                self.held = Some((completion, due));
                Held::Back
            }
        }
    }

    /// The next completion of the inner queue pair. None, also if that completion is held back from now on.
    fn take(&mut self, inner: &dyn QueuePair, plan: &FaultPlan) -> Result<Option<Completion>, FabricError> {
        let Some(completion) = self.distance.poll(inner, plan.distance)? else {
            return Ok(None);
        };
        let delayed_of_1000 = match completion {
            Completion::Notice(_) => plan.delayed_notices,
            Completion::Control(_) => plan.delayed_controls,
        };
        if delayed_of_1000 == 0 || self.random.u16(0..1_000) >= delayed_of_1000 {
            return Ok(Some(completion));
        }
        let due = match &plan.delay {
            // This poll is the first one of the delay.
            Delay::Polls(polls) => Due::Polls(self.random.u32(polls.clone()).saturating_sub(1)),
            Delay::For(time) => {
                let nanos = |time: &Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                let held = self.random.u64(nanos(time.start())..=nanos(time.end()));
                Due::At(Instant::now() + Duration::from_nanos(held))
            }
        };
        self.held = Some((completion, due));
        Ok(None)
    }
}

enum Held {
    Nothing,
    Due(Completion),
    Back,
}
