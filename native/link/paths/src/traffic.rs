//! When a link has earned a queue pair.

/// Number of packets of both directions after which a link has earned a queue pair. Set-up, `global` and `pg` take
/// fewer packets on a link without traffic of its users: 149 at most were counted where 13 nodes meet one after the
/// other, 122 where 30 meet at once.
pub const EARNED_PACKETS: u64 = 256;
/// Number of bytes after which a link has earned a queue pair.
const EARNED_BYTES: u64 = 256 * 1024;

/// Traffic over TCP, of both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Traffic {
    /// Packets without ticks.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The traffic by which a link earns its next queue pair.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct TrafficMeter {
    /// It was earned, and told.
    is_over: bool,
    /// Earlier traffic, which does not count.
    before: Traffic,
}

impl TrafficMeter {
    /// Counts from here on: this side goes back from a queue pair.
    pub fn begin_anew(&mut self, passed: Traffic) {
        *self = TrafficMeter {
            is_over: false,
            before: passed,
        };
    }

    /// The link moves to a queue pair, earned or not. If that is lost the guard's timers begin the next settlement.
    pub fn end(&mut self) {
        self.is_over = true;
    }

    /// True once: with the traffic that has passed the link has earned a queue pair.
    pub fn is_earned_by(&mut self, passed: Traffic) -> bool {
        let is_earned = !self.is_over
            && (passed.packets - self.before.packets >= EARNED_PACKETS
                || passed.bytes - self.before.bytes >= EARNED_BYTES);
        self.is_over |= is_earned;
        is_earned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(packets: u64, bytes: u64) -> Traffic {
        Traffic { packets, bytes }
    }

    #[test]
    fn packets_or_bytes_earn_once() {
        for enough in [traffic(EARNED_PACKETS, 0), traffic(1, EARNED_BYTES)] {
            let mut meter = TrafficMeter::default();
            assert!(!meter.is_earned_by(traffic(EARNED_PACKETS - 1, EARNED_BYTES - 1)));
            assert!(meter.is_earned_by(enough));
            assert!(!meter.is_earned_by(enough), "reported already");
        }
    }

    #[test]
    fn earlier_traffic_does_not_count_behind_a_return() {
        let mut meter = TrafficMeter::default();
        meter.end();
        let before = traffic(10 * EARNED_PACKETS, 10 * EARNED_BYTES);
        assert!(!meter.is_earned_by(before), "it has a queue pair");
        meter.begin_anew(before);
        assert!(!meter.is_earned_by(before));
        assert!(meter.is_earned_by(traffic(before.packets + EARNED_PACKETS, before.bytes)));
    }
}
