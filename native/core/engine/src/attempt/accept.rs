//! Waiting for one peer.

use std::time::Instant;

use inet_rdma_fabric::{FabricError, Listener, waiting};

use super::promise::{AttemptError, Outcome, SETTLED, Slot};

/// Blocks until the listener gives a queue pair or has ended, or the deadline has passed. Closes the listener.
pub(super) fn accept(mut listener: Box<dyn Listener>, deadline: Instant, slot: &Slot) -> Outcome {
    let mut strangers = Strangers::default();
    loop {
        match listener.poll_accept() {
            Some(Ok(qp)) => {
                let why = format!("{SETTLED}: {}", qp.route());
                return Ok((qp, why));
            }
            Some(Err(error)) if listener.is_over() => return Err(error.into()),
            // Other peers may wait.
            Some(Err(error)) => strangers.add(error),
            None => wait(&*listener, deadline, slot)?,
        }
        if Instant::now() >= deadline || slot.is_cancelled() {
            return Err(strangers.sum());
        }
    }
}

/// Peers that were refused.
#[derive(Default)]
struct Strangers {
    refused: u32,
    last: Option<FabricError>,
}

impl Strangers {
    fn add(&mut self, error: FabricError) {
        self.refused = self.refused.saturating_add(1);
        self.last = Some(error);
    }

    /// The reason why there is no queue pair.
    fn sum(self) -> AttemptError {
        match self.last {
            None => FabricError::TimedOut.into(),
            Some(last) => AttemptError::OnlyStrangers {
                refused: self.refused,
                last,
            },
        }
    }
}

/// Waits for an event of the listener, until the deadline.
fn wait(listener: &dyn Listener, deadline: Instant, slot: &Slot) -> Result<(), FabricError> {
    let wake = listener.next_deadline().map_or(deadline, |next| next.min(deadline));
    let mut fds = vec![listener.event_fd()];
    fds.extend(slot.cancelled_fd());
    waiting::until_readable(&fds, Some(wake), "waiting for a peer")
}
