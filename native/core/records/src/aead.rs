//! The ciphers, their keys and nonces.

use aws_lc_rs::aead::{AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use zeroize::Zeroizing;

use crate::wire::TAG_BYTES;

/// Size of a key.
pub const KEY_BYTES: usize = 32;

/// The cipher of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cipher {
    /// AES with keys of 256 bits in Galois/Counter Mode (NIST SP 800-38D).
    Aes256Gcm,
    /// RFC 8439.
    ChaCha20Poly1305,
}

impl Cipher {
    /// All of them.
    pub const ALL: [Cipher; 2] = [Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305];

    /// The cipher that this processor computes faster: AES where it has instructions for it and for GCM's
    /// multiplication. Without these AES is slower, and not safe from an observer of its timing.
    pub fn of_this_processor() -> Cipher {
        #[cfg(target_arch = "x86_64")]
        let has_aes = std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq");
        #[cfg(target_arch = "aarch64")]
        let has_aes =
            std::arch::is_aarch64_feature_detected!("aes") && std::arch::is_aarch64_feature_detected!("pmull");
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let has_aes = false;
        if has_aes {
            Cipher::Aes256Gcm
        } else {
            Cipher::ChaCha20Poly1305
        }
    }

    /// Whether the library encrypts from one place into another as fast as in place. ChaCha20-Poly1305 of aws-lc 0.47
    /// takes three times as long that way.
    pub(crate) fn seals_out_of_place(self) -> bool {
        self == Cipher::Aes256Gcm
    }

    fn algorithm(self) -> &'static Algorithm {
        match self {
            Cipher::Aes256Gcm => &AES_256_GCM,
            Cipher::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        }
    }
}

/// A key of the user's. Its memory is cleared when it is dropped.
pub struct Key(pub(crate) Zeroizing<[u8; KEY_BYTES]>);

impl Key {
    /// A key of these bytes; None: they have another size.
    pub fn new(bytes: &[u8]) -> Option<Key> {
        bytes.try_into().ok().map(|bytes| Key(Zeroizing::new(bytes)))
    }

    /// Whether the two are equal. Not in constant time: it compares keys of one user.
    pub fn is_same(&self, other: &Key) -> bool {
        self.0 == other.0
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Key")
    }
}

/// The tag does not fit the bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Forged;

/// The use of a nonce. The two uses are counted separately.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Record = 0,
    Control = 1,
}

/// A key, expanded. The library clears its memory when it is dropped.
#[derive(Debug)]
pub(crate) struct AeadKey(LessSafeKey);

impl AeadKey {
    pub fn new(cipher: Cipher, key: &Key) -> AeadKey {
        let unbound = UnboundKey::new(cipher.algorithm(), &key.0[..]);
        AeadKey(LessSafeKey::new(unbound.expect("a key of 32 bytes")))
    }

    /// 32 bits of the kind, 64 of the number, big-endian: unique for a key, as each kind's numbers are.
    fn nonce(kind: Kind, number: u64) -> Nonce {
        let mut nonce = [0; NONCE_LEN];
        nonce[..4].copy_from_slice(&(kind as u32).to_be_bytes());
        nonce[4..].copy_from_slice(&number.to_be_bytes());
        Nonce::assume_unique_for_key(nonce)
    }

    /// Encrypts the first `head` bytes of `record` where they are, and `tail` after them; the tag follows. So `record`
    /// has `head` bytes, as many as `tail`, and [`TAG_BYTES`].
    #[inline]
    pub fn seal(&self, kind: Kind, number: u64, aad: &[u8], (record, head): (&mut [u8], usize), tail: &[u8]) {
        let (head, behind) = record.split_at_mut(head);
        let sealed = self
            .0
            .seal_in_place_scatter(Self::nonce(kind, number), Aad::from(aad), head, tail, behind);
        sealed.expect("room for the tail and the tag, and less than 2^36 bytes");
    }

    /// Checks `in_out` against the tag and decrypts it. After a failure its content has no meaning.
    #[inline]
    pub fn open(
        &self,
        kind: Kind,
        number: u64,
        aad: &[u8],
        tag: &[u8; TAG_BYTES],
        in_out: &mut [u8],
    ) -> Result<(), Forged> {
        let opened = self
            .0
            .open_in_place_separate_tag(Self::nonce(kind, number), Aad::from(aad), tag, in_out);
        opened.map(drop).map_err(|_| Forged)
    }
}
