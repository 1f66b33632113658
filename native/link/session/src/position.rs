//! Positions in the byte stream of one direction of a session.

use std::ops::{Add, Sub};

/// The number of bytes of the stream, packets with their lengths, before this place. 64 bits do not run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(pub u64);

impl Position {
    /// Bytes from `earlier` to this position; 0 if `earlier` is the later one.
    pub fn saturating_since(self, earlier: Position) -> usize {
        usize::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(usize::MAX)
    }
}

impl Add<usize> for Position {
    type Output = Position;

    /// # Panics
    /// Above 64 bits: a fault of this side, as a peer's positions are checked before they are used. The port ends the
    /// link of a callback that panics.
    fn add(self, bytes: usize) -> Position {
        Position(self.0.checked_add(bytes as u64).expect("a position has 64 bits"))
    }
}

impl Sub for Position {
    type Output = usize;

    /// Bytes from `earlier` to this position.
    ///
    /// # Panics
    /// If `earlier` is the later one: as of [`Self::add`].
    fn sub(self, earlier: Position) -> usize {
        let bytes = self.0.checked_sub(earlier.0);
        let bytes = bytes.unwrap_or_else(|| panic!("position {} does not lie behind {}", self.0, earlier.0));
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_between_positions_are_counted() {
        assert_eq!(Position(7) - Position(7), 0);
        assert_eq!(Position(9) - Position(7), 2);
        assert_eq!(Position(7) + 2, Position(9));
        assert_eq!(Position(7).saturating_since(Position(9)), 0);
    }

    #[test]
    #[should_panic(expected = "position 7 does not lie behind 9")]
    fn a_later_position_is_a_fault_and_no_distance_of_0() {
        let _bytes = Position(7) - Position(9);
    }

    #[test]
    #[should_panic(expected = "64 bits")]
    fn a_position_beyond_64_bits_is_a_fault() {
        let _position = Position(u64::MAX) + 1;
    }
}
