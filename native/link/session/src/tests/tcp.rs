//! TCP connections between two sides: what is under way on each, by direction.
//!
//! A connection has the number of the attempt that made it; the first one has 0. One side may have given a connection
//! up while the other still writes to it and reads what has arrived.

use crate::Standing;
use crate::frame::{HEADER_BYTES, Header};

/// One direction of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Flight {
    pub connection: u64,
    pub from: usize,
    /// The message of the exchange, ahead of all bytes.
    pub standing: Option<Standing>,
    pub bytes: Vec<u8>,
}

/// The side that dialled a connection: attempts of the initiator are odd.
pub fn dialer(connection: u64) -> usize {
    usize::from(connection % 2 == 0)
}

/// How much of what there is goes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Portion {
    /// One byte.
    Byte,
    /// The rest of a header or message, or a piece of the stream.
    Part,
    /// All of it.
    All,
}

/// Where a reader or a writer is in the frames of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Place {
    header: Vec<u8>,
    body_left: usize,
}

impl Place {
    /// Bytes up to the next boundary, of which a body of the stream has one each `piece_bytes`.
    pub fn part_bytes(&self, piece_bytes: usize) -> usize {
        match self.body_left {
            0 => HEADER_BYTES - self.header.len(),
            left => left.min(piece_bytes),
        }
    }

    pub fn handle(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let taken = bytes.len().min(match self.body_left {
                0 => HEADER_BYTES - self.header.len(),
                left => left,
            });
            if self.body_left > 0 {
                self.body_left -= taken;
            } else {
                self.header.extend_from_slice(&bytes[..taken]);
                if let Ok(header) = <&[u8; HEADER_BYTES]>::try_from(self.header.as_slice()) {
                    self.body_left = Header::decode(header).map_or(0, |header| header.bytes);
                    self.header.clear();
                }
            }
            bytes = &bytes[taken..];
        }
    }
}
