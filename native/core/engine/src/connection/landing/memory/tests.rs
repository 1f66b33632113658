use std::ops::Range;

use super::*;
use inet_rdma_fabric::Memory;

const BUFFER_BYTES: usize = 64 * 1024;
const ALL: u16 = 256;

/// Memory without pages: no test accesses it.
struct Nowhere(usize);

impl Memory for Nowhere {
    fn base(&self) -> *mut u8 {
        std::ptr::null_mut()
    }
    fn bytes(&self) -> usize {
        self.0
    }
    fn remote_address(&self, offset: usize) -> inet_rdma_stream::RemoteAddress {
        let address = offset as u64;
        inet_rdma_stream::RemoteAddress { key: 1, address }
    }
    fn discard(&self, _range: Range<usize>) {}
}

struct Granted(Arc<dyn Memory>);

impl Exposed for Granted {
    fn memory(&self) -> &Arc<dyn Memory> {
        &self.0
    }
    fn revoke(self: Box<Self>) {}
}

fn memory(source: Source) -> LandingMemory {
    LandingMemory::new(source, BUFFER_BYTES, usize::from(ALL) * BUFFER_BYTES)
}

/// Grants the claimed memory. Returns the number of all buffers.
fn grant(memory: &mut LandingMemory) -> u16 {
    let bytes = memory.claimed_bytes().expect("a claim");
    memory.add(Box::new(Granted(Arc::new(Nowhere(bytes)))));
    memory.count()
}

#[test]
fn pinned_memory_grows_by_what_lands() {
    let mut memory = memory(Source::Pinned);
    assert!(memory.take().is_none());
    let mut counts = Vec::new();
    for landings in 0..8 {
        if memory.claim(landings) {
            assert!(!memory.claim(landings), "one claim at a time");
            counts.push(grant(&mut memory));
        }
        assert!(!memory.claim(landings), "nothing has landed since");
    }
    assert_eq!(counts, [16, 32, 64, 128, 256]);
    let taken: Vec<LandingBuffer> = std::iter::from_fn(|| memory.take()).collect();
    assert_eq!(taken.len(), usize::from(ALL));
}

#[test]
fn each_buffer_has_a_number_of_its_own() {
    let mut memory = memory(Source::Pinned);
    for landings in 0..2 {
        assert!(memory.claim(landings));
        grant(&mut memory);
    }
    let buffers: Vec<LandingBuffer> = std::iter::from_fn(|| memory.take()).collect();
    let mut numbers: Vec<u16> = buffers.iter().map(LandingBuffer::index).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..32).collect::<Vec<_>>());
    assert_eq!(memory.used(), 32);
}

#[test]
fn mapped_memory_comes_at_once_and_stays() {
    let mut memory = memory(Source::Mapped);
    assert!(memory.claim(0));
    assert_eq!(grant(&mut memory), ALL);
    assert_eq!(memory.sweep(1), Due::Later);
    assert_eq!((memory.sweep(1), memory.sweep(1)), (Due::Later, Due::GiveBack));
    memory.give_back().release();
    assert_eq!((memory.count(), memory.state), (ALL, LandingState::Ready));
    assert!(memory.wants_sweep() && !memory.wants_sweep());
}

#[test]
fn pinned_memory_goes_when_nothing_lands() {
    let mut memory = memory(Source::Pinned);
    assert!(memory.claim(0));
    assert_eq!(memory.sweep(0), Due::Later, "it is on its way");
    grant(&mut memory);
    for landings in 1..10 {
        assert_eq!(memory.sweep(landings), Due::Later);
    }
    assert_eq!((memory.sweep(9), memory.sweep(9)), (Due::Later, Due::GiveBack));
    memory.give_back().release();
    assert_eq!((memory.count(), memory.state), (0, LandingState::Unused));
    assert_eq!(memory.sweep(9), Due::Never);
    assert!(memory.claim(9));
    assert_eq!(grant(&mut memory), 16, "it begins again");
}

#[test]
fn refused_memory_is_asked_for_again_after_a_while() {
    let mut memory = memory(Source::Pinned);
    assert!(memory.claim(0));
    memory.refuse();
    assert!(!memory.claim(1));
    assert_eq!((memory.state, memory.refusals), (LandingState::Refused, 1));
    assert_eq!(memory.sweep(0), Due::Later);
    assert_eq!(memory.sweep(0), Due::Never);
    assert!(memory.claim(1));
}

#[test]
fn buffers_larger_than_the_first_area_come_by_two() {
    let mut memory = LandingMemory::new(Source::Pinned, 1 << 20, 16 << 20);
    assert!(memory.claim(0));
    assert_eq!(grant(&mut memory), 2);
    let mut none = LandingMemory::new(Source::Pinned, BUFFER_BYTES, 0);
    assert!(!none.claim(0));
}
