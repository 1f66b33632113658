//! Assembly: packets come out as they went in, however their bytes are split.

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

use content::content;
use framed::framed;
use inet_rdma_assembly::{Assembly, AssemblyError, Framing, ReadLimit, Received};
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

/// A read of the reader.
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

/// Feeds a stream to an assembly in the given chunks, which repeat until the end of the stream, as a connection would.
struct Feeder<'a> {
    assembly: Assembly<Vec<u8>>,
    stream: &'a [u8],
    asks: std::iter::Cycle<std::slice::Iter<'a, Ask>>,
    exact: Box<dyn FnMut() -> usize + 'a>,
    bulk: usize,
    out: Vec<Vec<u8>>,
}

/// Sends packets of these sizes through an assembly. True: they come out as they went in.
fn come_out(framing: Framing, sizes: &[usize], seed: u64, chunks: &[Chunk], asks: &[Ask], bulk: usize) -> bool {
    let sent: Vec<_> = sizes
        .iter()
        .zip(seed..)
        .map(|(bytes, seed)| content(seed, *bytes))
        .collect();
    let stream = framed(framing, &sent);
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

    /// Offers ring bytes to one or more reads: the next read gets the bytes that one read does not take.
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
        // The engine keeps the buffer with the range of bytes that were not taken.
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

    /// Begins the next read. None: the bytes that an earlier read left sufficed.
    fn next_read(&mut self) -> Option<ReadLimit> {
        let limit = self.asks.next().expect("endless").limit((self.exact)());
        let mut out = Vec::new();
        let kept = self.assembly.kept();
        let done = self.assembly.retarget(limit, &mut out).expect("memory");
        assert_eq!(done.is_some(), !out.is_empty());
        assert_eq!(done.unwrap_or(0), kept - self.assembly.kept());
        self.keep(&out, limit);
        done.is_none().then_some(limit)
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
        // The last read may still wait for more bytes.
        prop_assert!(stream.starts_with(&out), "other bytes came out");
        prop_assert!(stream.len() - out.len() <= 50_000);
    }
}
