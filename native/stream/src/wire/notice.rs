//! The notice of a transfer: 32 bits, so that it fits the immediate of an RDMA write.

use super::WireError;

/// The most user bytes that one transfer can carry.
pub const TRANSFER_BYTES_MAX: u32 = (1 << 31) - 1;

const DIRECT: u32 = 1 << 31;

/// The 32 bits that announce a transfer: which kind, and how many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Notice {
    /// Into an advertised buffer (true) or into the ring.
    pub direct: bool,
    /// 1 to [`TRANSFER_BYTES_MAX`].
    pub bytes: u32,
}

impl Notice {
    /// Reads a notice: bit 31 is set for direct, the rest is the number of bytes, which must not be 0.
    pub fn parse(word: u32) -> Result<Notice, WireError> {
        let bytes = word & !DIRECT;
        if bytes == 0 {
            return Err(WireError::Field("notice bytes"));
        }
        Ok(Notice {
            direct: word & DIRECT != 0,
            bytes,
        })
    }

    /// The notice as 32 bits (host order: the fabric puts it on the wire).
    #[must_use]
    pub fn emit(self) -> u32 {
        (self.bytes & !DIRECT) | if self.direct { DIRECT } else { 0 }
    }
}
