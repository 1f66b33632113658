//! Waiting for one peer.

use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::{Outcome, Slot, system};
use crate::auto::SETTLED;
use crate::fabric::{FabricError, Listener};

/// Blocks until the listener has a queue pair, is over, or the attempt's time is. The listener is closed when it
/// returns.
pub(super) fn accept(mut listener: Box<dyn Listener>, deadline: Instant, slot: &Slot) -> Outcome {
    let mut strangers = Strangers::default();
    loop {
        match listener.poll_accept() {
            Some(Ok(qp)) => {
                let why = format!("{SETTLED}: {}", qp.route());
                return Ok((qp, why));
            }
            Some(Err(error)) if listener.is_over() => return Err(error),
            // There may be more to look at.
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

    /// Why there is no queue pair.
    fn sum(self) -> FabricError {
        match self.last {
            None => FabricError::TimedOut,
            Some(last) => FabricError::OnlyStrangers {
                refused: self.refused,
                last: Box::new(last),
            },
        }
    }
}

/// Waits until there is something to look at.
fn wait(listener: &dyn Listener, deadline: Instant, slot: &Slot) -> Result<(), FabricError> {
    let wake = listener.next_deadline().map_or(deadline, |next| next.min(deadline));
    let left = Timespec::try_from(wake.saturating_duration_since(Instant::now())).ok();
    let listening = PollFd::from_borrowed_fd(listener.event_fd(), PollFlags::IN);
    let mut fds = vec![listening];
    fds.extend(
        slot.cancelled_fd()
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
    );
    match rustix::event::poll(&mut fds, left.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(system("waiting for a peer", errno)),
    }
}
