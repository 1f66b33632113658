//! The notice of a transfer: 32 bits, so that it fits the immediate of an RDMA write.

use super::WireError;

/// The most user bytes that one transfer can carry.
pub const TRANSFER_BYTES_MAX: u32 = (1 << 31) - 1;

const DIRECT: u32 = 1 << 31;

/// The 32 bits that announce a transfer: its kind and its number of bytes.
///
/// An indirect notice of 0 bytes is a *mark*, the answer to [`super::ControlBody::Recall`] and
/// [`super::ControlBody::Ring`]: the sender holds no advertisement now, and writes into the announced ring from
/// now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Notice {
    /// Into an advertised buffer (true) or into the ring.
    pub direct: bool,
    /// Up to [`TRANSFER_BYTES_MAX`]; at least 1 if `direct`.
    pub bytes: u32,
}

impl Notice {
    /// The mark.
    pub const MARK: Notice = Notice {
        direct: false,
        bytes: 0,
    };

    /// Reads a notice: bit 31 is set for direct, the rest is the number of bytes.
    pub fn parse(word: u32) -> Result<Notice, WireError> {
        let notice = Notice {
            direct: word & DIRECT != 0,
            bytes: word & !DIRECT,
        };
        if notice.direct && notice.bytes == 0 {
            return Err(WireError::Field("notice bytes"));
        }
        Ok(notice)
    }

    /// The notice as 32 bits (host order: the fabric puts it on the wire).
    #[must_use]
    pub fn emit(self) -> u32 {
        (self.bytes & !DIRECT) | if self.direct { DIRECT } else { 0 }
    }
}
