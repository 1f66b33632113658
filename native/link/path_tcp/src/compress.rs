//! Compressed blocks: the bytes of a side that compresses.
//!
//! A block is `<<Kind:8, Plain:24, Wire:24>>` and `Wire` bytes. In a plain block (kind 0) they are the bytes
//! themselves; in a compressed block (kind 1) they are the next part of one zstd frame (RFC 8878), flushed, that gives
//! `Plain` bytes. The frame is as long as the path: earlier bytes help to compress later ones.

use std::ops::AddAssign;
use std::time::Instant;

use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, ResetDirective};

/// Size of a block's header.
pub(crate) const BLOCK_HEADER_BYTES: usize = 7;
/// Bytes of a block before compression, at most: a fragment of the distribution and its header.
pub(crate) const BLOCK_BYTES_MAX: usize = 66 * 1024;
/// Bytes of a plain block, at most. It costs the receiver no memory, and the sender's samples begin between two blocks.
pub(crate) const PLAIN_BLOCK_BYTES_MAX: usize = 1 << 20;
/// The most bytes of a block's data: zstd adds less than 1/128 to bytes that it cannot compress.
pub(crate) const WIRE_BYTES_MAX: usize = BLOCK_BYTES_MAX + BLOCK_BYTES_MAX / 128 + 64;

/// The fastest of zstd's levels that are not negative: higher ones take processor time that the distribution needs.
const LEVEL: i32 = 1;
/// Both sides look back 128 KiB, which bounds the memory that a peer can make this side use.
pub(crate) const WINDOW_LOG: u32 = 17;

/// Bytes of a sample, after which the ratio is judged.
const SAMPLE_BYTES: u64 = 64 * 1024;
/// Below this ratio, 1.2, compression is not worth its time.
const RATIO_LEAST: (u64, u64) = (12, 10);
/// Bytes that go uncompressed before the next sample; doubled each time that a sample compresses badly again.
const SKIPPED_BYTES: u64 = 8 << 20;
const SKIPPED_BYTES_MAX: u64 = 64 << 20;

pub(crate) const PLAIN: u8 = 0;
pub(crate) const ZSTD: u8 = 1;

/// Violations by a compressing peer. Each ends the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlockViolation {
    /// A header with numbers that no block can have.
    #[error("a block of kind {kind} with {plain} bytes in {wire}")]
    Header {
        /// The kind of the block.
        kind: u8,
        /// Bytes before compression, as it says.
        plain: usize,
        /// Bytes of its data, as it says.
        wire: usize,
    },
    /// A block that decompresses to another number of bytes than its header says.
    #[error("a compressed block that does not give the {0} bytes that it says")]
    Size(usize),
    /// Bytes that are no part of a zstd frame.
    #[error("a compressed block that cannot be: {0}")]
    Zstd(&'static str),
}

/// Counts of compression in one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Compression {
    /// Bytes before it.
    pub plain_bytes: u64,
    /// Bytes after it, with the headers of blocks.
    pub wire_bytes: u64,
    /// Time that compression took.
    pub nanoseconds: u64,
}

impl AddAssign for Compression {
    fn add_assign(&mut self, more: Compression) {
        self.plain_bytes += more.plain_bytes;
        self.wire_bytes += more.wire_bytes;
        self.nanoseconds += more.nanoseconds;
    }
}

pub(crate) struct Compressor {
    /// None: there was no memory, and all blocks are plain.
    context: Option<CCtx<'static>>,
    /// The block that is being made.
    block: Vec<u8>,
    /// Bytes of the sample under way, before and after compression.
    sample: (u64, u64),
    /// Bytes that go uncompressed until the next sample.
    skipped: u64,
    /// Bytes that were skipped last.
    skips: u64,
    pub done: Compression,
}

fn block_header(kind: u8, plain: usize, wire: usize) -> [u8; BLOCK_HEADER_BYTES] {
    let mut header = [kind; BLOCK_HEADER_BYTES];
    header[1..4].copy_from_slice(&(plain as u32).to_be_bytes()[1..]);
    header[4..].copy_from_slice(&(wire as u32).to_be_bytes()[1..]);
    header
}

fn compressing_context() -> Option<CCtx<'static>> {
    let mut context = CCtx::try_create()?;
    context.set_parameter(CParameter::CompressionLevel(LEVEL)).ok()?;
    context.set_parameter(CParameter::WindowLog(WINDOW_LOG)).ok()?;
    Some(context)
}

impl Compressor {
    pub fn new() -> Compressor {
        Compressor {
            context: compressing_context(),
            block: Vec::new(),
            sample: (0, 0),
            skipped: 0,
            skips: SKIPPED_BYTES,
            done: Compression::default(),
        }
    }

    /// Begins another frame, with the memory of this one.
    pub fn reset(&mut self) {
        let kept = self.context.take().and_then(|mut context| {
            let reset = context.reset(ResetDirective::SessionOnly);
            reset.ok().map(|_| context)
        });
        self.context = kept.or_else(compressing_context);
        (self.sample, self.skipped, self.skips) = ((0, 0), 0, SKIPPED_BYTES);
        self.done = Compression::default();
    }

    /// True if the next block is a plain one: compression does not pay for now, or there is no memory for it.
    pub fn skips(&self) -> bool {
        self.skipped > 0 || self.context.is_none()
    }

    /// The header of a plain block.
    pub fn skip(&mut self, bytes: usize) -> [u8; BLOCK_HEADER_BYTES] {
        self.skipped = self.skipped.saturating_sub(bytes as u64);
        self.done.plain_bytes += bytes as u64;
        self.done.wire_bytes += (BLOCK_HEADER_BYTES + bytes) as u64;
        block_header(PLAIN, bytes, bytes)
    }

    /// Makes a block of these slices, `bytes` bytes in all: see [`Self::block`]. False: there is no memory for it, and
    /// this block and all others of the connection go plain. The peer's frame stays where it is.
    pub fn compress(&mut self, slices: &[&[u8]], bytes: usize) -> bool {
        let begun = Instant::now();
        self.block.resize(BLOCK_HEADER_BYTES + WIRE_BYTES_MAX, 0);
        let Some(wire) = self.compress_all(slices) else {
            self.context = None;
            return false;
        };
        self.block.truncate(BLOCK_HEADER_BYTES + wire);
        self.block[..BLOCK_HEADER_BYTES].copy_from_slice(&block_header(ZSTD, bytes, wire));
        self.note(bytes as u64, (BLOCK_HEADER_BYTES + wire) as u64);
        self.done.nanoseconds += u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        true
    }

    pub fn block(&self) -> &[u8] {
        &self.block
    }

    /// The bytes of the next part of the frame. None: zstd has failed; it makes its memory with the first bytes.
    fn compress_all(&mut self, slices: &[&[u8]]) -> Option<usize> {
        let context = self.context.as_mut()?;
        let mut output = OutBuffer::around(&mut self.block[BLOCK_HEADER_BYTES..]);
        for slice in slices {
            let mut input = InBuffer::around(slice);
            while input.pos() < slice.len() {
                context
                    .compress_stream2(&mut output, &mut input, ZSTD_EndDirective::ZSTD_e_continue)
                    .ok()?;
            }
        }
        let nothing = &mut InBuffer::around(&[]);
        while context
            .compress_stream2(&mut output, nothing, ZSTD_EndDirective::ZSTD_e_flush)
            .ok()?
            > 0
        {}
        Some(output.pos())
    }

    fn note(&mut self, plain: u64, wire: u64) {
        self.done.plain_bytes += plain;
        self.done.wire_bytes += wire;
        self.sample.0 += plain;
        self.sample.1 += wire;
        if self.sample.0 >= SAMPLE_BYTES {
            if self.sample.0 * RATIO_LEAST.1 < self.sample.1 * RATIO_LEAST.0 {
                self.skipped = self.skips;
                self.skips = (self.skips * 2).min(SKIPPED_BYTES_MAX);
            } else {
                self.skips = SKIPPED_BYTES;
            }
            self.sample = (0, 0);
        }
    }
}
