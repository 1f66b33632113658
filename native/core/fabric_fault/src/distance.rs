//! The delay between two hosts that are far from each other.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use inet_rdma_fabric::{Completion, FabricError, QueuePair};
use inet_rdma_stream::CONTROL_BYTES;

/// Completions under way, oldest first, each with its time of arrival. A completion starts when a poll first finds it
/// here, so a side that does not poll makes the delay longer.
///
/// There are at most as many as the receive queue has slots: the sender gets no credit for a completion that has not
/// arrived.
#[derive(Debug, Default)]
pub(crate) struct Distance(VecDeque<(Completion, Instant)>);

const BATCH: usize = 8;

impl Distance {
    /// The arrival of the oldest completion. None: nothing is under way.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.0.front().map(|(_, due)| *due)
    }

    pub(crate) fn poll(&mut self, inner: &dyn QueuePair, way: Duration) -> Result<Option<Completion>, FabricError> {
        if way.is_zero() {
            let mut one = [Completion::Control([0; CONTROL_BYTES])];
            let taken = inner.poll(&mut one)?;
            return Ok(one[..taken].first().copied());
        }
        let failed = self.set_out(inner, way).err();
        let now = Instant::now();
        if self.due().is_some_and(|due| due <= now) {
            return Ok(self.0.pop_front().map(|(completion, _)| completion));
        }
        match failed {
            // Completions that started before the fault arrive before it.
            Some(error) if self.0.is_empty() => Err(error),
            _ => Ok(None),
        }
    }

    fn set_out(&mut self, inner: &dyn QueuePair, way: Duration) -> Result<(), FabricError> {
        loop {
            let mut batch = [Completion::Control([0; CONTROL_BYTES]); BATCH];
            let taken = inner.poll(&mut batch)?;
            let due = Instant::now() + way;
            self.0
                .extend(batch[..taken].iter().map(|completion| (*completion, due)));
            if taken < BATCH {
                return Ok(());
            }
        }
    }
}
