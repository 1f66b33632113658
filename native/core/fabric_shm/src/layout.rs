//! The layout of one side's memory: the receive queue, the ring, the landing area.

use inet_rdma_fabric::{FabricError, Misbehaviour, Parameters};
use inet_rdma_stream::{Hello, Limits, LimitsError, RemoteAddress};
use rustix::param::page_size;

use crate::queue::{Entry, QueueHeader};

/// The key of a side's ring in a [`RemoteAddress`]; not 0, so that a missing key is found.
pub(crate) const RING_KEY: u64 = 1;

/// The ring of a side, which begins where its memory does.
pub(crate) const RING: RemoteAddress = RemoteAddress {
    key: RING_KEY,
    address: 0,
};

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

const _: () = assert!(
    usize::BITS >= 64,
    "a connection's memory is laid out with 64-bit offsets"
);

impl Layout {
    pub(crate) fn of(parameters: &Parameters) -> Result<Layout, FabricError> {
        let layout = Layout::without_landing(&parameters.limits)?;
        Ok(layout.with_landing(parameters.landing_area_bytes as usize))
    }

    /// The layout of the peer's memory, as its hello gives it. The rest of its `file_bytes` is the landing area.
    pub(crate) fn of_peer(hello: &Hello, file_bytes: u64) -> Result<Layout, FabricError> {
        if hello.ring != RING {
            return Err(misbehaved(Misbehaviour::RingElsewhere(hello.ring)));
        }
        let layout = Layout::without_landing(&hello.limits()).map_err(|error| misbehaved(error.into()))?;
        let least = layout.landing_start as u64;
        match file_bytes.checked_sub(least) {
            Some(bytes) if bytes <= LANDING_MAX && bytes % page_size() as u64 == 0 => {
                Ok(layout.with_landing(bytes as usize))
            }
            _ => Err(misbehaved(Misbehaviour::MemoryBytes {
                bytes: file_bytes,
                least,
            })),
        }
    }

    // The sums stay below 2^34 (65,536 entries of 64 bytes, 2^31 of ring, 2^32 of landing area, three pages), so
    // nothing below can wrap on the 64-bit machines that this crate supports.
    fn without_landing(limits: &Limits) -> Result<Layout, LimitsError> {
        limits.check()?;
        let slots = limits.receive_slots;
        let entries = usize::from(slots).next_power_of_two();
        let entries_offset = size_of::<QueueHeader>();
        let ring_offset = (entries_offset + entries * size_of::<Entry>()).next_multiple_of(page_size());
        let ring_bytes = limits.ring_bytes as usize;
        let landing_start = (ring_offset + ring_bytes).next_multiple_of(page_size());
        Ok(Layout {
            slots,
            entries,
            entries_offset,
            ring_offset,
            ring_bytes,
            landing_start,
            landing_area_bytes: 0,
            total_bytes: landing_start,
        })
    }

    fn with_landing(self, bytes: usize) -> Layout {
        let landing_area_bytes = bytes.next_multiple_of(page_size());
        Layout {
            landing_area_bytes,
            total_bytes: self.landing_start + landing_area_bytes,
            ..self
        }
    }

    /// The offset in the memory of `bytes` bytes at `address` of the ring. None: they do not lie in the ring as a
    /// whole.
    pub(crate) fn locate_in_ring(&self, address: u64, bytes: usize) -> Option<usize> {
        Some(self.ring_offset + locate_in(self.ring_bytes, address, bytes)?)
    }

    /// The offset in the memory of `bytes` bytes at `target`. None: they lie neither in the ring nor in the landing
    /// area as a whole.
    pub(crate) fn locate(&self, target: RemoteAddress, bytes: usize) -> Option<usize> {
        match target.key {
            RING_KEY => self.locate_in_ring(target.address, bytes),
            LANDING_KEY => Some(self.landing_start + locate_in(self.landing_area_bytes, target.address, bytes)?),
            _ => None,
        }
    }
}

/// `address` as an offset in an area of `area_bytes`. None: the `bytes` bytes there do not lie in it as a whole.
fn locate_in(area_bytes: usize, address: u64, bytes: usize) -> Option<usize> {
    let first = usize::try_from(address).ok()?;
    (first.checked_add(bytes)? <= area_bytes).then_some(first)
}

fn misbehaved(what: Misbehaviour) -> FabricError {
    FabricError::PeerMisbehaved(what)
}
