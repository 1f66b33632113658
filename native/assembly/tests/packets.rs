//! Assembly and gather: whatever the splits, out comes what went in.

#[path = "support/contents.rs"]
mod contents;
#[path = "support/heap_memory.rs"]
mod heap_memory;
#[path = "support/push.rs"]
mod push;

use std::cell::Cell;

use inet_rdma_assembly::{Arrived, Assembly, AssemblyError, Framing, Gather, ReadLimit, Received};
use proptest::prelude::*;
use push::push;

const PACKET_MAX: usize = 200_000;
const LANDING_BYTES: usize = 70_000;

/// Some bytes that arrive together.
#[derive(Debug, Clone)]
enum Chunk {
    /// In the ring, cut by its end after `wrap` 1,024ths of the chunk.
    Ring { bytes: usize, wrap: usize },
    /// In a landing buffer.
    Landing { bytes: usize },
    /// In a record.
    Record { bytes: usize },
}

/// What the reader asks for.
#[derive(Debug, Clone, Copy)]
struct Ask {
    bytes: usize,
    packets: usize,
}

impl Ask {
    fn limit(self, exact: usize) -> ReadLimit {
        ReadLimit {
            bytes: self.bytes,
            packets: self.packets,
            exact,
        }
    }
}

/// Sizes as they occur: many small, some about the limits of a header, some bulk.
fn size(max: usize) -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => 0..9usize,
        4 => 0..300usize,
        2 => 0..20_000usize,
        1 => 0..max,
    ]
}

fn chunk() -> impl Strategy<Value = Chunk> {
    prop_oneof![
        (size(PACKET_MAX), 0..=1024usize).prop_map(|(bytes, wrap)| Chunk::Ring { bytes: bytes + 1, wrap }),
        size(LANDING_BYTES - 1).prop_map(|bytes| Chunk::Landing { bytes: bytes + 1 }),
        size(LANDING_BYTES - 1).prop_map(|bytes| Chunk::Record { bytes: bytes + 1 }),
    ]
}

fn ask() -> impl Strategy<Value = Ask> {
    let packets = prop_oneof![1..4usize, Just(1_000), Just(usize::MAX)];
    (size(PACKET_MAX), packets).prop_map(|(bytes, packets)| Ask {
        bytes: bytes + 1,
        packets,
    })
}

/// Bytes that differ from place to place and from seed to seed.
fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| random.u8(..)).take(bytes).collect()
}

fn framed(packets: &[Vec<u8>]) -> Vec<u8> {
    framed_with(Framing::Length4, packets)
}

fn framed_with(framing: Framing, packets: &[Vec<u8>]) -> Vec<u8> {
    let mut stream = Vec::new();
    for packet in packets {
        stream.extend(framing.header(packet.len()).expect("a length that fits").as_slice());
        stream.extend(packet);
    }
    stream
}

/// Feeds a stream to an assembly in the given chunks, over and over until it is all in, as a connection would.
struct Feeder<'a> {
    assembly: Assembly<Vec<u8>>,
    stream: &'a [u8],
    asks: std::iter::Cycle<std::slice::Iter<'a, Ask>>,
    exact: Box<dyn FnMut() -> usize + 'a>,
    bulk: usize,
    out: Vec<Vec<u8>>,
}

/// Sends packets of these sizes through an assembly: whether they come out as they went in.
fn come_out(framing: Framing, sizes: &[usize], seed: u64, chunks: &[Chunk], asks: &[Ask], bulk: usize) -> bool {
    let sent: Vec<_> = sizes
        .iter()
        .zip(seed..)
        .map(|(bytes, seed)| content(seed, *bytes))
        .collect();
    let stream = framed_with(framing, &sent);
    Feeder::new(framing, &stream, asks, bulk).run(chunks) == sent
}

impl<'a> Feeder<'a> {
    fn new(framing: Framing, stream: &'a [u8], asks: &'a [Ask], bulk: usize) -> Feeder<'a> {
        Feeder {
            assembly: Assembly::new(framing, PACKET_MAX),
            stream,
            asks: asks.iter().cycle(),
            exact: Box::new(|| 0),
            bulk,
            out: Vec::new(),
        }
    }

    fn run(mut self, chunks: &[Chunk]) -> Vec<Vec<u8>> {
        let landing = heap_memory::pool(1, LANDING_BYTES);
        let mut at = 0;
        for chunk in chunks.iter().cycle() {
            let left = &self.stream[at..];
            if left.is_empty() {
                break;
            }
            at += match *chunk {
                Chunk::Ring { bytes, wrap } => self.ring(&left[..bytes.min(left.len())], wrap),
                Chunk::Landing { bytes } => self.landing(&landing, &left[..bytes.min(left.len())]),
                Chunk::Record { bytes } => self.record(&left[..bytes.min(left.len())]),
            };
            assert_eq!(landing.used(), 0, "a landing buffer was kept");
        }
        self.out
    }

    /// Ring bytes are taken in one or more reads; what one does not take is offered to the next.
    fn ring(&mut self, bytes: &[u8], wrap: usize) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            let Some(limit) = self.next_read() else { continue };
            let offered = &bytes[at..][..(bytes.len() - at).min(limit.bytes)];
            let wrap = offered.len() * wrap / 1024;
            let mut out = Vec::new();
            let taken = push(&mut self.assembly, offered, wrap, limit, &mut out).expect("a valid stream");
            assert!(taken <= offered.len());
            self.keep(&out, limit);
            at += taken;
        }
        at
    }

    fn landing(&mut self, pool: &std::sync::Arc<inet_rdma_assembly::LandingPool>, bytes: &[u8]) -> usize {
        // The engine keeps what was not taken in the same buffer, further on.
        let mut rest = Some((heap_memory::filled(pool, 0, bytes), 0..bytes.len()));
        while let Some((buffer, range)) = rest.take() {
            let Some(limit) = self.next_read() else {
                rest = Some((buffer, range));
                continue;
            };
            let mut out = Vec::new();
            rest = self
                .assembly
                .push_landed(buffer, range, self.bulk, limit, &mut out)
                .expect("a valid stream");
            self.keep(&out, limit);
        }
        bytes.len()
    }

    fn record(&mut self, bytes: &[u8]) -> usize {
        // None: not opened yet.
        let mut rest = None;
        loop {
            let Some(limit) = self.next_read() else { continue };
            let mut out = Vec::new();
            let left = match rest.take() {
                None => self.assembly.push_record(bytes.len(), limit, &mut out, |memory| {
                    memory.copy_from_slice(bytes);
                    Ok::<_, AssemblyError>(())
                }),
                Some(rest) => self.assembly.push_rest(rest, limit, &mut out),
            };
            rest = left.expect("a valid stream");
            self.keep(&out, limit);
            if rest.is_none() {
                return bytes.len();
            }
        }
    }

    /// The next read begins; None: what an earlier one left behind was enough for it.
    fn next_read(&mut self) -> Option<ReadLimit> {
        let limit = self.asks.next().expect("endless").limit((self.exact)());
        let mut out = Vec::new();
        let done = self.assembly.retarget(limit, &mut out).expect("memory");
        assert_eq!(done, !out.is_empty());
        self.keep(&out, limit);
        (!done).then_some(limit)
    }

    fn keep(&mut self, received: &[Received<Vec<u8>>], limit: ReadLimit) {
        let packets = contents::packets(received);
        assert!(
            packets.len() <= limit.packets,
            "{} packets for {limit:?}",
            packets.len()
        );
        if limit.exact > 0 {
            assert!(packets.iter().all(|packet| packet.len() == limit.exact));
        } else if self.assembly.framing() == Framing::Raw {
            assert!(packets.iter().map(Vec::len).sum::<usize>() <= limit.bytes);
        }
        self.out.extend(packets);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn packets_come_out_as_they_went_in(
        sizes in prop::collection::vec(size(PACKET_MAX), 1..40),
        chunks in prop::collection::vec(chunk(), 1..20),
        asks in prop::collection::vec(ask(), 1..8),
        bulk in prop_oneof![0..64usize, Just(16_384)],
        seed: u64,
    ) {
        prop_assert!(come_out(Framing::Length4, &sizes, seed, &chunks, &asks, bulk), "other packets came out");
    }

    #[test]
    fn packets_behind_short_lengths_come_out_as_they_went_in(
        (framing, sizes) in prop_oneof![
            prop::collection::vec(0..256usize, 1..40).prop_map(|sizes| (Framing::Length1, sizes)),
            prop::collection::vec(size(65_536), 1..40).prop_map(|sizes| (Framing::Length2, sizes)),
        ],
        chunks in prop::collection::vec(chunk(), 1..20),
        asks in prop::collection::vec(ask(), 1..8),
        bulk in prop_oneof![0..64usize, Just(16_384)],
        seed: u64,
    ) {
        prop_assert!(come_out(framing, &sizes, seed, &chunks, &asks, bulk), "other packets came out");
    }

    #[test]
    fn raw_bytes_come_out_in_order_whatever_is_asked_for(
        bytes in size(PACKET_MAX),
        chunks in prop::collection::vec(chunk(), 1..20),
        asks in prop::collection::vec(ask(), 1..8),
        exact in prop::collection::vec(prop_oneof![Just(0), size(50_000)], 1..8),
        bulk in prop_oneof![0..64usize, Just(16_384)],
        seed: u64,
    ) {
        let stream = content(seed, bytes);
        let mut exact = exact.iter().cycle();
        let mut feeder = Feeder::new(Framing::Raw, &stream, &asks, bulk);
        feeder.exact = Box::new(move || *exact.next().expect("endless"));
        let out = feeder.run(&chunks).concat();
        // The last read may still wait for the rest of what it wanted.
        prop_assert!(stream.starts_with(&out), "other bytes came out");
        prop_assert!(stream.len() - out.len() <= 50_000);
    }

    #[test]
    fn any_range_of_a_gather_gives_the_bytes_of_that_range(
        packets in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..4), 0..10),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 20),
    ) {
        let (gather, all) = gather(&packets);
        prop_assert_eq!(gather.total(), all.len());
        prop_assert_eq!(gather.slices().concat(), all.clone());
        for (at, len) in cuts {
            let at = at.index(all.len() + 1);
            let len = len.index(all.len() - at + 1);
            let range = gather.range(at, len);
            prop_assert!(range.iter().all(|slice| !slice.is_empty()));
            prop_assert_eq!(range.concat(), &all[at..at + len]);
        }
    }

    /// Cuts a gather by `direct_prefix` as a sender does, and looks at every transfer.
    #[test]
    fn a_direct_transfer_is_one_bulk_packet_or_whole_small_ones(
        packets in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..4), 0..20),
        room in 1..80usize,
        bulk in 1..60usize,
        start in any::<prop::sample::Index>(),
    ) {
        let (gather, all) = gather(&packets);
        let mut at = start.index(all.len() + 1);
        while at < all.len() {
            let bytes = gather.direct_prefix(at, room, bulk);
            prop_assert!(bytes > 0 && bytes <= room, "{bytes} of {room} at {at}");
            let end = at + bytes;
            let inside: Vec<usize> = gather.ends().iter().copied().filter(|e| *e > at && *e <= end).collect();
            let head = gather.ends().iter().copied().find(|e| *e > at).expect("all packets end") - at;
            if inside.is_empty() {
                prop_assert!(head > room, "cut at {at}+{bytes} although its {head} bytes fit");
            } else {
                prop_assert_eq!(inside.last(), Some(&end), "ends inside of a packet");
                let first = (head >= bulk).then_some(1);
                prop_assert!(first.is_none_or(|one| inside.len() == one || inside[0] == end), "a bulk packet shares");
                let mut begin = at;
                for stop in inside {
                    prop_assert!(stop - begin < bulk || (begin == at && stop == end), "a bulk packet shares");
                    begin = stop;
                }
            }
            at = end;
        }
    }
}

fn gather(packets: &[Vec<Vec<u8>>]) -> (Gather<'_>, Vec<u8>) {
    let mut gather = Gather::with_capacity(0, packets.len());
    for packet in packets {
        for slice in packet {
            gather.push(slice);
        }
        gather.end_packet();
    }
    (gather, packets.concat().concat())
}

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
    let stream = framed(&sent);
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
        let stream = framed(std::slice::from_ref(packet));
        let taken = push(&mut assembly, &stream, 0, ReadLimit::bytes(usize::MAX), &mut out);
        assert_eq!(taken, Ok(stream.len()));
    }
    assert_eq!(contents::packets(&out), sent);
}

#[test]
fn empty_packets_are_packets() {
    let sent = vec![vec![], content(1, 3), vec![], vec![]];
    let stream = framed(&sent);
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
    let stream = framed(std::slice::from_ref(&packet));
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
    let stream = framed(&[content(2, 5)]);
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

    fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.0
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
    let stream = framed(&[content(1, 50), content(2, 50)]);
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

/// What a read left behind is given to the next ones, without anything new arriving.
#[test]
fn raw_leftovers_are_enough_for_smaller_reads() {
    let exact = |exact| ReadLimit {
        exact,
        ..ReadLimit::bytes(usize::MAX)
    };
    let stream = content(9, 12);
    let mut assembly = Assembly::<Vec<u8>>::new(Framing::Raw, PACKET_MAX);
    let mut out = Vec::new();
    assert_eq!(assembly.retarget(exact(20), &mut out), Ok(false));
    assert_eq!(push(&mut assembly, &stream, 5, exact(20), &mut out), Ok(12));
    assert!(out.is_empty());
    for left in [12, 9] {
        assert_eq!(assembly.retarget(exact(3), &mut out), Ok(true), "3 of {left}");
    }
    assert_eq!(assembly.retarget(exact(6), &mut out), Ok(true), "just what is left");
    assert_eq!(assembly.retarget(exact(20), &mut out), Ok(false), "nothing is left");
    assert_eq!(contents::packets(&out).concat(), stream);
    assert_eq!(push(&mut assembly, &stream, 5, exact(20), &mut out), Ok(12));
    assert_eq!(assembly.retarget(exact(9), &mut out), Ok(true));
    assert_eq!(assembly.retarget(ReadLimit::bytes(2), &mut out), Ok(true));
    assert_eq!(assembly.retarget(ReadLimit::bytes(2), &mut out), Ok(true));
    assert_eq!(
        assembly.retarget(ReadLimit::bytes(2), &mut out),
        Ok(false),
        "nothing is left"
    );
    let packets = contents::packets(&out);
    assert_eq!(packets.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3, 6, 9, 2, 1]);
    assert_eq!(packets[3..].concat(), stream);
}

/// Memory that counts what is asked for: whatever is copied is copied into fresh memory.
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

    fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.0
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
        assert_eq!(assembly.retarget(limit, &mut out), Ok(true));
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
    assert_eq!(assembly.retarget(exact(12), &mut out), Ok(false));
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
