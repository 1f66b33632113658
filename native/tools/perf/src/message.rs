//! The content of messages, by which the receiver checks their number and order.

use inet_rdma_assembly::{LandingBuffer, Received};

use crate::buffer::Recycled;
use crate::failure::Failure;

const WORD: usize = 8;

/// Bytes of a message that are copied out at a time to be looked at.
const WINDOW: usize = 4096;

/// As [`WINDOW`], for messages of at most this size: to clear a large window would take longer than to check them.
const SMALL_WINDOW: usize = 64;

/// The pattern of a message: a word with its number at every `stride` bytes and at its end. A message that is shorter
/// than a word has the low bytes of the number.
#[derive(Debug, Clone, Copy)]
pub struct Pattern {
    /// Bytes from one word to the next.
    pub stride: usize,
    /// True: only the first and the last word are written for each message; those between keep the number 0, which must
    /// be the first message in that memory.
    pub still: bool,
}

impl Pattern {
    /// Offset and length of each word of a message of `size` bytes.
    fn words(self, size: usize) -> impl Iterator<Item = (usize, usize)> {
        let last = size.saturating_sub(WORD);
        // Leave out words that would overlap with the last one.
        (0..last.saturating_sub(WORD - 1))
            .step_by(self.stride)
            .chain([last])
            .map(move |at| (at, WORD.min(size)))
    }

    /// The word of a message at `at`. Two numbers never have equal words at the same place.
    fn word(number: u64, at: usize) -> [u8; WORD] {
        number.wrapping_add(at as u64).to_le_bytes()
    }

    /// Writes number `number` into a message.
    pub fn stamp(self, message: &mut [u8], number: u64) {
        let stepped = if self.still && number > 0 {
            usize::MAX
        } else {
            self.stride
        };
        let words = Self {
            stride: stepped,
            ..self
        };
        for (at, bytes) in words.words(message.len()) {
            message[at..at + bytes].copy_from_slice(&Self::word(number, at)[..bytes]);
        }
    }

    /// Fails unless this is message `number` with `size` bytes. Checks all words.
    pub fn check(self, message: &Message<'_>, number: u64, size: usize) -> Result<(), Failure> {
        if message.len() != size {
            let found = message.len();
            return Err(Failure::Differs(format!(
                "message {number} has {found} bytes and not {size}"
            )));
        }
        if self.stride >= WINDOW {
            self.check_words::<WORD>(message, number, size)
        } else if size <= SMALL_WINDOW {
            self.check_words::<SMALL_WINDOW>(message, number, size)
        } else {
            self.check_words::<WINDOW>(message, number, size)
        }
    }

    fn check_words<const BYTES: usize>(self, message: &Message<'_>, number: u64, size: usize) -> Result<(), Failure> {
        // Copy a window at a time: words that lie close together cost one copy.
        let (mut window, mut filled) = ([0; BYTES], 0..0);
        for (at, bytes) in self.words(size) {
            if at + bytes > filled.end {
                filled = at..size.min(at + BYTES);
                message.copy_out(at, &mut window[..filled.len()]);
            }
            let found = &window[at - filled.start..][..bytes];
            let is_end = at == 0 || at + bytes == size;
            let number = if self.still && !is_end { 0 } else { number };
            if found != &Self::word(number, at)[..bytes] {
                return Err(Failure::Differs(format!("message {number} has {found:x?} at {at}")));
            }
        }
        Ok(())
    }
}

pub enum Message<'a> {
    /// Copied out of the ring.
    Copied(&'a [u8]),
    /// In the landing buffer into which the peer wrote it: buffer, start and length.
    Landed(&'a LandingBuffer, usize, usize),
}

impl Message<'_> {
    pub fn len(&self) -> usize {
        match self {
            Message::Copied(bytes) => bytes.len(),
            Message::Landed(_, _, bytes) => *bytes,
        }
    }

    fn copy_out(&self, at: usize, to: &mut [u8]) {
        match self {
            Message::Copied(bytes) => to.copy_from_slice(&bytes[at..at + to.len()]),
            Message::Landed(buffer, start, _) => buffer.copy_out(start + at, to),
        }
    }

    /// Calls `take` with each message of one read.
    pub fn each(
        received: &Received<Recycled>,
        mut take: impl FnMut(&Message<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        match received {
            Received::Whole(bytes) => take(&Message::Copied(bytes.as_slice())),
            Received::Landed(buffer, range) => take(&Message::Landed(buffer, range.start, range.len())),
            Received::Batch { bytes, packets } => packets
                .iter()
                .try_for_each(|range| take(&Message::Copied(&bytes.as_slice()[range.clone()]))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Message, Pattern};

    #[test]
    fn another_number_a_torn_message_and_another_length_are_found() {
        for (size, stride) in [(1, 8), (7, 8), (8, 8), (9, 8), (100, 64), (10_000, 4096)] {
            let pattern = Pattern {
                stride,
                still: size % 2 == 0,
            };
            let mut message = vec![0; size];
            pattern.stamp(&mut message, 0);
            pattern.stamp(&mut message, 7);
            assert!(pattern.check(&Message::Copied(&message), 7, size).is_ok(), "{size}");
            assert!(pattern.check(&Message::Copied(&message), 8, size).is_err(), "{size}");
            assert!(
                pattern.check(&Message::Copied(&message[1..]), 7, size).is_err(),
                "{size}"
            );
            message[size - 1] ^= 1;
            assert!(pattern.check(&Message::Copied(&message), 7, size).is_err(), "{size}");
        }
    }
}
