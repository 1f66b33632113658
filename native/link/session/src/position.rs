//! Positions in the byte stream of one direction of a session.

use std::ops::{Add, Sub};

/// The number of bytes of the stream, packets with their lengths, before this place. 64 bits do not run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(pub u64);

impl Add<usize> for Position {
    type Output = Position;

    fn add(self, bytes: usize) -> Position {
        Position(self.0.saturating_add(bytes as u64))
    }
}

impl Sub for Position {
    type Output = usize;

    /// Bytes from `earlier` to this position; 0 if `earlier` is behind it.
    fn sub(self, earlier: Position) -> usize {
        usize::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(usize::MAX)
    }
}
