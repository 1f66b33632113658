//! The hello: each side's limits and addresses, sent before the first byte.

use super::{RemoteAddress, WireError, check_length, check_zero, read_u16, read_u32, read_u64};
use crate::limits::Limits;

/// The version of the protocol in this crate. Peers of different versions refuse each other.
pub const PROTOCOL_VERSION: u16 = 7;

/// Size of the hello on the wire; fits the private data of an rdma_cm connect request (56 bytes).
pub const HELLO_BYTES: usize = 56;

/// Named field ranges.
mod field {
    use crate::wire::Field;

    pub const MAGIC: Field = 0..8;
    pub const VERSION: Field = 8..10;
    pub const RECEIVE_SLOTS: Field = 10..12;
    pub const RING_BYTES: Field = 12..16;
    pub const RING_KEY: Field = 16..24;
    pub const RING_ADDRESS: Field = 24..32;
    pub const CONNECTION_ID: Field = 32..36;
    pub const ADVERTS: Field = 36..38;
    pub const PAD: Field = 38..48;
    pub const TOKEN: Field = 48..56;
}

const MAGIC: [u8; 8] = *b"inetrdma";

/// Each side's limits and addresses, sent before the first byte.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hello {
    /// The address of this side's ring.
    pub ring: RemoteAddress,
    /// Size of the ring in bytes.
    pub ring_bytes: u32,
    /// Depth of the receive queue: how many notices and control messages may be under way to this side.
    pub receive_slots: u16,
    /// How many advertisements this side is ready to hold.
    pub adverts: u16,
    /// Names this connection on this side (for logs).
    pub connection_id: u32,
    /// Names the settlement that this connection is made for; 0: none.
    pub token: u64,
}

impl Hello {
    /// The limits that the sender of this hello sets for the other side.
    pub fn limits(&self) -> Limits {
        Limits {
            ring_bytes: self.ring_bytes,
            receive_slots: self.receive_slots,
            adverts: self.adverts,
        }
    }

    /// Reads a hello of exactly [`HELLO_BYTES`] (a fabric that pads its private data cuts it first).
    ///
    /// Magic and version are checked before the length, so that the error names another version even if that hello is
    /// longer. [`crate::Stream::new`] checks the limits.
    pub fn parse(message: &[u8]) -> Result<Hello, WireError> {
        if message.len() >= field::VERSION.end {
            if message[field::MAGIC] != MAGIC {
                return Err(WireError::Magic);
            }
            let theirs = read_u16(message, field::VERSION);
            if theirs != PROTOCOL_VERSION {
                return Err(WireError::Version { theirs });
            }
        }
        check_length(message, HELLO_BYTES)?;
        check_zero(message, field::PAD, "hello pad")?;
        Ok(Hello {
            ring: RemoteAddress {
                key: read_u64(message, field::RING_KEY),
                address: read_u64(message, field::RING_ADDRESS),
            },
            ring_bytes: read_u32(message, field::RING_BYTES),
            receive_slots: read_u16(message, field::RECEIVE_SLOTS),
            adverts: read_u16(message, field::ADVERTS),
            connection_id: read_u32(message, field::CONNECTION_ID),
            token: read_u64(message, field::TOKEN),
        })
    }

    /// The hello as bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; HELLO_BYTES] {
        let mut message = [0; HELLO_BYTES];
        message[field::MAGIC].copy_from_slice(&MAGIC);
        message[field::VERSION].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
        message[field::RECEIVE_SLOTS].copy_from_slice(&self.receive_slots.to_le_bytes());
        message[field::RING_BYTES].copy_from_slice(&self.ring_bytes.to_le_bytes());
        message[field::RING_KEY].copy_from_slice(&self.ring.key.to_le_bytes());
        message[field::ADVERTS].copy_from_slice(&self.adverts.to_le_bytes());
        message[field::RING_ADDRESS].copy_from_slice(&self.ring.address.to_le_bytes());
        message[field::CONNECTION_ID].copy_from_slice(&self.connection_id.to_le_bytes());
        message[field::TOKEN].copy_from_slice(&self.token.to_le_bytes());
        message
    }
}
