//! Reads of a stream without packets: the next read gets the bytes that one read leaves.

#[path = "support/content.rs"]
mod content;
#[path = "support/contents.rs"]
mod contents;
#[path = "support/push.rs"]
mod push;

use std::cell::Cell;

use bytes::buf::UninitSlice;
use content::content;
use inet_rdma_assembly::{Arrived, Assembly, Framing, ReadLimit, Received};
use push::push;

const PACKET_MAX: usize = 200_000;

/// The next reads get the bytes that a read has left, though nothing new arrives.
#[test]
fn raw_leftovers_are_enough_for_smaller_reads() {
    let exact = |exact| ReadLimit {
        exact,
        ..ReadLimit::bytes(usize::MAX)
    };
    let stream = content(9, 12);
    let mut assembly = Assembly::<Vec<u8>>::new(Framing::Raw, PACKET_MAX);
    let mut out = Vec::new();
    assert_eq!(assembly.retarget(exact(20), &mut out), Ok(None));
    assert_eq!(push(&mut assembly, &stream, 5, exact(20), &mut out), Ok(12));
    assert!(out.is_empty());
    for left in [12, 9] {
        assert_eq!(assembly.retarget(exact(3), &mut out), Ok(Some(3)), "3 of {left}");
    }
    assert_eq!(assembly.retarget(exact(6), &mut out), Ok(Some(6)), "just what is left");
    assert_eq!(assembly.retarget(exact(20), &mut out), Ok(None), "nothing is left");
    assert_eq!(contents::packets(&out).concat(), stream);
    assert_eq!(push(&mut assembly, &stream, 5, exact(20), &mut out), Ok(12));
    assert_eq!(assembly.retarget(exact(9), &mut out), Ok(Some(9)));
    assert_eq!(assembly.retarget(ReadLimit::bytes(2), &mut out), Ok(Some(2)));
    assert_eq!(assembly.retarget(ReadLimit::bytes(2), &mut out), Ok(Some(1)));
    assert_eq!(
        assembly.retarget(ReadLimit::bytes(2), &mut out),
        Ok(None),
        "nothing is left"
    );
    let packets = contents::packets(&out);
    assert_eq!(packets.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3, 6, 9, 2, 1]);
    assert_eq!(packets[3..].concat(), stream);
}

/// Memory that counts the allocated bytes: each copy goes into new memory.
struct Counted(Vec<u8>);

thread_local! {
    static ALLOCATED_BYTES: Cell<usize> = const { Cell::new(0) };
}

impl inet_rdma_assembly::Buffer for Counted {
    fn bytes(&self) -> usize {
        self.0.len()
    }

    fn allocate(bytes: usize) -> Option<Self> {
        ALLOCATED_BYTES.set(ALLOCATED_BYTES.get() + bytes);
        Some(Counted(vec![0; bytes]))
    }

    fn memory(&mut self) -> &mut UninitSlice {
        UninitSlice::new(&mut self.0)
    }
}

#[test]
fn small_reads_behind_a_large_one_copy_each_byte_once() {
    const PIECE_BYTES: usize = 16;
    let exact = |exact| ReadLimit {
        exact,
        ..ReadLimit::bytes(usize::MAX)
    };
    let stream = content(3, 64 * 1024);
    let large = exact(stream.len() + 1);
    let mut assembly = Assembly::<Counted>::new(Framing::Raw, PACKET_MAX);
    let mut out = Vec::new();
    // SAFETY: the run lies in `stream`, which outlives the value.
    let arrived = unsafe { Arrived::new([(stream.as_ptr(), stream.len()), (std::ptr::null(), 0)]) };
    assert_eq!(assembly.push(&arrived, large, &mut out), Ok(stream.len()));
    let before = ALLOCATED_BYTES.get();
    while assembly.kept() > 0 {
        let limit = if out.len() % 2 == 0 {
            exact(PIECE_BYTES)
        } else {
            ReadLimit::bytes(PIECE_BYTES)
        };
        let kept = assembly.kept();
        let handed_over = assembly.retarget(limit, &mut out).expect("memory");
        assert_eq!(handed_over, Some(kept - assembly.kept()));
    }
    assert_eq!(ALLOCATED_BYTES.get() - before, stream.len());
    let pieces: Vec<u8> = out
        .iter_mut()
        .flat_map(|received| match received {
            Received::Whole(piece) => piece.0.clone(),
            Received::Batch { .. } | Received::Landed(..) => panic!("not one packet of its own"),
        })
        .collect();
    assert_eq!(pieces, stream);
}

#[test]
fn a_raw_read_goes_on_where_a_larger_one_begins() {
    let exact = |exact| ReadLimit {
        exact,
        ..ReadLimit::bytes(usize::MAX)
    };
    let stream = content(9, 12);
    let mut assembly = Assembly::<Vec<u8>>::new(Framing::Raw, PACKET_MAX);
    let mut out = Vec::new();
    assert_eq!(push(&mut assembly, &stream[..7], 0, exact(8), &mut out), Ok(7));
    assert_eq!(assembly.retarget(exact(12), &mut out), Ok(None));
    assert_eq!(push(&mut assembly, &stream[7..], 0, exact(12), &mut out), Ok(5));
    assert_eq!(contents::packets(&out), [stream]);
}

#[test]
fn framing_changes_only_between_packets() {
    let mut assembly = Assembly::<Vec<u8>>::new(Framing::Raw, 100);
    let mut out = Vec::new();
    let bytes = [1, 2, 3];
    // SAFETY: the runs lie in `bytes`, which outlives the value.
    let arrived = unsafe { Arrived::new([(bytes.as_ptr(), 3), (std::ptr::null(), 0)]) };
    let exact = ReadLimit {
        exact: 5,
        ..ReadLimit::bytes(5)
    };
    assert_eq!(assembly.push(&arrived, exact, &mut out), Ok(3));
    assert!(
        !assembly.reframe(Framing::Length4, 100),
        "three bytes are kept for a read of five"
    );
    assert_eq!(assembly.framing(), Framing::Raw);
    assert_eq!(assembly.push(&arrived, exact, &mut out), Ok(2));
    assert!(assembly.reframe(Framing::Length4, 100));
    assert_eq!(assembly.framing(), Framing::Length4);
}
