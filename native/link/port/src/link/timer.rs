//! The timer of the port.

use std::time::Instant;

use crate::port::Port;

/// What the port's timer is set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Timer {
    #[default]
    Unset,
    /// 0 ms: the VM calls after the port task that is under way.
    Soon,
    At(Instant),
}

impl Timer {
    /// Has the VM call after the port task that is under way.
    pub(super) fn set_soon(&mut self, port: Port) {
        if *self != Timer::Soon {
            *self = Timer::Soon;
            port.set_timer(0);
        }
    }

    /// Has the VM call at this time, or earlier if it is set to 0 ms.
    pub(super) fn set_at(&mut self, port: Port, at: Instant) {
        if *self != Timer::Soon && *self != Timer::At(at) {
            *self = Timer::At(at);
            port.set_timer(milliseconds_until(at));
        }
    }
}

fn milliseconds_until(deadline: Instant) -> u32 {
    let left = deadline.saturating_duration_since(Instant::now()).as_millis();
    // At least 1: the timer may be a little early.
    u32::try_from(left).unwrap_or(u32::MAX).saturating_add(1)
}
