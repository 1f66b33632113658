//! The messages between the peers: the hello, the control messages and the notice of a transfer.
//! Each has named field ranges and one parse/emit pair. All numbers are little-endian; bytes that a message does not
//! use are zero, so that every message has one form only.

mod control;
mod hello;
mod notice;

pub use control::{Advert, CONTROL_BYTES, Control, ControlBody, NewRing};
pub use hello::{HELLO_BYTES, Hello, PROTOCOL_VERSION};
pub use notice::{Notice, TRANSFER_BYTES_MAX};

use std::ops::Range;

/// The range of a field in its message.
type Field = Range<usize>;

/// An address in memory that the peer exposed: offset in (or virtual address of) the region that `key` names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct RemoteAddress {
    /// Names the memory region. A device of verbs has keys of 32 bits.
    pub key: u64,
    /// The address in the region.
    pub address: u64,
}

impl RemoteAddress {
    /// The address `bytes` further on. Wraps as the hardware does; ranges of a peer are checked on arrival.
    pub(crate) fn plus(self, bytes: u32) -> RemoteAddress {
        RemoteAddress {
            address: self.address.wrapping_add(u64::from(bytes)),
            ..self
        }
    }
}

/// The reason why bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Shorter or longer than the message it should be.
    #[error("message of {got} bytes where {want} were due")]
    Length {
        /// The length of the bytes.
        got: usize,
        /// The length of the message.
        want: usize,
    },
    /// Bytes of another protocol.
    #[error("not an inet_rdma hello")]
    Magic,
    /// Another version of this protocol.
    #[error("the peer speaks protocol version {theirs}, this node speaks {}", PROTOCOL_VERSION)]
    Version {
        /// The peer's version.
        theirs: u16,
    },
    /// A kind of control message that does not exist.
    #[error("unknown control message {0}")]
    Kind(u8),
    /// A field with a value that it must not have.
    #[error("field {0} has an impossible value")]
    Field(&'static str),
}

/// The bytes of a field as an array; the caller has checked the message's length, so the range is inside.
fn array<const N: usize>(message: &[u8], field: Field) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&message[field]);
    out
}

fn read_u16(message: &[u8], field: Field) -> u16 {
    u16::from_le_bytes(array(message, field))
}

fn read_u32(message: &[u8], field: Field) -> u32 {
    u32::from_le_bytes(array(message, field))
}

fn read_u64(message: &[u8], field: Field) -> u64 {
    u64::from_le_bytes(array(message, field))
}

fn check_length(message: &[u8], want: usize) -> Result<(), WireError> {
    let got = message.len();
    if got == want {
        Ok(())
    } else {
        Err(WireError::Length { got, want })
    }
}

fn check_zero(message: &[u8], field: Field, name: &'static str) -> Result<(), WireError> {
    if message[field].iter().all(|byte| *byte == 0) {
        Ok(())
    } else {
        Err(WireError::Field(name))
    }
}

#[cfg(test)]
mod tests;
