//! The secrets of one direction, and the keys that follow from them.
//!
//! Each generation has a secret, from which its key and the next secret are derived by HKDF-Expand of RFC 5869, as RFC
//! 8446, section 7.2, does for the update of a traffic key. The sender chooses when to go on to the next generation,
//! and each message names its generation. From a key that an observer knows it can compute neither the secret nor
//! another key; from a secret it cannot compute the previous ones.

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};
use zeroize::Zeroizing;

use crate::aead::{AeadKey, Cipher, Forged, KEY_BYTES, Key, Kind};
use crate::wire::TAG_BYTES;

/// The labels of what is derived (docs/PROTOCOL.md, "Keys of records").
const RECORDS: &[u8] = b"inet_rdma records";
const CONTROLS: &[u8] = b"inet_rdma controls";
const KEY: &[u8] = b"inet_rdma key";
const NEXT: &[u8] = b"inet_rdma next";

/// Number of bytes that are derived.
struct Bytes;

impl KeyType for Bytes {
    fn len(&self) -> usize {
        KEY_BYTES
    }
}

impl Key {
    /// The secret of the records of a stream that has this key.
    pub fn of_records(&self) -> Key {
        self.derive(RECORDS)
    }

    /// The secret of the control messages of a stream that has this key.
    pub fn of_controls(&self) -> Key {
        self.derive(CONTROLS)
    }

    fn derive(&self, label: &[u8]) -> Key {
        let mut derived = Zeroizing::new([0; KEY_BYTES]);
        Prk::new_less_safe(HKDF_SHA256, &*self.0)
            .expand(&[label], Bytes)
            .and_then(|derivation| derivation.fill(&mut *derived))
            .expect("32 bytes, less than HKDF gives");
        Key(derived)
    }
}

/// The secret of one generation, and its key.
#[derive(Debug)]
pub(crate) struct Generation {
    cipher: Cipher,
    secret: Key,
    pub key: AeadKey,
    pub number: u32,
}

impl Generation {
    /// Generation 0 has this secret.
    pub fn first(cipher: Cipher, secret: &Key) -> Generation {
        Generation::of(cipher, Key(secret.0.clone()), 0)
    }

    pub fn next(&self) -> Generation {
        let secret = self.secret.derive(NEXT);
        Generation::of(self.cipher, secret, self.number.wrapping_add(1))
    }

    fn of(cipher: Cipher, secret: Key, number: u32) -> Generation {
        let key = AeadKey::new(cipher, &secret.derive(KEY));
        Generation {
            cipher,
            secret,
            key,
            number,
        }
    }

    pub fn cipher(&self) -> Cipher {
        self.cipher
    }
}

/// Why a message is not the peer's.
#[derive(Debug)]
pub(crate) enum NotOpened {
    /// Its generation is neither the present one nor the next.
    Generation,
    /// Its tag does not fit.
    Forged,
}

impl From<Forged> for NotOpened {
    fn from(_: Forged) -> NotOpened {
        NotOpened::Forged
    }
}

/// The receiving side of a direction.
#[derive(Debug)]
pub(crate) struct Received(Generation);

impl Received {
    pub fn new(cipher: Cipher, secret: &Key) -> Received {
        Received(Generation::first(cipher, secret))
    }

    /// Number of the generation of the last message.
    pub fn generation(&self) -> u32 {
        self.0.number
    }

    /// Opens a message that the peer has sealed under this generation's key. The first one of the next generation
    /// ends the present one.
    #[inline]
    pub fn open(
        &mut self,
        generation: u32,
        nonce: (Kind, u64),
        aad: &[u8],
        tag: &[u8; TAG_BYTES],
        in_out: &mut [u8],
    ) -> Result<(), NotOpened> {
        let (kind, number) = nonce;
        match generation.wrapping_sub(self.0.number) {
            0 => self.0.key.open(kind, number, aad, tag, in_out)?,
            1 => {
                // A forged message must not take this side to another key.
                let next = self.0.next();
                next.key.open(kind, number, aad, tag, in_out)?;
                self.0 = next;
            }
            _ => return Err(NotOpened::Generation),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of records and of control messages are nonces, so a key serves one direction, kind and generation.
    #[test]
    fn no_two_secrets_or_keys_of_a_queue_pair_are_equal() {
        let mut all = std::collections::HashSet::new();
        let mut expected = 0;
        for byte in [1, 2] {
            let key = Key::new(&[byte; KEY_BYTES]).expect("32 bytes");
            all.insert(*key.0);
            expected += 1;
            for secret in [key.of_records(), key.of_controls()] {
                let mut generation = Generation::first(Cipher::Aes256Gcm, &secret);
                for number in 0..100 {
                    assert_eq!(generation.number, number);
                    all.insert(*generation.secret.0);
                    all.insert(*generation.secret.derive(KEY).0);
                    expected += 2;
                    generation = generation.next();
                }
            }
        }
        assert_eq!(all.len(), expected);
    }
}
