//! Compressed blocks: the bytes of a side that compresses.
//!
//! A block is `<<Kind:8, Plain:24, Wire:24>>` and `Wire` bytes. In a plain block (kind 0) they are the bytes
//! themselves; in a compressed block (kind 1) they are the next part of one zstd frame (RFC 8878), flushed, that gives
//! `Plain` bytes. The frame is as long as the path: earlier bytes help to compress later ones.

use std::time::Instant;

use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, InBuffer, OutBuffer, get_error_name};

/// Size of a block's header.
pub(crate) const BLOCK_HEADER_BYTES: usize = 7;
/// Bytes of a block before compression, at most: a fragment of the distribution and its header.
pub(crate) const BLOCK_BYTES_MAX: usize = 66 * 1024;
/// Bytes of a plain block, at most. It costs the receiver no memory, and the sender's samples begin between two blocks.
pub(crate) const PLAIN_BLOCK_BYTES_MAX: usize = 1 << 20;
/// The most bytes of a block's data: zstd adds less than 1/128 to bytes that it cannot compress.
const WIRE_BYTES_MAX: usize = BLOCK_BYTES_MAX + BLOCK_BYTES_MAX / 128 + 64;

/// The fastest of zstd's levels that are not negative: higher ones take processor time that the distribution needs.
const LEVEL: i32 = 1;
/// Both sides look back 128 KiB, which bounds the memory that a peer can make this side use.
const WINDOW_LOG: u32 = 17;

/// Bytes of a sample, after which the ratio is judged.
const SAMPLE_BYTES: u64 = 64 * 1024;
/// Below this ratio, 1.2, compression is not worth its time.
const RATIO_LEAST: (u64, u64) = (12, 10);
/// Bytes that go uncompressed before the next sample; doubled each time that a sample compresses badly again.
const SKIPPED_BYTES: u64 = 8 << 20;
/// See [`SKIPPED_BYTES`].
const SKIPPED_BYTES_MAX: u64 = 64 << 20;

const PLAIN: u8 = 0;
const ZSTD: u8 = 1;

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

/// Makes blocks.
pub(crate) struct Compressor {
    context: CCtx<'static>,
    /// The block that is being made.
    block: Vec<u8>,
    /// Bytes of the sample under way, before and after compression.
    sample: (u64, u64),
    /// Bytes that go uncompressed until the next sample.
    skipped: u64,
    /// Bytes that were skipped last.
    skips: u64,
    /// The counts so far.
    pub done: Compression,
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Compressor")
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}

fn block_header(kind: u8, plain: usize, wire: usize) -> [u8; BLOCK_HEADER_BYTES] {
    let mut header = [kind; BLOCK_HEADER_BYTES];
    header[1..4].copy_from_slice(&(plain as u32).to_be_bytes()[1..]);
    header[4..].copy_from_slice(&(wire as u32).to_be_bytes()[1..]);
    header
}

impl Compressor {
    /// None: there is no memory for it.
    pub fn new() -> Option<Compressor> {
        let mut context = CCtx::try_create()?;
        context.set_parameter(CParameter::CompressionLevel(LEVEL)).ok()?;
        context.set_parameter(CParameter::WindowLog(WINDOW_LOG)).ok()?;
        Some(Compressor {
            context,
            block: Vec::new(),
            sample: (0, 0),
            skipped: 0,
            skips: SKIPPED_BYTES,
            done: Compression::default(),
        })
    }

    /// True if the next block is a plain one: compression does not pay for now.
    pub fn skips(&self) -> bool {
        self.skipped > 0
    }

    /// The header of a plain block.
    pub fn skip(&mut self, bytes: usize) -> [u8; BLOCK_HEADER_BYTES] {
        self.skipped = self.skipped.saturating_sub(bytes as u64);
        self.done.plain_bytes += bytes as u64;
        self.done.wire_bytes += (BLOCK_HEADER_BYTES + bytes) as u64;
        block_header(PLAIN, bytes, bytes)
    }

    /// A block of these slices, `bytes` bytes in all.
    pub fn compress(&mut self, slices: &[&[u8]], bytes: usize) -> &[u8] {
        let begun = Instant::now();
        self.block.resize(BLOCK_HEADER_BYTES + WIRE_BYTES_MAX, 0);
        let wire = {
            let mut output = OutBuffer::around(&mut self.block[BLOCK_HEADER_BYTES..]);
            for slice in slices {
                let mut input = InBuffer::around(slice);
                while input.pos() < slice.len() {
                    self.context
                        .compress_stream2(&mut output, &mut input, ZSTD_EndDirective::ZSTD_e_continue)
                        .expect("room for what zstd makes of a block");
                }
            }
            let nothing = &mut InBuffer::around(&[]);
            while self
                .context
                .compress_stream2(&mut output, nothing, ZSTD_EndDirective::ZSTD_e_flush)
                .expect("room for what zstd makes of a block")
                > 0
            {}
            output.pos()
        };
        self.block[..BLOCK_HEADER_BYTES].copy_from_slice(&block_header(ZSTD, bytes, wire));
        self.note(bytes as u64, (BLOCK_HEADER_BYTES + wire) as u64);
        self.done.nanoseconds += u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        &self.block[..BLOCK_HEADER_BYTES + wire]
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

/// Takes blocks apart.
pub(crate) struct Decompressor {
    context: DCtx<'static>,
    header: [u8; BLOCK_HEADER_BYTES],
    header_bytes: usize,
    kind: u8,
    /// Bytes that the block has still to give, and to get.
    plain_left: usize,
    wire_left: usize,
    plain: usize,
    /// Output of one call.
    output: Vec<u8>,
    /// The counts so far.
    pub done: Compression,
}

impl std::fmt::Debug for Decompressor {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Decompressor")
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}

impl Decompressor {
    /// None: there is no memory for it.
    pub fn new() -> Option<Decompressor> {
        let mut context = DCtx::try_create()?;
        context.set_parameter(DParameter::WindowLogMax(WINDOW_LOG)).ok()?;
        Some(Decompressor {
            context,
            header: [0; BLOCK_HEADER_BYTES],
            header_bytes: 0,
            kind: PLAIN,
            plain_left: 0,
            wire_left: 0,
            plain: 0,
            output: Vec::new(),
            done: Compression::default(),
        })
    }

    /// Bytes of a plain block that have not come.
    pub fn plain_bytes_left(&self) -> usize {
        if self.kind == PLAIN { self.wire_left } else { 0 }
    }

    /// This many of [`Self::plain_bytes_left`] have come, and were read to their final memory.
    pub fn handle_plain(&mut self, bytes: usize) {
        self.wire_left -= bytes;
        self.done.plain_bytes += bytes as u64;
        self.done.wire_bytes += bytes as u64;
    }

    /// Gives the contents of the blocks in these bytes to `take`. The size in a block's header is checked against the
    /// bound before memory is made, and a block may not give more.
    pub fn handle_input<E: From<BlockViolation>>(
        &mut self,
        mut bytes: &[u8],
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.done.wire_bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            if self.wire_left == 0 {
                let missing = BLOCK_HEADER_BYTES - self.header_bytes;
                let (part, rest) = bytes.split_at(missing.min(bytes.len()));
                self.header[self.header_bytes..self.header_bytes + part.len()].copy_from_slice(part);
                self.header_bytes += part.len();
                bytes = rest;
                if self.header_bytes == BLOCK_HEADER_BYTES {
                    self.begin()?;
                }
                continue;
            }
            let (part, rest) = bytes.split_at(self.wire_left.min(bytes.len()));
            self.wire_left -= part.len();
            bytes = rest;
            if self.kind == PLAIN {
                self.done.plain_bytes += part.len() as u64;
                take(part)?;
            } else {
                self.inflate(part, &mut take)?;
            }
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<(), BlockViolation> {
        let number =
            |at: usize| u32::from_be_bytes([0, self.header[at], self.header[at + 1], self.header[at + 2]]) as usize;
        let (kind, plain, wire) = (self.header[0], number(1), number(4));
        let is_possible = plain > 0
            && match kind {
                PLAIN => plain <= PLAIN_BLOCK_BYTES_MAX && wire == plain,
                ZSTD => plain <= BLOCK_BYTES_MAX && wire > 0 && wire <= WIRE_BYTES_MAX,
                _ => false,
            };
        if !is_possible {
            return Err(BlockViolation::Header { kind, plain, wire });
        }
        (self.kind, self.plain, self.plain_left, self.wire_left) = (kind, plain, plain, wire);
        self.header_bytes = 0;
        Ok(())
    }

    fn inflate<E: From<BlockViolation>>(
        &mut self,
        part: &[u8],
        take: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let begun = Instant::now();
        // One byte more than the block may give, so that a block that gives more is found.
        self.output.resize(BLOCK_BYTES_MAX + 1, 0);
        let given = {
            let mut input = InBuffer::around(part);
            let mut output = OutBuffer::around(&mut self.output[..=self.plain_left]);
            loop {
                let before = (input.pos(), output.pos());
                self.context
                    .decompress_stream(&mut output, &mut input)
                    .map_err(|code| BlockViolation::Zstd(get_error_name(code)))?;
                if (input.pos(), output.pos()) == before || output.pos() > self.plain_left {
                    break;
                }
            }
            if input.pos() < part.len() || output.pos() > self.plain_left {
                return Err(BlockViolation::Size(self.plain).into());
            }
            output.pos()
        };
        self.plain_left -= given;
        if self.wire_left == 0 && self.plain_left > 0 {
            return Err(BlockViolation::Size(self.plain).into());
        }
        self.done.plain_bytes += given as u64;
        self.done.nanoseconds += u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        take(&self.output[..given])
    }
}
