//! The layout of a record: header, encrypted bytes, tag.

use crate::violation::Violation;

/// Size of the header.
pub const HEADER_BYTES: usize = 8;
/// Size of the tag.
pub const TAG_BYTES: usize = 16;
/// Bytes that a record adds to the user's bytes.
pub const OVERHEAD_BYTES: usize = HEADER_BYTES + TAG_BYTES;

/// User bytes of a record, at most: a fragment of the distribution (64 KiB and its header), so that it comes in one. A
/// record stays in the processor's second cache between copy and cipher.
pub const PLAIN_BYTES_MAX: usize = 68 * 1024;

/// The largest record.
pub const RECORD_BYTES_MAX: usize = PLAIN_BYTES_MAX + OVERHEAD_BYTES;

/// The smallest record: one user byte. If the ring has less room before its end, the sender fills that with zeros.
pub const RECORD_BYTES_MIN: usize = OVERHEAD_BYTES + 1;

/// The smallest ring: three quarters of it hold a record. That much a sender knows to be free when all is read.
pub const RING_BYTES_MIN: u32 = 64;

/// Named field ranges of the header, little-endian.
mod field {
    use std::ops::Range;

    pub const BYTES: Range<usize> = 0..4;
    pub const GENERATION: Range<usize> = 4..8;
}

/// The header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// User bytes in it, 1 to [`PLAIN_BYTES_MAX`].
    pub plain_bytes: usize,
    /// Names the key.
    pub generation: u32,
}

impl Header {
    /// The header as bytes.
    pub fn emit(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[field::BYTES].copy_from_slice(&(self.plain_bytes as u32).to_le_bytes());
        bytes[field::GENERATION].copy_from_slice(&self.generation.to_le_bytes());
        bytes
    }

    /// The header of a record of which `arrived` bytes are here. A record comes in one transfer, so it is here as a
    /// whole.
    pub fn parse(bytes: [u8; HEADER_BYTES], arrived: usize) -> Result<Header, Violation> {
        let header = Header::parse_first(bytes)?;
        let bytes = header.record_bytes();
        if bytes > arrived {
            return Err(Violation::RecordCut { bytes, arrived });
        }
        Ok(header)
    }

    /// The header of a record whose other bytes may follow.
    pub fn parse_first(bytes: [u8; HEADER_BYTES]) -> Result<Header, Violation> {
        let word = |range: std::ops::Range<usize>| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[range]);
            u32::from_le_bytes(word)
        };
        let plain_bytes = word(field::BYTES) as usize;
        if plain_bytes == 0 || plain_bytes > PLAIN_BYTES_MAX {
            return Err(Violation::RecordBytes {
                bytes: plain_bytes,
                max: PLAIN_BYTES_MAX,
            });
        }
        Ok(Header {
            plain_bytes,
            generation: word(field::GENERATION),
        })
    }

    /// Size of the whole record.
    pub fn record_bytes(self) -> usize {
        self.plain_bytes + OVERHEAD_BYTES
    }
}

/// Header and position of a record, which its tag covers beside the encrypted bytes.
pub(crate) fn aad(header: [u8; HEADER_BYTES], position: u64) -> [u8; HEADER_BYTES + 8] {
    let mut aad = [0; HEADER_BYTES + 8];
    aad[..HEADER_BYTES].copy_from_slice(&header);
    aad[HEADER_BYTES..].copy_from_slice(&position.to_le_bytes());
    aad
}

/// Bytes of zeros that come next, up to the end of the ring, if no record fits before it. None: a record comes next.
/// `to_end`: bytes from the next one to the end of the ring that it is in.
#[inline]
#[must_use]
pub fn filling(to_end: usize) -> Option<usize> {
    (to_end < RECORD_BYTES_MIN).then_some(to_end)
}

/// The position of a direction's next record.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place {
    /// Bytes of the stream before it, those of fillings included.
    pub position: u64,
    /// Records before it.
    pub sequence: u64,
}

impl Place {
    pub fn fill(&mut self, bytes: usize) {
        self.position += bytes as u64;
    }

    pub fn pass_record(&mut self, bytes: usize) {
        self.position += bytes as u64;
        self.sequence += 1;
    }
}
