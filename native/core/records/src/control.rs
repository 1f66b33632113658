//! Control messages: their content stays readable, and a tag stands in bytes that their kinds leave unused.
//!
//! A sealed stream has no advertisements, the only kind that uses all bytes.

use std::ops::Range;
use std::time::Instant;

use crate::aead::{Cipher, Key, Kind};
use crate::limits::{Age, MESSAGES_MAX, Renewal};
use crate::secret::{Generation, NotOpened, Received};
use crate::violation::Violation;
use crate::wire::TAG_BYTES;

/// Size of a control message.
pub const CONTROL_BYTES: usize = 40;

/// Names the key by the low 8 bits of its generation: the receiver takes the present one and the next.
const GENERATION: usize = 1;
/// The tag, which covers the bytes before it.
const TAG: Range<usize> = 24..40;
const _: () = assert!(TAG.end - TAG.start == TAG_BYTES && TAG.end == CONTROL_BYTES);

/// Seals the control messages of one direction.
#[derive(Debug)]
pub struct ControlSealer {
    generation: Generation,
    sequence: u64,
    /// Messages under the present key.
    messages: u64,
    age: Age,
}

impl ControlSealer {
    /// Generation 0 has this secret. The limit of bytes is that of records.
    pub fn new(cipher: Cipher, secret: &Key, renewal: Renewal, now: Instant) -> ControlSealer {
        ControlSealer {
            generation: Generation::first(cipher, secret),
            sequence: 0,
            messages: 0,
            age: Age::new(renewal.age, now),
        }
    }

    /// Adds generation and tag. `now` is called only if it must be known.
    pub fn seal(&mut self, message: &mut [u8; CONTROL_BYTES], now: impl FnOnce() -> Instant) {
        if self.messages >= MESSAGES_MAX || self.age.is_over(self.messages > 0, now) {
            self.generation = self.generation.next();
            self.messages = 0;
        }
        message[GENERATION] = self.generation.number as u8;
        let (covered, tag) = message.split_at_mut(TAG.start);
        self.generation
            .key
            .seal(Kind::Control, self.sequence, covered, (tag, 0), &[]);
        self.sequence += 1;
        self.messages += 1;
    }
}

/// Checks the control messages of one direction. A violation is final: close the connection.
#[derive(Debug)]
pub struct ControlOpener {
    received: Received,
    sequence: u64,
}

impl ControlOpener {
    /// The peer's [`ControlSealer`] has the same secret.
    pub fn new(cipher: Cipher, secret: &Key) -> ControlOpener {
        ControlOpener {
            received: Received::new(cipher, secret),
            sequence: 0,
        }
    }

    /// Checks a message, and clears the fields of generation and tag, which are not part of its kind's layout.
    pub fn open(&mut self, message: &mut [u8; CONTROL_BYTES]) -> Result<(), Violation> {
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&message[TAG]);
        let (sequence, present) = (self.sequence, self.received.generation());
        let ahead = message[GENERATION].wrapping_sub(present as u8);
        let said = present.wrapping_add(ahead.into());
        self.received
            .open(said, (Kind::Control, sequence), &message[..TAG.start], &tag, &mut [])
            .map_err(|fault| match fault {
                NotOpened::Generation => Violation::KeyGeneration { said, present },
                NotOpened::Forged => Violation::ControlForged { sequence },
            })?;
        self.sequence += 1;
        message[GENERATION] = 0;
        message[TAG].fill(0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_replaced_after_its_messages() {
        let secret = Key::new(&[1; 32]).expect("32 bytes");
        let mut sealer = ControlSealer::new(Cipher::Aes256Gcm, &secret, Renewal::RAREST, Instant::now());
        let mut opener = ControlOpener::new(Cipher::Aes256Gcm, &secret);
        // More than 8 bits tell apart.
        for generation in 0..600 {
            sealer.messages = MESSAGES_MAX - 1;
            for generation in [generation, generation + 1] {
                let mut message = [0; CONTROL_BYTES];
                sealer.seal(&mut message, Instant::now);
                assert_eq!(sealer.generation.number, generation);
                opener.open(&mut message).expect("the peer's");
                assert_eq!(opener.received.generation(), generation);
            }
        }
    }
}
