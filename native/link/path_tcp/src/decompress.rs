//! The receiver of compressed blocks.

use std::ops::Range;
use std::time::Instant;

use rustix::io::Errno;
use zstd_safe::zstd_sys::ZSTD_ErrorCode;
use zstd_safe::{DCtx, DParameter, ErrorCode, InBuffer, OutBuffer, ResetDirective, get_error_name};

use crate::compress::{
    BLOCK_BYTES_MAX, BLOCK_HEADER_BYTES, BlockViolation, Compression, PLAIN, PLAIN_BLOCK_BYTES_MAX, WINDOW_LOG,
    WIRE_BYTES_MAX, ZSTD,
};
use crate::outcome::{Lost, ReceiveError};

/// A frame of no bytes that looks back as far as [`WINDOW_LOG`] says. zstd makes the memory of the window for it.
const EMPTY_FRAME: [u8; 9] = [0x28, 0xb5, 0x2f, 0xfd, 0, ((WINDOW_LOG - 10) << 3) as u8, 1, 0, 0];

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
    /// The part of [`Self::output`] that waits for the next turn.
    given: Range<usize>,
    pub done: Compression,
}

impl Decompressor {
    /// None: there is no memory for it. Later it needs none: zstd has that of the window from here on.
    pub fn new() -> Option<Decompressor> {
        let mut context = DCtx::try_create()?;
        context.set_parameter(DParameter::WindowLogMax(WINDOW_LOG)).ok()?;
        let mut frame = InBuffer::around(&EMPTY_FRAME);
        let mut nothing = [0; 1];
        context
            .decompress_stream(&mut OutBuffer::around(&mut nothing[..]), &mut frame)
            .ok()?;
        Some(Decompressor {
            context,
            header: [0; BLOCK_HEADER_BYTES],
            header_bytes: 0,
            kind: PLAIN,
            plain_left: 0,
            wire_left: 0,
            plain: 0,
            output: Vec::new(),
            given: 0..0,
            done: Compression::default(),
        })
    }

    /// Expects another frame, with the memory of this one.
    pub fn reset(&mut self) {
        let _never_fails = self.context.reset(ResetDirective::SessionOnly);
        (self.header_bytes, self.kind) = (0, PLAIN);
        (self.plain_left, self.wire_left, self.given) = (0, 0, 0..0);
        self.done = Compression::default();
    }

    /// True if output waits for the next turn.
    pub fn holds_input(&self) -> bool {
        !self.given.is_empty()
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

    /// Gives the contents of the blocks in these bytes to `take`, which returns how many bytes it has taken; fewer than
    /// all: the turn is over. Returns how many of these bytes were used; output that was not taken comes first in the
    /// next turn. The size in a block's header is checked against the bound before memory is made, and a block may not
    /// give more.
    pub fn handle_input(
        &mut self,
        bytes: &[u8],
        mut take: impl FnMut(&[u8]) -> Result<usize, ReceiveError>,
    ) -> Result<usize, ReceiveError> {
        let mut used = 0;
        let mut goes_on = self.give(&mut take)?;
        while goes_on && used < bytes.len() {
            let rest = &bytes[used..];
            if self.wire_left == 0 {
                let missing = BLOCK_HEADER_BYTES - self.header_bytes;
                let part = &rest[..missing.min(rest.len())];
                self.header[self.header_bytes..self.header_bytes + part.len()].copy_from_slice(part);
                self.header_bytes += part.len();
                used += part.len();
                if self.header_bytes == BLOCK_HEADER_BYTES {
                    self.begin()?;
                }
                continue;
            }
            let part = &rest[..self.wire_left.min(rest.len())];
            let taken = match self.kind {
                PLAIN => {
                    let taken = take(part)?;
                    self.done.plain_bytes += taken as u64;
                    goes_on = taken == part.len();
                    self.wire_left -= taken;
                    taken
                }
                _ => {
                    self.wire_left -= part.len();
                    self.inflate(part)?;
                    goes_on = self.give(&mut take)?;
                    part.len()
                }
            };
            used += taken;
        }
        self.done.wire_bytes += used as u64;
        Ok(used)
    }

    /// Gives the output that has not been taken. True: none is left.
    fn give(&mut self, take: &mut impl FnMut(&[u8]) -> Result<usize, ReceiveError>) -> Result<bool, ReceiveError> {
        if !self.given.is_empty() {
            self.given.start += take(&self.output[self.given.clone()])?;
        }
        Ok(self.given.is_empty())
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

    /// Makes the output of a part of a block's data.
    fn inflate(&mut self, part: &[u8]) -> Result<(), ReceiveError> {
        let begun = Instant::now();
        let has_given = self.plain_left < self.plain;
        // One byte more than the block may give, so that a block that gives more is found.
        self.output.resize(BLOCK_BYTES_MAX + 1, 0);
        let given = {
            let mut input = InBuffer::around(part);
            let mut output = OutBuffer::around(&mut self.output[..=self.plain_left]);
            loop {
                let before = (input.pos(), output.pos());
                self.context
                    .decompress_stream(&mut output, &mut input)
                    .map_err(|code| failure(code, has_given))?;
                if (input.pos(), output.pos()) == before || output.pos() > self.plain_left {
                    break;
                }
            }
            if input.pos() < part.len() || output.pos() > self.plain_left {
                return Err(broken(BlockViolation::Size(self.plain), has_given));
            }
            output.pos()
        };
        self.plain_left -= given;
        if self.wire_left == 0 && self.plain_left > 0 {
            return Err(broken(BlockViolation::Size(self.plain), has_given));
        }
        self.done.plain_bytes += given as u64;
        self.done.nanoseconds += u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.given = 0..given;
        Ok(())
    }
}

/// `has_given`: the session has a part of the block, which may be wrong, too.
fn broken(violation: BlockViolation, has_given: bool) -> ReceiveError {
    if has_given {
        ReceiveError::PeerBlock(violation)
    } else {
        ReceiveError::Block(violation)
    }
}

/// The block is broken, unless this side lacks memory.
fn failure(code: ErrorCode, has_given: bool) -> ReceiveError {
    let no_memory = (ZSTD_ErrorCode::ZSTD_error_memory_allocation as ErrorCode).wrapping_neg();
    if code == no_memory {
        Lost::Error(Errno::NOMEM).into()
    } else {
        broken(BlockViolation::Zstd(get_error_name(code)), has_given)
    }
}
