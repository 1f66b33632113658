//! Frames: the layout of a session's bytes in a TCP connection.
//!
//! Each frame has a header of [`HEADER_BYTES`], numbers in network order:
//!
//! | bytes | field |
//! |---|---|
//! | 0 | kind |
//! | 1..4 | bytes after the header |
//! | 4..12 | position up to which the sender of the frame has received: an acknowledgement |
//!
//! Acknowledgements are in headers, and so neither in the stream nor in the log. In the stream they would need room in
//! the log, and two sides with full logs would wait for each other's acknowledgements.

use crate::position::Position;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 12;
/// The most bytes of the stream in one frame: a receiver sees an acknowledgement at least this often.
pub const DATA_BYTES_MAX: usize = 256 * 1024;
/// The largest control message.
pub const CONTROL_BYTES_MAX: usize = 64 * 1024;
/// Bytes of [`Kind::Move`].
pub const MOVE_BYTES: usize = 16;
/// Bytes of [`Kind::End`], [`Kind::Echo`], [`Kind::Echoed`] and [`Kind::Window`].
pub const NUMBER_BYTES: usize = 8;

/// In [`Kind::End`]: no session comes to this position.
pub const CONTRADICTION: Position = Position(u64::MAX);

/// The kind of a frame, by its number in the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Bytes of the stream; without any: an acknowledgement.
    Data = 0,
    /// A sign of life.
    Tick = 1,
    /// A message between the two guards, outside the stream: lost with the connection.
    Control = 2,
    /// `<<Path:64, Mark:64>>`: the stream carries on over that path from the mark on. Path 0: over this connection, on
    /// which this frame comes before all bytes of the stream.
    Move = 3,
    /// `<<Position:64>>`: the sender ends the session there; [`CONTRADICTION`]: as the positions contradict each other.
    End = 4,
    /// `<<Number:64>>`: the receiver answers at once with the same number.
    Echo = 5,
    /// `<<Number:64>>`: the answer to [`Kind::Echo`].
    Echoed = 6,
    /// `<<Bytes:64>>`: the bytes of the stream that the sender of the frame takes over this connection without having
    /// acknowledged them; at least [`WINDOW_BYTES_FIRST`](crate::WINDOW_BYTES_FIRST).
    Window = 7,
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The kind.
    pub kind: Kind,
    /// Bytes that follow.
    pub bytes: usize,
    /// The position up to which the sender has received.
    pub received: Position,
}

impl Header {
    /// The header as bytes. `self.bytes` is below 2^24.
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        let first = (self.kind as u32) << 24 | (self.bytes as u32 & 0x00ff_ffff);
        let mut encoded = [0; HEADER_BYTES];
        encoded[..4].copy_from_slice(&first.to_be_bytes());
        encoded[4..].copy_from_slice(&self.received.0.to_be_bytes());
        encoded
    }

    /// The header in these bytes. None: the kind is unknown, or cannot have this size.
    pub fn decode(encoded: &[u8; HEADER_BYTES]) -> Option<Header> {
        let [kind, a, b, c, rest @ ..] = *encoded;
        let bytes = u32::from_be_bytes([0, a, b, c]) as usize;
        let (kind, sizes) = match kind {
            0 => (Kind::Data, 0..=DATA_BYTES_MAX),
            1 => (Kind::Tick, 0..=0),
            2 => (Kind::Control, 0..=CONTROL_BYTES_MAX),
            3 => (Kind::Move, MOVE_BYTES..=MOVE_BYTES),
            4 => (Kind::End, NUMBER_BYTES..=NUMBER_BYTES),
            5 => (Kind::Echo, NUMBER_BYTES..=NUMBER_BYTES),
            6 => (Kind::Echoed, NUMBER_BYTES..=NUMBER_BYTES),
            7 => (Kind::Window, NUMBER_BYTES..=NUMBER_BYTES),
            _ => return None,
        };
        sizes.contains(&bytes).then_some(Header {
            kind,
            bytes,
            received: Position(u64::from_be_bytes(rest)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        for (kind, bytes) in [
            (Kind::Data, 0),
            (Kind::Data, DATA_BYTES_MAX),
            (Kind::Tick, 0),
            (Kind::Control, CONTROL_BYTES_MAX),
            (Kind::Move, MOVE_BYTES),
            (Kind::End, NUMBER_BYTES),
            (Kind::Echo, NUMBER_BYTES),
            (Kind::Echoed, NUMBER_BYTES),
            (Kind::Window, NUMBER_BYTES),
        ] {
            let header = Header {
                kind,
                bytes,
                received: Position(u64::MAX - 7),
            };
            assert_eq!(Header::decode(&header.encode()), Some(header));
        }
    }

    #[test]
    fn kinds_and_sizes_that_there_are_not_are_refused() {
        for first in [
            0x0004_0001_u32,
            0x0100_0001,
            0x0201_0001,
            0x0300_000f,
            0x0400_0001,
            0x0500_0000,
            0x0600_0009,
            0x0700_0000,
            0x0800_0008,
        ] {
            let mut encoded = [0; HEADER_BYTES];
            encoded[..4].copy_from_slice(&first.to_be_bytes());
            assert_eq!(Header::decode(&encoded), None, "{first:#x}");
        }
    }
}
