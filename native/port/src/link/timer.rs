//! The timer of the port, and its mark.

use std::time::Instant;

use super::Link;
use crate::port::Port;
use crate::queue::Queue;

/// What the port's timer is set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Timer {
    /// It is not set.
    #[default]
    Unset,
    /// 0 ms: the VM calls after the port task that is under way.
    Soon,
    /// This time.
    At(Instant),
}

impl Link {
    /// Sets the timer to the next time at which there is something to do, and tells the VM whether bytes wait.
    pub(super) fn schedule(&mut self, port: Port) {
        // Gathered packets go with the timer. Before the port closes, the VM must be told to wait for them, too.
        let waits = self.unsent_bytes() > 0 && (!self.gathers || self.deadline.is_some());
        if waits && !self.is_marked {
            port.enqueue(&[0]);
            self.is_marked = true;
        } else if !waits && self.is_marked {
            self.unmark(port);
        }
        if self.timer == Timer::Soon {
            return;
        }
        if self.gathers || self.queue.as_ref().is_some_and(Queue::is_due) {
            self.timer = Timer::Soon;
            port.set_timer(0);
            return;
        }
        let next = self.deadline.into_iter().chain(self.stall.at()).min();
        if let Some(at) = next.filter(|&at| self.timer != Timer::At(at)) {
            self.timer = Timer::At(at);
            port.set_timer(milliseconds_until(at));
        }
    }

    /// Takes the byte out of the port's queue.
    pub(super) fn unmark(&mut self, port: Port) {
        port.dequeue(port.queued_bytes());
        self.is_marked = false;
    }
}

fn milliseconds_until(deadline: Instant) -> u32 {
    let left = deadline.saturating_duration_since(Instant::now()).as_millis();
    // At least 1: the timer may be a little early.
    u32::try_from(left).unwrap_or(u32::MAX).saturating_add(1)
}
