//! The memory of a link's two directions, and that no packet allocates.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use inet_rdma_envelope::Direction;
use support::*;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: as the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn both_directions_of_a_link_take_32_kib() {
    let bytes = 2 * size_of::<Direction>();
    println!("{bytes} bytes");
    assert!(bytes <= 32 * 1024, "{bytes}");
}

#[test]
fn no_packet_allocates() {
    let mut writer = Writer::default();
    let mut packets = Vec::new();
    for turn in 0..3000 {
        let control = Term::Tuple(vec![
            Term::Int(6),
            pid("a@host", turn),
            atom(""),
            atom(&format!("target_{turn}")),
        ]);
        let more = Vec::from_iter((0..5).map(|index| format!("payload_{}", turn * 5 + index)));
        packets.push(writer.packet(Form::Normal, &control, &more, b""));
        packets.push(writer.packet(
            Form::Fragments {
                id: turn.into(),
                count: 3,
            },
            &control,
            &more,
            b"",
        ));
        packets.push(fragment(turn.into(), 2, b"abc"));
    }
    packets.push(vec![1]);
    packets.push(vec![1]);
    let mut direction = Direction::new();
    let before = ALLOCATIONS.get();
    for packet in &packets {
        direction.packet(packet.chunks(50), packet.len(), clock);
    }
    assert_eq!(ALLOCATIONS.get(), before);
}
