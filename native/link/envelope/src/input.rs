//! The bytes of a packet, which may lie in several pieces.

use crate::off::Off;

/// Reads a packet from its start.
pub struct Input<'a, I> {
    /// The rest of the present piece.
    piece: &'a [u8],
    pieces: I,
}

impl<'a, I: Iterator<Item = &'a [u8]>> Input<'a, I> {
    pub fn new(pieces: I) -> Self {
        Input { piece: &[], pieces }
    }

    #[inline(always)]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Off> {
        match self.piece.split_first_chunk() {
            Some((head, tail)) => {
                self.piece = tail;
                Ok(*head)
            }
            None => self.split_array(),
        }
    }

    /// The bytes lie in several pieces, or there are too few.
    fn split_array<const N: usize>(&mut self) -> Result<[u8; N], Off> {
        let mut array = [0; N];
        self.fill(&mut array)?;
        Ok(array)
    }

    #[inline(always)]
    pub fn byte(&mut self) -> Result<u8, Off> {
        self.array().map(|[byte]| byte)
    }

    pub fn u16(&mut self) -> Result<u16, Off> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, Off> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, Off> {
        self.array().map(u64::from_be_bytes)
    }

    /// Copies the next bytes.
    pub fn fill(&mut self, mut room: &mut [u8]) -> Result<(), Off> {
        loop {
            let bytes = room.len().min(self.piece.len());
            let (now, later) = room.split_at_mut(bytes);
            let (head, tail) = self.piece.split_at(bytes);
            now.copy_from_slice(head);
            (room, self.piece) = (later, tail);
            if room.is_empty() {
                return Ok(());
            }
            self.piece = self.pieces.next().ok_or(Off::Truncated)?;
        }
    }

    pub fn skip(&mut self, bytes: usize) -> Result<(), Off> {
        let mut left = bytes;
        loop {
            let now = left.min(self.piece.len());
            self.piece = &self.piece[now..];
            left -= now;
            if left == 0 {
                return Ok(());
            }
            self.piece = self.pieces.next().ok_or(Off::Truncated)?;
        }
    }

    /// The next bytes as one slice: as they lie, or copied into `room`. None: `room` is too small for them. They are
    /// skipped then.
    pub fn text<'r>(&mut self, bytes: usize, room: &'r mut [u8]) -> Result<Option<&'r [u8]>, Off>
    where
        'a: 'r,
    {
        if let Some((text, rest)) = self.piece.split_at_checked(bytes) {
            self.piece = rest;
            return Ok(Some(text));
        }
        match room.get_mut(..bytes) {
            Some(room) => {
                self.fill(room)?;
                Ok(Some(room))
            }
            None => {
                self.skip(bytes)?;
                Ok(None)
            }
        }
    }
}
