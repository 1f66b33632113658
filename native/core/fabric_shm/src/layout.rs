//! The layout of one side's memory: the receive queue, the ring, the landing area.

use inet_rdma_fabric::{FabricError, Misbehaviour, Parameters};
use inet_rdma_stream::{Hello, Limits, LimitsError, RemoteAddress};

use crate::queue::{Entry, QueueHeader};

/// The key of a side's ring in a [`RemoteAddress`]; not 0, so that a missing key is found.
pub(crate) const RING_KEY: u64 = 1;

/// The key of the landing area.
pub(crate) const LANDING_KEY: u64 = 2;

/// Maximum size of a landing area: the largest [`Parameters::landing_area_bytes`], in whole pages.
const LANDING_MAX: u64 = (u32::MAX as u64).next_multiple_of(4096);

/// Byte offsets in the memory of one side. It starts with the queue header, the queue's entries follow, then on pages
/// of their own the ring and the landing area.
///
/// # Invariants
///
/// * `entries_offset` is a multiple of the entry's alignment, and `entries` entries end at or before `ring_offset`.
/// * `entries` is a power of two and at least `slots`.
/// * `ring_offset + ring_bytes <= landing_start`, `landing_start + landing_area_bytes == total_bytes`, all without
///   overflow, and `total_bytes <= isize::MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) slots: u16,
    pub(crate) entries: usize,
    pub(crate) entries_offset: usize,
    pub(crate) ring_offset: usize,
    pub(crate) ring_bytes: usize,
    pub(crate) landing_start: usize,
    pub(crate) landing_area_bytes: usize,
    pub(crate) total_bytes: usize,
}

impl Layout {
    /// The layout of this side's memory.
    pub(crate) fn of(parameters: &Parameters) -> Result<Layout, FabricError> {
        let front = Front::of(&parameters.limits)?;
        Ok(front.with_landing(u64::from(parameters.landing_area_bytes)))
    }

    /// The layout of the peer's memory, as its hello gives it. The rest of its `file_bytes` is the landing area.
    pub(crate) fn of_peer(hello: &Hello, file_bytes: u64) -> Result<Layout, FabricError> {
        if hello.ring
            != (RemoteAddress {
                key: RING_KEY,
                address: 0,
            })
        {
            return Err(misbehaved(Misbehaviour::RingElsewhere(hello.ring)));
        }
        let front = Front::of(&hello.limits()).map_err(|error| misbehaved(error.into()))?;
        let landing_area_bytes = file_bytes.checked_sub(front.landing_start);
        match landing_area_bytes {
            Some(bytes) if bytes <= LANDING_MAX && bytes % page_bytes() == 0 => Ok(front.with_landing(bytes)),
            _ => Err(misbehaved(Misbehaviour::MemoryBytes {
                bytes: file_bytes,
                least: front.landing_start,
            })),
        }
    }

    /// The offset in the memory of `bytes` bytes at `address` of the ring. None: they do not lie in the ring as a
    /// whole.
    pub(crate) fn locate_in_ring(&self, address: u64, bytes: usize) -> Option<usize> {
        let first = usize::try_from(address).ok()?;
        let end = first.checked_add(bytes)?;
        (end <= self.ring_bytes).then(|| self.ring_offset + first)
    }

    /// The offset in the memory of `bytes` bytes at `target`. None: they lie neither in the ring nor in the landing
    /// area as a whole.
    pub(crate) fn locate(&self, target: RemoteAddress, bytes: usize) -> Option<usize> {
        match target.key {
            RING_KEY => self.locate_in_ring(target.address, bytes),
            LANDING_KEY => {
                let first = usize::try_from(target.address).ok()?;
                let end = first.checked_add(bytes)?;
                (end <= self.landing_area_bytes).then(|| self.landing_start + first)
            }
            _ => None,
        }
    }
}

/// The part of a layout that a hello determines.
struct Front {
    slots: u16,
    entries: u64,
    ring_offset: u64,
    ring_bytes: u64,
    landing_start: u64,
}

impl Front {
    fn of(limits: &Limits) -> Result<Front, LimitsError> {
        limits.check()?;
        let slots = limits.receive_slots;
        let entries = u64::from(slots).next_power_of_two();
        let queue_bytes = (size_of::<QueueHeader>() as u64) + entries * (size_of::<Entry>() as u64);
        let ring_offset = queue_bytes.next_multiple_of(page_bytes());
        let ring_bytes = u64::from(limits.ring_bytes);
        let landing_start = (ring_offset + ring_bytes).next_multiple_of(page_bytes());
        Ok(Front {
            slots,
            entries,
            ring_offset,
            ring_bytes,
            landing_start,
        })
    }

    // The sums stay below 2^34 (65,536 entries of 64 bytes, 2^31 of ring, 2^32 of landing area, three pages), so
    // nothing below can wrap on the 64-bit machines that this crate supports.
    fn with_landing(self, landing_area_bytes: u64) -> Layout {
        let landing_area_bytes = landing_area_bytes.next_multiple_of(page_bytes()) as usize;
        Layout {
            slots: self.slots,
            entries: self.entries as usize,
            entries_offset: size_of::<QueueHeader>(),
            ring_offset: self.ring_offset as usize,
            ring_bytes: self.ring_bytes as usize,
            landing_start: self.landing_start as usize,
            landing_area_bytes,
            total_bytes: self.landing_start as usize + landing_area_bytes,
        }
    }
}

const _: () = assert!(
    usize::BITS >= 64,
    "a connection's memory is laid out with 64-bit offsets"
);

fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

fn misbehaved(what: Misbehaviour) -> FabricError {
    FabricError::PeerMisbehaved(what)
}
