//! The keys of the receiving side: the present key, and the keys that the peer will use next.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::aead::AeadKey;
use crate::violation::{KeyRefused, Violation};

/// The most keys of one direction that are kept at a time. One is in use; a second one is enough for a user that waits
/// for the peer between two changes. Further ones are kept for records that lie unread in the ring.
pub const KEYS_MAX: usize = 8;
const _: () = assert!(KEYS_MAX <= 256, "8 bits tell them apart");

/// Keys of ascending generations, the present one first.
#[derive(Debug)]
pub(crate) struct Keyring {
    present: u32,
    keys: VecDeque<Arc<AeadKey>>,
}

impl Keyring {
    /// A ring with the first key, of generation 0.
    pub fn new(key: Arc<AeadKey>) -> Keyring {
        Keyring {
            present: 0,
            keys: VecDeque::from([key]),
        }
    }

    /// Generation of the present key.
    pub fn present(&self) -> u32 {
        self.present
    }

    /// Whether a key of this generation may be added.
    pub fn check(&self, generation: u32) -> Result<(), KeyRefused> {
        let next = self.present.wrapping_add(self.keys.len() as u32);
        if generation != next {
            return Err(KeyRefused::Generation { said: generation, next });
        }
        if self.keys.len() >= KEYS_MAX {
            return Err(KeyRefused::TooMany(self.keys.len() - 1));
        }
        Ok(())
    }

    /// Adds the next key. Call [`Self::check`] before.
    pub fn add(&mut self, key: Arc<AeadKey>) {
        self.keys.push_back(key);
    }

    /// As [`Self::key`], by the low 8 bits of the generation.
    pub fn key_by_low_bits(&mut self, low: u8) -> Result<&AeadKey, Violation> {
        let ahead = low.wrapping_sub(self.present as u8);
        self.key(self.present.wrapping_add(ahead.into()))
    }

    /// The key of this generation. Keys of earlier generations are dropped, as the peer never goes back.
    #[inline]
    pub fn key(&mut self, generation: u32) -> Result<&AeadKey, Violation> {
        let ahead = generation.wrapping_sub(self.present) as usize;
        if ahead >= self.keys.len() {
            return Err(Violation::KeyGeneration {
                said: generation,
                present: self.present,
            });
        }
        if ahead > 0 {
            self.keys.drain(..ahead);
            self.present = generation;
        }
        Ok(&self.keys[0])
    }

    /// Drops the keys before this generation, unless they were dropped before.
    pub fn go_on_to(&mut self, generation: u32) {
        let _passed = self.key(generation);
    }
}
