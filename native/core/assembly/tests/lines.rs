//! Lines: cut after each newline, whatever the splits, as `gen_tcp` cuts them.

#[path = "support/contents.rs"]
mod contents;
#[path = "support/heap_memory.rs"]
mod heap_memory;
#[path = "support/push.rs"]
mod push;

use inet_rdma_assembly::{Assembly, AssemblyError, Framing, ReadLimit, Received};
use proptest::prelude::*;
use push::push;

const PACKET_MAX: usize = 200_000;

fn lines(bytes_max: usize) -> Assembly<Vec<u8>> {
    Assembly::new(Framing::Line { bytes_max }, PACKET_MAX)
}

/// The expected packets of a stream: each ends after a newline, or when it is full.
fn expected(stream: &[u8], bytes_max: usize) -> Vec<Vec<u8>> {
    stream
        .split_inclusive(|&byte| byte == b'\n')
        .flat_map(|line| line.chunks(bytes_max))
        .map(<[u8]>::to_vec)
        .collect()
}

/// Text with lines of all lengths, from 0 on.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![1 => Just(b'\n'), 6 => any::<u8>()];
    let sparse = prop_oneof![1 => Just(b'\n'), 300 => any::<u8>()];
    prop_oneof![
        prop::collection::vec(byte, 0..400),
        prop::collection::vec(sparse, 0..4_000)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 384, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lines_come_out_whole_however_they_arrive(
        stream in text(),
        bytes_max in prop_oneof![1..20usize, Just(100), Just(PACKET_MAX)],
        chunks in prop::collection::vec((1..300usize, 0..=1024usize, any::<bool>()), 1..20),
        packets in prop::collection::vec(prop_oneof![1..4usize, Just(usize::MAX)], 1..5),
        bulk in prop_oneof![1..40usize, Just(10_000)],
    ) {
        let pool = heap_memory::pool(1, 300);
        let mut assembly = lines(bytes_max);
        let mut packets = packets.iter().cycle();
        let mut out = Vec::new();
        let mut at = 0;
        for &(bytes, wrap, lands) in chunks.iter().cycle() {
            let left = &stream[at..];
            if left.is_empty() {
                break;
            }
            let chunk = &left[..bytes.min(left.len())];
            let limit = ReadLimit { packets: *packets.next().expect("endless"), ..ReadLimit::bytes(usize::MAX) };
            let mut read = Vec::new();
            at += if lands {
                let buffer = heap_memory::filled(&pool, 0, chunk);
                let rest = assembly.push_landed(buffer, 0..chunk.len(), bulk, limit, &mut read).expect("memory");
                rest.map_or(chunk.len(), |(_, range)| range.start)
            } else {
                push(&mut assembly, chunk, chunk.len() * wrap / 1024, limit, &mut read).expect("memory")
            };
            let read = contents::packets(&read);
            prop_assert!(read.len() <= limit.packets);
            out.extend(read);
        }
        let mut all = expected(&stream, bytes_max);
        if all.last().is_some_and(|last| !last.ends_with(b"\n") && last.len() < bytes_max) {
            // Its newline has not come.
            all.pop();
        }
        prop_assert_eq!(out, all);
    }
}

#[test]
fn lines_that_come_together_share_a_buffer() {
    let mut out = Vec::new();
    let stream = b"one\ntwo\r\n\nthree\nfo";
    let taken = push(&mut lines(100), stream, 5, ReadLimit::bytes(usize::MAX), &mut out);
    assert_eq!(taken, Ok(stream.len()));
    assert!(matches!(out.as_slice(), [Received::Batch { packets, .. }] if packets.len() == 4));
    assert_eq!(contents::packets(&out), [&b"one\n"[..], b"two\r\n", b"\n", b"three\n"]);
}

#[test]
fn a_line_alone_in_its_landing_buffer_is_not_copied() {
    let pool = heap_memory::pool(1, 100);
    let buffer = heap_memory::filled(&pool, 0, b"a whole line\n");
    let mut out = Vec::new();
    let rest = lines(100).push_landed(buffer, 0..13, 10, ReadLimit::bytes(usize::MAX), &mut out);
    assert!(matches!(rest, Ok(None)));
    assert!(matches!(out.as_slice(), [Received::Landed(_, range)] if *range == (0..13)));
}

#[test]
fn a_line_longer_than_a_packet_may_be_is_refused_before_its_newline() {
    let mut assembly = Assembly::<Vec<u8>>::new(Framing::Line { bytes_max: 100 }, 10);
    let mut out = Vec::new();
    let limit = ReadLimit::bytes(usize::MAX);
    assert_eq!(push(&mut assembly, b"012345678\n01234", 0, limit, &mut out), Ok(15));
    assert_eq!(push(&mut assembly, b"56789", 0, limit, &mut out), Ok(5));
    let refusal = AssemblyError::TooLarge { bytes: 11, max: 10 };
    assert_eq!(push(&mut assembly, b"\n", 0, limit, &mut out), Err(refusal));
    assert_eq!(contents::packets(&out), [b"012345678\n"]);
}

#[test]
fn the_part_of_a_line_that_is_here_is_what_raw_reads_give_first() {
    for exact in [0, 3, 4, 6] {
        let mut assembly = lines(100);
        let mut out = Vec::new();
        let limit = ReadLimit {
            exact,
            ..ReadLimit::bytes(usize::MAX)
        };
        assert_eq!(push(&mut assembly, b"half", 0, limit, &mut out), Ok(4));
        assert!(
            !assembly.reframe(Framing::Length4, PACKET_MAX),
            "in the middle of a line"
        );
        assert!(assembly.reframe(Framing::Raw, PACKET_MAX));
        let sufficient = match exact {
            0 => Some(4),
            1..=4 => Some(exact),
            _ => None,
        };
        assert_eq!(assembly.retarget(limit, &mut out), Ok(sufficient), "a read of {exact}");
        if sufficient.is_none() {
            assert_eq!(push(&mut assembly, b"12", 0, limit, &mut out), Ok(2));
        }
        let first: &[u8] = if exact == 0 { b"half" } else { &b"half12"[..exact] };
        assert_eq!(contents::packets(&out), [first]);
    }
}
