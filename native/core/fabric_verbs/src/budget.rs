//! The memory that this process has pinned for devices, over all connections, and the bound of it.
//!
//! The process has one count, to which each registration adds before it asks the kernel. Each request names the bound,
//! an option of its connection; all connections of a node have the same option.
//!
//! # Fairness
//! A new connection may use all of the bound. A later request, for a larger ring or landing buffers, must leave a
//! quarter of the bound to new connections, and gets no more than half of the rest that is free. So a few busy
//! connections do not keep others from growing, and none keeps a new connection off the device. Connections give
//! memory of later requests back when it is idle; a connection whose request is refused goes on with its present ring.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use inet_rdma_fabric::FabricError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// A connection cannot be made without it.
    First,
    /// A connection would be faster with it.
    More,
}

/// The part of the bound (1/4) that is kept for new connections.
const KEPT_PARTS: u64 = 4;

/// The part of the free rest (1/2) that one later request may take.
const SHARE_PARTS: u64 = 2;

/// The part of the machine's memory (1/4) that is the bound where neither an option nor the system sets one.
const MEMORY_PARTS: u64 = 4;

static PROCESS: Budget = Budget(AtomicU64::new(0));

/// Bytes that this process has pinned.
pub fn pinned_bytes() -> u64 {
    PROCESS.0.load(Ordering::Relaxed)
}

/// The bound where the option `pinned_max_bytes` is 0: the bytes that the process may lock, at most a quarter of the
/// machine's memory.
fn default_bytes() -> u64 {
    static DEFAULT: OnceLock<u64> = OnceLock::new();
    *DEFAULT.get_or_init(|| {
        let system = rustix::system::sysinfo();
        let memory = (system.totalram as u64).saturating_mul(system.mem_unit.into()) / MEMORY_PARTS;
        let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
        if may_lock_all() {
            memory
        } else {
            limit.map_or(memory, |limit| limit.min(memory))
        }
    })
}

/// Takes `bytes` of the process's bound. `max`: the option; 0: the default.
pub(crate) fn take(bytes: usize, need: Need, max: u64, own: &Arc<AtomicU64>) -> Result<Charge, FabricError> {
    let max = if max == 0 { default_bytes() } else { max };
    PROCESS.take(bytes as u64, need, max)?;
    own.fetch_add(bytes as u64, Ordering::Relaxed);
    Ok(Charge {
        bytes: bytes as u64,
        own: Arc::clone(own),
    })
}

/// Pinned bytes of a connection, which count until this is dropped.
pub(crate) struct Charge {
    bytes: u64,
    own: Arc<AtomicU64>,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.own.fetch_sub(self.bytes, Ordering::Relaxed);
        PROCESS.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Budget(AtomicU64);

impl Budget {
    fn take(&self, bytes: u64, need: Need, max: u64) -> Result<(), FabricError> {
        let fits = |pinned: u64| {
            let sum = pinned.checked_add(bytes)?;
            let fits = match need {
                Need::First => sum <= max,
                Need::More => {
                    let left = (max - max / KEPT_PARTS).saturating_sub(pinned);
                    bytes <= left / SHARE_PARTS
                }
            };
            fits.then_some(sum)
        };
        // Relaxed: the count orders nothing else.
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken
            .map(|_| ())
            .map_err(|pinned| FabricError::PinnedLimit { bytes, pinned, max })
    }
}

/// Whether the kernel sets this process no limit: it has CAP_IPC_LOCK in the first user namespace.
fn may_lock_all() -> bool {
    const CAP_IPC_LOCK: u32 = 14;
    let read = |file| std::fs::read_to_string(file).unwrap_or_default();
    let status = read("/proc/self/status");
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let map = read("/proc/self/uid_map");
    let is_first = map.split_whitespace().eq(["0", "0", "4294967295"]);
    is_first && effective.is_some_and(|mask| mask >> CAP_IPC_LOCK & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;
    const MIB: u64 = 1024 * KIB;

    /// Takes again and again until it is refused; returns how often.
    fn fill(budget: &Budget, bytes: u64, need: Need, max: u64) -> usize {
        (0..10_000)
            .take_while(|_| budget.take(bytes, need, max).is_ok())
            .count()
    }

    #[test]
    fn sixty_four_kib_hold_no_connection() {
        let budget = Budget::default();
        let refused = budget.take(160 * KIB, Need::First, 64 * KIB);
        let expected = FabricError::PinnedLimit {
            bytes: 160 * KIB,
            pinned: 0,
            max: 64 * KIB,
        };
        assert_eq!(refused, Err(expected));
        assert_eq!(budget.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn eight_mib_hold_new_connections_whatever_the_others_have_grown_to() {
        let budget = Budget::default();
        assert_eq!(fill(&budget, 160 * KIB, Need::First, 8 * MIB), 51);
        let budget = Budget::default();
        let grown = fill(&budget, 512 * KIB, Need::More, 8 * MIB) as u64 * 512 * KIB;
        assert!((4 * MIB..=6 * MIB).contains(&grown), "{grown}");
        assert!(fill(&budget, 160 * KIB, Need::First, 8 * MIB) >= 12);
        assert!(budget.take(512 * KIB, Need::More, 8 * MIB).is_err());
    }

    #[test]
    fn no_request_for_more_takes_all_that_is_left() {
        let budget = Budget::default();
        assert!(budget.take(16 * MIB, Need::More, 32 * MIB).is_err());
        assert!(budget.take(8 * MIB, Need::More, 32 * MIB).is_ok());
        assert!(budget.take(8 * MIB, Need::More, 32 * MIB).is_ok());
        assert!(budget.take(8 * MIB, Need::More, 32 * MIB).is_err());
        assert!(budget.take(4 * MIB, Need::More, 32 * MIB).is_ok());
    }

    #[test]
    fn an_unlimited_bound_refuses_nothing() {
        let budget = Budget::default();
        assert_eq!(fill(&budget, 17 * MIB, Need::More, u64::MAX), 10_000);
        assert!(
            budget.take(u64::MAX, Need::First, u64::MAX).is_err(),
            "but what cannot be counted"
        );
    }

    #[test]
    fn a_charge_counts_until_it_is_dropped() {
        let own = Arc::new(AtomicU64::new(0));
        let charge = take(4096, Need::First, u64::MAX, &own).expect("room");
        assert_eq!(own.load(Ordering::Relaxed), 4096);
        assert!(pinned_bytes() >= 4096);
        drop(charge);
        assert_eq!(own.load(Ordering::Relaxed), 0);
        assert!(default_bytes() > 0);
    }
}
