//! Records of bytes that arrive in order: a TCP connection that carries a session.
//!
//! Each generation has a secret, from which its key and the next secret are derived by HKDF-Expand of RFC 5869, as RFC
//! 8446, section 7.2, does for the update of a traffic key. The sender chooses when to go on to the next generation;
//! the record's header names it. From a key that an observer knows it cannot compute the previous keys.

use std::sync::Arc;

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};
use zeroize::Zeroizing;

use crate::aead::{AeadKey, Cipher, KEY_BYTES, Key, Kind};
use crate::seal::{Sealing, Usage};
use crate::violation::Violation;
use crate::wire::{self, Header, Place, TAG_BYTES};

/// Number of bytes that are derived.
struct Bytes;

impl KeyType for Bytes {
    fn len(&self) -> usize {
        KEY_BYTES
    }
}

/// The secret of one generation of one direction.
#[derive(Debug)]
struct Secret(Key);

impl Secret {
    fn of(key: &Key) -> Secret {
        Secret(Key(key.0.clone()))
    }

    fn derive(&self, label: &[u8]) -> Key {
        let mut derived = Zeroizing::new([0; KEY_BYTES]);
        Prk::new_less_safe(HKDF_SHA256, &*self.0.0)
            .expand(&[label], Bytes)
            .and_then(|derivation| derivation.fill(&mut *derived))
            .expect("32 bytes, less than HKDF gives");
        Key(derived)
    }

    fn key(&self, cipher: Cipher) -> AeadKey {
        AeadKey::new(cipher, &self.derive(b"inet_rdma key"))
    }

    fn next(&self) -> Secret {
        Secret(self.derive(b"inet_rdma next"))
    }
}

/// Makes the records of one direction.
#[derive(Debug)]
pub struct PathSealer {
    secret: Secret,
    sealing: Sealing,
}

impl PathSealer {
    /// Generation 0 has this secret. After `rekey_bytes` bytes under one key the next record has the next key.
    pub fn new(cipher: Cipher, secret: &Key, rekey_bytes: u64) -> PathSealer {
        let secret = Secret::of(secret);
        PathSealer {
            sealing: Sealing::new(cipher, Arc::new(secret.key(cipher)), rekey_bytes),
            secret,
        }
    }

    /// Makes a record of `plain` in `record`: the bytes of `plain`, 1 to [`crate::PLAIN_BYTES_MAX`], and
    /// [`crate::OVERHEAD_BYTES`] more. AES reads the last slice where it is; all others are copied before the cipher.
    pub fn seal(&mut self, plain: &[&[u8]], record: &mut [u8]) {
        if self.sealing.is_due() {
            self.rekey();
        }
        self.sealing.seal(plain, record);
    }

    /// The next record has the next key.
    pub fn rekey(&mut self) {
        self.secret = self.secret.next();
        let key = self.secret.key(self.sealing.cipher);
        self.sealing.rekey(Arc::new(key));
    }

    /// The use of the present key.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.sealing.usage
    }

    /// The cipher of the records.
    #[must_use]
    pub fn cipher(&self) -> Cipher {
        self.sealing.cipher
    }
}

/// Checks and decrypts the records of one direction. A violation is final: close the connection.
#[derive(Debug)]
pub struct PathOpener {
    cipher: Cipher,
    secret: Secret,
    key: AeadKey,
    place: Place,
    generation: u32,
}

impl PathOpener {
    /// The peer's [`PathSealer`] has the same secret.
    pub fn new(cipher: Cipher, secret: &Key) -> PathOpener {
        let secret = Secret::of(secret);
        PathOpener {
            cipher,
            key: secret.key(cipher),
            secret,
            place: Place::default(),
            generation: 0,
        }
    }

    /// Checks and decrypts the next record: `in_out` has its encrypted bytes, as many as `header` says. After a
    /// violation its content has no meaning.
    pub fn open(&mut self, header: Header, tag: &[u8; TAG_BYTES], in_out: &mut [u8]) -> Result<(), Violation> {
        let Place { sequence, position } = self.place;
        let aad = wire::aad(header.emit(), position);
        let forged = |_| Violation::RecordForged { sequence };
        match header.generation.wrapping_sub(self.generation) {
            0 => self
                .key
                .open(Kind::Record, sequence, &aad, tag, in_out)
                .map_err(forged)?,
            1 => {
                // A forged header must not take this side to another key.
                let secret = self.secret.next();
                let key = secret.key(self.cipher);
                key.open(Kind::Record, sequence, &aad, tag, in_out).map_err(forged)?;
                (self.secret, self.key, self.generation) = (secret, key, header.generation);
            }
            _ => {
                return Err(Violation::KeyGeneration {
                    said: header.generation,
                    present: self.generation,
                });
            }
        }
        self.place.pass_record(header.record_bytes());
        Ok(())
    }

    /// Generation of the key of the last record.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.generation
    }
}
