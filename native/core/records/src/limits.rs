//! How much one key may seal.

/// Records under one key, at most, and as many control messages: together the 2^32 of NIST SP 800-38D, section 8.3. It
/// asks this of random nonces; counted nonces keep to it, too.
pub const MESSAGES_MAX: u64 = 1 << 31;

/// The user is asked for a new key from this number of messages on.
pub const REKEY_MESSAGES: u64 = MESSAGES_MAX / 2;

/// Bytes of records under one key, at most: RFC 8446, section 5.5, allows AES-GCM 2^24.5 records of 2^14 bytes, that is
/// 2^38.5 bytes, to keep an attacker's advantage below 2^-57.
pub const BYTES_MAX: u64 = 1 << 38;

/// The present key has sealed all that it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the key of generation {generation} has sealed all that it may")]
pub struct UsedUp {
    /// Names the key.
    pub generation: u32,
}
