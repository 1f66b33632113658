//! When a link has earned a queue pair.

use super::Link;
use super::notices::EARNED;
use crate::port::Port;

/// Number of packets of both directions after which a link has earned a queue pair. Set-up, `global` and `pg` take
/// fewer packets on a link without traffic of its users.
const EARNED_PACKETS: u64 = 64;
/// Number of bytes after which a link has earned a queue pair.
const EARNED_BYTES: u64 = 256 * 1024;

/// The traffic over TCP by which a link earns its next queue pair.
#[derive(Debug, Default)]
pub(super) struct Earning {
    /// The watcher was told that the link has earned it.
    is_told: bool,
    /// Earlier traffic, which does not count: packets of both directions.
    packets_before: u64,
    /// Their bytes.
    bytes_before: u64,
}

impl Link {
    /// Begins to count anew: the link is back from a queue pair.
    pub(super) fn earn_anew(&mut self) {
        let (packets_before, bytes_before) = self.passed();
        self.earning = Earning {
            is_told: false,
            packets_before,
            bytes_before,
        };
    }

    /// Tells the watcher, once, that the link has earned a queue pair.
    pub(super) fn look_whether_earned(&mut self, port: Port) {
        if self.earning.is_told || self.watcher.is_none() {
            return;
        }
        let (packets, bytes) = self.passed();
        let Earning {
            packets_before,
            bytes_before,
            ..
        } = self.earning;
        if packets - packets_before >= EARNED_PACKETS || bytes - bytes_before >= EARNED_BYTES {
            self.earning.is_told = true;
            self.tell(port, EARNED);
        }
    }

    /// Packets and bytes of both directions over TCP.
    fn passed(&self) -> (u64, u64) {
        let counts = self.session.counts();
        (
            counts.packets_received + counts.packets_sent,
            counts.bytes_received + counts.bytes_sent,
        )
    }
}
