//! Packets with lengths: those that share a buffer, that are handed over without a copy, that are refused.

#[path = "support/content.rs"]
mod content;
#[path = "support/contents.rs"]
mod contents;
#[path = "support/framed.rs"]
mod framed;
#[path = "support/heap_memory.rs"]
mod heap_memory;
#[path = "support/push.rs"]
mod push;

use bytes::buf::UninitSlice;
use content::content;
use framed::framed;
use inet_rdma_assembly::{Arrived, Assembly, AssemblyError, Framing, ReadLimit, Received};
use push::push;

const PACKET_MAX: usize = 200_000;
const LANDING_BYTES: usize = 70_000;

#[test]
fn a_header_says_what_fits_into_its_size() {
    let header = |framing: Framing, bytes| framing.header(bytes).map(|header| header.as_slice().to_vec());
    assert_eq!(header(Framing::Raw, usize::MAX), Some(vec![]));
    assert_eq!(header(Framing::Length1, 255), Some(vec![255]));
    assert_eq!(header(Framing::Length1, 256), None);
    assert_eq!(header(Framing::Length2, 65_535), Some(vec![255, 255]));
    assert_eq!(header(Framing::Length2, 65_536), None);
    assert_eq!(header(Framing::Length4, 65_536), Some(vec![0, 1, 0, 0]));
    assert_eq!(header(Framing::Length4, 1 << 32), None);
}

#[test]
fn a_batch_of_small_packets_shares_one_buffer() {
    let sent: Vec<_> = (0..50u64).map(|seed| content(seed, 40)).collect();
    let stream = framed(Framing::Length4, &sent);
    let mut assembly = Assembly::<Vec<u8>>::new(Framing::Length4, PACKET_MAX);
    let mut out = Vec::new();
    let taken = push(&mut assembly, &stream, 77, ReadLimit::bytes(usize::MAX), &mut out);
    assert_eq!(taken, Ok(stream.len()));
    assert!(matches!(out.as_slice(), [Received::Batch { packets, .. }] if packets.len() == 50));
    assert_eq!(contents::packets(&out), sent);
}

#[test]
fn pushes_add_to_what_earlier_ones_gave() {
    let sent: Vec<_> = (0..6u64).map(|seed| content(seed, 7)).collect();
    let mut assembly = Assembly::<Vec<u8>>::new(Framing::Length4, PACKET_MAX);
    let mut out = Vec::new();
    for packet in &sent {
        let stream = framed(Framing::Length4, std::slice::from_ref(packet));
        let taken = push(&mut assembly, &stream, 0, ReadLimit::bytes(usize::MAX), &mut out);
        assert_eq!(taken, Ok(stream.len()));
    }
    assert_eq!(contents::packets(&out), sent);
}

#[test]
fn empty_packets_are_packets() {
    let sent = vec![vec![], content(1, 3), vec![], vec![]];
    let stream = framed(Framing::Length4, &sent);
    let mut assembly = Assembly::<Vec<u8>>::new(Framing::Length4, PACKET_MAX);
    let mut out = Vec::new();
    for byte in &stream {
        let taken = push(&mut assembly, &[*byte], 0, ReadLimit::bytes(usize::MAX), &mut out);
        assert_eq!(taken, Ok(1));
    }
    assert_eq!(contents::packets(&out), sent);
}

#[test]
fn a_bulk_packet_alone_in_its_landing_buffer_is_not_copied() {
    let packet = content(5, 20_000);
    let stream = framed(Framing::Length4, std::slice::from_ref(&packet));
    let pool = heap_memory::pool(2, LANDING_BYTES);
    let buffer = heap_memory::filled(&pool, 0, &stream);
    let mut assembly = Assembly::<Vec<u8>>::new(Framing::Length4, PACKET_MAX);
    let mut out = Vec::new();
    let rest = assembly.push_landed(buffer, 0..stream.len(), 16_384, ReadLimit::bytes(1), &mut out);
    assert!(matches!(rest, Ok(None)));
    assert!(matches!(out.as_slice(), [Received::Landed(_, range)] if *range == (4..stream.len())));
    assert_eq!(contents::packets(&out), [packet]);
    assert_eq!(pool.used(), 1, "the user holds it");
    out.clear();
    assert_eq!(pool.used(), 0, "and gave it back");
}

#[test]
fn a_landing_buffer_with_less_than_a_header_is_no_accident() {
    let pool = heap_memory::pool(1, LANDING_BYTES);
    let stream = framed(Framing::Length4, &[content(2, 5)]);
    let mut assembly = Assembly::<Vec<u8>>::new(Framing::Length4, PACKET_MAX);
    let mut out = Vec::new();
    for part in stream.chunks(2) {
        let buffer = heap_memory::filled(&pool, 0, part);
        let rest = assembly.push_landed(buffer, 0..part.len(), 1, ReadLimit::bytes(usize::MAX), &mut out);
        assert!(matches!(rest, Ok(None)));
    }
    assert_eq!(contents::packets(&out), [content(2, 5)]);
}

/// Memory that may be asked for small packets only.
struct Small(Vec<u8>);

impl inet_rdma_assembly::Buffer for Small {
    fn bytes(&self) -> usize {
        self.0.len()
    }

    fn allocate(bytes: usize) -> Option<Self> {
        assert!(bytes <= 1_000, "asked for {bytes} bytes");
        Some(Small(vec![0; bytes]))
    }

    fn memory(&mut self) -> &mut UninitSlice {
        UninitSlice::new(&mut self.0)
    }
}

#[test]
fn an_oversized_length_is_refused_before_anything_is_allocated() {
    let announced = 1_001u32.to_be_bytes();
    let refusal = || AssemblyError::TooLarge {
        bytes: 1_001,
        max: 1_000,
    };
    for wrap in 0..=4 {
        let (before, after) = announced.split_at(wrap);
        // SAFETY: both runs are slices of an array that outlives the value.
        let arrived = unsafe { Arrived::new([(before.as_ptr(), before.len()), (after.as_ptr(), after.len())]) };
        let mut assembly = Assembly::<Small>::new(Framing::Length4, 1_000);
        let pushed = assembly.push(&arrived, ReadLimit::bytes(usize::MAX), &mut Vec::new());
        assert_eq!(pushed, Err(refusal()), "cut after {wrap}");
        let mut assembly = Assembly::<Small>::new(Framing::Length4, 1_000);
        let mut pushed = Ok(0);
        for byte in &announced {
            // SAFETY: one run is a byte that outlives the value, the other is empty.
            let arrived = unsafe { Arrived::new([(byte, 1), (byte, 0)]) };
            pushed = assembly.push(&arrived, ReadLimit::bytes(usize::MAX), &mut Vec::new());
        }
        assert!(matches!(
            pushed,
            Err(AssemblyError::TooLarge {
                bytes: 1_001,
                max: 1_000
            })
        ));
    }
    let pool = heap_memory::pool(1, 64);
    let buffer = heap_memory::filled(&pool, 0, &announced);
    let mut assembly = Assembly::<Small>::new(Framing::Length4, 1_000);
    let pushed = assembly.push_landed(buffer, 0..4, 1, ReadLimit::bytes(usize::MAX), &mut Vec::new());
    assert!(matches!(pushed, Err(AssemblyError::TooLarge { .. })));
    assert_eq!(pool.used(), 0);
}

#[test]
fn a_new_limit_holds_for_the_packets_to_come() {
    let stream = framed(Framing::Length4, &[content(1, 50), content(2, 50)]);
    let mut assembly = Assembly::<Vec<u8>>::new(Framing::Length4, 10);
    assert!(assembly.reframe(Framing::Length4, 50));
    let mut out = Vec::new();
    assert_eq!(
        push(&mut assembly, &stream[..60], 0, ReadLimit::bytes(usize::MAX), &mut out),
        Ok(60)
    );
    assert!(assembly.reframe(Framing::Length4, 49));
    assert_eq!(
        push(&mut assembly, &stream[60..], 0, ReadLimit::bytes(usize::MAX), &mut out),
        Ok(48),
        "a packet that has begun is not refused"
    );
    assert_eq!(
        push(
            &mut assembly,
            &50u32.to_be_bytes(),
            0,
            ReadLimit::bytes(usize::MAX),
            &mut out
        ),
        Err(AssemblyError::TooLarge { bytes: 50, max: 49 })
    );
}
