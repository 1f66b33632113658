//! The plan, and what it does to the completions of one direction.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use inet_rdma_fabric::{Completion, FabricError, QueuePair};

use crate::distance::Distance;
use crate::exposing::Exposing;

/// The faults to inject. The same seed, plan and sequence of calls give the same faults (but for [`Delay::For`] and
/// `distance`, which look at the clock).
#[derive(Debug, Clone, Default)]
pub struct FaultPlan {
    /// Where the pseudo-random choices start.
    pub seed: u64,
    /// How many of 1,000 notices are delayed.
    pub delayed_notices: u16,
    /// How many of 1,000 control messages are delayed.
    pub delayed_controls: u16,
    /// For how long.
    pub delay: Delay,
    /// How long every completion is under way: one is not held up by those before it, as on a long line.
    pub distance: Duration,
    /// Posts of a queue pair that go through; the next post ends the connection instead.
    pub drop_after_posts: Option<u64>,
    /// How more memory is exposed.
    pub exposing: Exposing,
    /// A write must not be larger than this, in bytes, not 0.
    pub write_room_max: Option<usize>,
}

/// How long a completion is held back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delay {
    /// Until this many more polls of the queue pair have come back without it. Virtual time: repeatable. While it lasts
    /// arming fails, so that a waiting party polls.
    Polls(RangeInclusive<u32>),
    /// Real time.
    For(RangeInclusive<Duration>),
}

impl Default for Delay {
    fn default() -> Self {
        Delay::Polls(1..=1)
    }
}

/// When the oldest completion can be had.
pub(crate) enum NextDue {
    /// The inner queue pair knows.
    Unknown,
    /// After a number of polls.
    AfterPolls,
    /// At this time.
    At(Instant),
    /// At this time; the inner queue pair is to be asked meanwhile for what sets out.
    UnderWay(Instant),
}

/// The completions of one direction. At most one is held back here; those behind it stay in the receive queue.
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

    /// The next one of the inner queue pair, unless it is to be delayed; then it is held back from now on.
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
            // This poll is the first that comes back without it.
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
