//! Control messages: their content stays readable, and a tag stands in bytes that their kinds leave unused.
//!
//! A sealed stream has no advertisements, the only kind that uses all bytes.

use std::ops::Range;
use std::sync::Arc;

use crate::aead::{AeadKey, Kind};
use crate::keyring::Keyring;
use crate::limits::{MESSAGES_MAX, REKEY_MESSAGES, UsedUp};
use crate::violation::{KeyRefused, Violation};
use crate::wire::TAG_BYTES;

/// Size of a control message.
pub const CONTROL_BYTES: usize = 40;

/// Names the key by the low 8 bits of its generation: more keys than [`crate::KEYS_MAX`] are never kept.
const GENERATION: usize = 1;
/// The tag, which covers the bytes before it.
const TAG: Range<usize> = 24..40;
const _: () = assert!(TAG.end - TAG.start == TAG_BYTES && TAG.end == CONTROL_BYTES);

/// Seals the control messages of one direction.
#[derive(Debug)]
pub struct ControlSealer {
    key: Arc<AeadKey>,
    generation: u32,
    sequence: u64,
    /// Messages under the present key.
    messages: u64,
    /// True if the user was asked for the next key.
    asked: bool,
}

impl ControlSealer {
    pub(crate) fn new(key: Arc<AeadKey>) -> ControlSealer {
        ControlSealer {
            key,
            generation: 0,
            sequence: 0,
            messages: 0,
            asked: false,
        }
    }

    pub(crate) fn rekey(&mut self, generation: u32, key: Arc<AeadKey>) {
        self.key = key;
        self.generation = generation;
        self.messages = 0;
        self.asked = false;
    }

    /// Adds generation and tag. Err: the present key may seal no more.
    pub fn seal(&mut self, message: &mut [u8; CONTROL_BYTES]) -> Result<(), UsedUp> {
        let generation = self.generation;
        if self.messages >= MESSAGES_MAX {
            return Err(UsedUp { generation });
        }
        message[GENERATION] = generation as u8;
        let (covered, tag) = message.split_at_mut(TAG.start);
        self.key.seal(Kind::Control, self.sequence, covered, (tag, 0), &[]);
        self.sequence += 1;
        self.messages += 1;
        Ok(())
    }

    /// As [`crate::Sealer::take_due`].
    #[must_use]
    pub fn take_due(&mut self) -> bool {
        self.messages >= REKEY_MESSAGES && !std::mem::replace(&mut self.asked, true)
    }
}

/// Checks the control messages of one direction. A violation is final: close the connection.
#[derive(Debug)]
pub struct ControlOpener {
    keys: Keyring,
    sequence: u64,
}

impl ControlOpener {
    pub(crate) fn new(key: Arc<AeadKey>) -> ControlOpener {
        ControlOpener {
            keys: Keyring::new(key),
            sequence: 0,
        }
    }

    pub(crate) fn check(&self, generation: u32) -> Result<(), KeyRefused> {
        self.keys.check(generation)
    }

    pub(crate) fn add(&mut self, key: Arc<AeadKey>) {
        self.keys.add(key);
    }

    /// Generation of the key of the last message.
    pub(crate) fn generation(&self) -> u32 {
        self.keys.present()
    }

    /// Checks a message, and clears the fields of generation and tag, which are not part of its kind's layout.
    pub fn open(&mut self, message: &mut [u8; CONTROL_BYTES]) -> Result<(), Violation> {
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&message[TAG]);
        let sequence = self.sequence;
        self.keys
            .key_by_low_bits(message[GENERATION])?
            .open(Kind::Control, sequence, &message[..TAG.start], &tag, &mut [])
            .map_err(|_| Violation::ControlForged { sequence })?;
        self.sequence += 1;
        message[GENERATION] = 0;
        message[TAG].fill(0);
        Ok(())
    }
}
