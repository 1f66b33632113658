//! The two kinds of memory of a connection: this side's, which the peer writes, and the peer's, which this side writes.

use std::ops::Range;
use std::sync::Arc;

use inet_rdma_fabric::{FabricError, Memory, Misbehaviour};
use inet_rdma_stream::RemoteAddress;

use crate::layout::{LANDING_KEY, Layout, RING_KEY};
use crate::mapping::{Mapping, SealedFile};
use crate::prefetch::prefetch_for_write;
use crate::queue::{Entry, Queue, QueueHeader};

/// A mapping with a known layout.
///
/// # Invariants
///
/// * `mapping.bytes() == layout.total_bytes`.
/// * This process accesses the first `ring_offset` bytes only as the atomics of [`QueueHeader`] and [`Entry`].
/// * No Rust reference to the bytes from `ring_offset` on is ever made: they are accessed through raw pointers, because
///   another process may write them at any time.
struct Region {
    mapping: Mapping,
    layout: Layout,
}

impl Region {
    fn map(file: &SealedFile, layout: Layout) -> Result<Region, FabricError> {
        let mapping = Mapping::of(file)?;
        if mapping.bytes() != layout.total_bytes {
            return Err(FabricError::PeerMisbehaved(Misbehaviour::MemoryBytes {
                bytes: mapping.bytes() as u64,
                least: layout.total_bytes as u64,
            }));
        }
        Ok(Region { mapping, layout })
    }

    fn queue(&self) -> Queue<'_> {
        let base = self.mapping.base();
        // SAFETY: the header is at offset 0, which is page aligned and thus aligned for it, and the layout's invariants
        // say that it fits. It consists of atomics, for which any bytes are a valid value and shared writes are
        // allowed; this process accesses these bytes in no other way (invariant of the type). The mapping lives as
        // long as `self`, from which the reference borrows.
        let header = unsafe { &*base.cast::<QueueHeader>() };
        // SAFETY: as for the header; `entries_offset` is aligned for entries and all `entries` of them end before
        // `ring_offset` by the layout's invariants.
        let entries = unsafe {
            let first = base.add(self.layout.entries_offset).cast::<Entry>();
            std::slice::from_raw_parts(first, self.layout.entries)
        };
        Queue { header, entries }
    }

    /// Gives back the pages that lie in `range` of the `bytes` bytes from `start` on.
    fn discard(&self, start: usize, bytes: usize, range: Range<usize>) {
        let range = start + range.start.min(bytes)..start + range.end.min(bytes);
        self.mapping.discard(range);
    }
}

/// This side's memory, exposed to the peer: its receive queue, ring and landing area. As [`Memory`]: the ring.
pub(crate) struct ExposedMemory(Region);

impl ExposedMemory {
    pub(crate) fn map(file: &SealedFile, layout: Layout) -> Result<ExposedMemory, FabricError> {
        Region::map(file, layout).map(ExposedMemory)
    }

    /// The queue that this side consumes.
    pub(crate) fn queue(&self) -> Queue<'_> {
        self.0.queue()
    }

    /// Copies bytes of an entry to their place in the ring. Returns false and writes nothing if the place is not in the
    /// ring.
    pub(crate) fn place(&self, address: u64, bytes: &[u8]) -> bool {
        let Some(offset) = self.0.layout.locate_in_ring(address, bytes.len()) else {
            return false;
        };
        // SAFETY: `locate_in_ring` says that these bytes are inside the ring, and that is inside the mapping, which
        // lives as long as `self`. The source is memory of this process. No reference into a ring exists: it is read
        // through raw pointers only, by code that stays correct when the ring changes at any moment, be it by the peer
        // or here.
        unsafe {
            let to = self.0.mapping.base().add(offset);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        true
    }
}

impl Memory for ExposedMemory {
    fn base(&self) -> *mut u8 {
        // SAFETY: `ring_offset` is inside the mapping by the invariants.
        unsafe { self.0.mapping.base().add(self.0.layout.ring_offset) }
    }

    fn bytes(&self) -> usize {
        self.0.layout.ring_bytes
    }

    fn remote_address(&self, offset: usize) -> RemoteAddress {
        RemoteAddress {
            key: RING_KEY,
            address: offset as u64,
        }
    }

    fn discard(&self, range: Range<usize>) {
        self.0
            .discard(self.0.layout.ring_offset, self.0.layout.ring_bytes, range);
    }
}

/// A part of the landing area of this side's memory.
///
/// # Invariants
///
/// `offset + bytes <= layout.landing_area_bytes` of `memory`.
pub(crate) struct LandingArea {
    memory: Arc<ExposedMemory>,
    offset: usize,
    bytes: usize,
}

impl LandingArea {
    /// A part of the landing area. None: it would not lie in the area as a whole.
    pub(crate) fn of(memory: &Arc<ExposedMemory>, offset: usize, bytes: usize) -> Option<LandingArea> {
        let end = offset.checked_add(bytes)?;
        (end <= memory.0.layout.landing_area_bytes).then(|| LandingArea {
            memory: Arc::clone(memory),
            offset,
            bytes,
        })
    }

    /// The offset at which the next part may begin.
    pub(crate) fn end(&self) -> usize {
        self.offset + self.bytes
    }
}

impl Memory for LandingArea {
    fn base(&self) -> *mut u8 {
        let region = &self.memory.0;
        // SAFETY: by the invariants of the type and of the layout this is inside the mapping, or at its end.
        unsafe { region.mapping.base().add(region.layout.landing_start + self.offset) }
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn remote_address(&self, offset: usize) -> RemoteAddress {
        RemoteAddress {
            key: LANDING_KEY,
            address: (self.offset + offset) as u64,
        }
    }

    fn discard(&self, range: Range<usize>) {
        let start = self.memory.0.layout.landing_start + self.offset;
        self.memory.0.discard(start, self.bytes, range);
    }
}

/// The peer's memory, as far as this side may write it.
pub(crate) struct PeerMemory(Region);

impl PeerMemory {
    pub(crate) fn map(file: &SealedFile, layout: Layout) -> Result<PeerMemory, FabricError> {
        Region::map(file, layout).map(PeerMemory)
    }

    pub(crate) fn slots(&self) -> u16 {
        self.0.layout.slots
    }

    /// The queue that this side fills.
    pub(crate) fn queue(&self) -> Queue<'_> {
        self.0.queue()
    }

    /// Prepares to copy `source`, piece after piece, to `target`. The target comes from the peer: it must lie in the
    /// peer's ring or landing area as a whole.
    #[inline]
    pub(crate) fn locate<'a>(
        &'a self,
        source: &'a [&'a [u8]],
        target: RemoteAddress,
    ) -> Result<Transfer<'a>, FabricError> {
        let bytes = match source {
            // The usual packet: its length and its bytes. Two slices have less than `usize::MAX` bytes.
            [first, second] => Some(first.len() + second.len()),
            _ => source
                .iter()
                .try_fold(0usize, |sum, piece| sum.checked_add(piece.len())),
        };
        let located = bytes.and_then(|bytes| Some((bytes, self.0.layout.locate(target, bytes)?)));
        match located {
            Some((bytes, offset)) => Ok(Transfer {
                mapping: &self.0.mapping,
                source,
                bytes,
                offset,
            }),
            None => Err(FabricError::PeerMisbehaved(Misbehaviour::TargetOutside { target })),
        }
    }
}

/// A copy of bytes of this process into the peer's memory.
///
/// # Invariants
///
/// `source` has `bytes` bytes. In `mapping` as many from `offset` on are inside the peer's ring or its landing area.
pub(crate) struct Transfer<'a> {
    mapping: &'a Mapping,
    source: &'a [&'a [u8]],
    bytes: usize,
    offset: usize,
}

impl Transfer<'_> {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies the bytes. Returns the address after the last one.
    #[inline]
    pub(crate) fn copy(&self) -> *const u8 {
        // SAFETY: `offset` is inside the mapping, by the type's invariant.
        let mut to = unsafe { self.mapping.base().add(self.offset) };
        let mut copy = |piece: &[u8]| {
            // SAFETY: by the type's invariant all pieces lie inside the ring or the landing area, and those are inside
            // the mapping, which is borrowed. The source is a live slice of this process and cannot overlap: no
            // reference into a region's ring or landing area exists.
            unsafe {
                std::ptr::copy_nonoverlapping(piece.as_ptr(), to, piece.len());
                to = to.add(piece.len());
            }
        };
        match self.source {
            // A loop would be unrolled, for the two pieces of the usual packet.
            [first, second] => {
                copy(first);
                copy(second);
            }
            pieces => pieces.iter().for_each(|piece| copy(piece)),
        }
        to
    }

    /// Copies the bytes of a small transfer and fetches the two cache lines after them, for the next one: the peer's
    /// processor has them, and a store would wait for each. A packet of an rpc has about 100 bytes.
    #[inline]
    pub(crate) fn copy_and_expect_next(&self) {
        let behind = self.copy();
        prefetch_for_write::<_, LINE_BYTES>(behind);
        prefetch_for_write::<_, { 2 * LINE_BYTES }>(behind);
    }
}

const LINE_BYTES: usize = 64;
