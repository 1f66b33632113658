//! When a link has earned a queue pair.

/// Number of packets of both directions after which a link has earned a queue pair. Set-up, `global` and `pg` take
/// fewer packets on a link without traffic of its users.
const EARNED_PACKETS: u64 = 64;
/// Number of bytes after which a link has earned a queue pair.
const EARNED_BYTES: u64 = 256 * 1024;

/// Traffic over TCP, of both directions.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Traffic {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

/// The traffic by which a link earns its next queue pair.
#[derive(Debug, Default)]
pub(super) struct Earning {
    /// It was earned, and told.
    is_over: bool,
    /// Earlier traffic, which does not count.
    before: Traffic,
}

impl Earning {
    /// Counts from here on: this side goes back from a queue pair.
    pub(super) fn begin_anew(&mut self, passed: Traffic) {
        *self = Earning {
            is_over: false,
            before: passed,
        };
    }

    /// The link moves to a queue pair, earned or not. If the queue pair is lost, the carrier's timers begin the next
    /// settlement.
    pub(super) fn end(&mut self) {
        self.is_over = true;
    }

    /// True once: with the traffic that has passed the link has earned a queue pair.
    pub(super) fn is_earned_by(&mut self, passed: Traffic) -> bool {
        let is_earned = !self.is_over
            && (passed.packets - self.before.packets >= EARNED_PACKETS
                || passed.bytes - self.before.bytes >= EARNED_BYTES);
        self.is_over |= is_earned;
        is_earned
    }
}
