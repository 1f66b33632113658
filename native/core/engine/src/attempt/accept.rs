//! Waiting for one peer.

use std::time::Instant;

use inet_rdma_fabric::{FabricError, Listener, waiting};

use super::promise::{AttemptError, Outcome, Slot, settled};

/// Blocks until the listener gives a queue pair or has ended, or the deadline has passed. Closes the listener.
pub(super) fn accept(mut listener: Box<dyn Listener>, deadline: Instant, slot: &Slot) -> Outcome {
    let mut refused = 0u32;
    let mut last_refusal = None;
    loop {
        match listener.poll_accept() {
            Some(Ok(qp)) => return Ok(settled(qp)),
            Some(Err(error)) if listener.is_over() => return Err(error.into()),
            // Other peers may wait.
            Some(Err(error)) => {
                refused = refused.saturating_add(1);
                last_refusal = Some(error);
            }
            None => wait(&*listener, deadline, slot)?,
        }
        if Instant::now() >= deadline || slot.is_cancelled() {
            return Err(match last_refusal {
                None => FabricError::TimedOut.into(),
                Some(last) => AttemptError::OnlyStrangers { refused, last },
            });
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
