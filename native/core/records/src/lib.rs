//! Records: what a sealed stream carries through the ring, and the authentication of control messages.
//!
//! A [`Sealer`] makes a record of a run of user bytes, one for each transfer; the peer's [`Opener`] checks and decrypts
//! it. A [`ControlSealer`] and a [`ControlOpener`] do the same for control messages, which stay readable. Each
//! direction has a key of its own. New keys come by generation ([`Sealer::rekey`], [`Opener::install`]).
//!
//! A [`PathSealer`] and a [`PathOpener`] do the same for bytes that arrive in order, as over TCP. Both derive each key
//! from the previous key, so that a new key needs no message.
//!
//! The crate moves no bytes and knows no memory that a peer can write: its caller copies a record into private memory
//! first.
//!
//! # Layout
//!
//! A record is one transfer into the ring, in one run. Numbers are little-endian.
//!
//! | bytes | field | values |
//! |---|---|---|
//! | 0..4 | n, user bytes in the record | 1 to 69,632 (68 KiB) |
//! | 4..8 | generation of the key | 0 for the first key, then the next number for each |
//! | 8..8+n | the user bytes, encrypted | |
//! | 8+n..24+n | tag | |
//!
//! Where the ring has fewer than 25 bytes before its end the sender fills them with a transfer of zeros, and the
//! receiver passes over them; both know this from the stream's position. So a record is in the ring as a whole once its
//! notice has come. A record needs a ring of 64 bytes or more.
//!
//! A control message of a sealed stream is the usual one (docs/PROTOCOL.md) with two more fields: byte 1, the low 8
//! bits of the key's generation; bytes 24..40, the tag.
//!
//! # Cipher and nonce
//!
//! AES-256-GCM (NIST SP 800-38D) or ChaCha20-Poly1305 (RFC 8439): keys of 256 bits, tags of 128.
//!
//! | | record | control message |
//! |---|---|---|
//! | nonce, 96 bits, big-endian | 32 bits of 0, 64 bits: its number | 32 bits of 1, 64 bits: its number |
//! | covered beside the encrypted bytes | header (8 bytes), position in the stream (64 bits) | bytes 0 to 24 |
//!
//! Numbers begin with 0 in each direction and are not sent; a new key does not begin anew. A record that is left out,
//! repeated or moved meets another number, and its tag is wrong. A number is never used twice under a key, as it only
//! grows and each key is for one direction of one stream; a side refuses two equal keys. A record is made in private
//! memory, and copied into private memory before it is checked and decrypted: bytes in shared memory could change
//! between cipher and tag.
//!
//! Ticks and the end of the stream are control messages, so a stranger can neither feign a living peer nor end a stream
//! in order. Notice, hello and fillings have no tag: a forged one makes a record fail or the connection stall. An
//! attacker that can drop packets can do that anyway. The first bad record or message ends the connection
//! ([`Violation`]).
//!
//! # New keys
//!
//! 1. The user gives the new key to the receiving side, which still accepts the present key.
//! 2. The user gives it to the sending side, which seals under it from the next record on, and sends a tick, so that
//!    the receiver sees the change.
//! 3. With the first record under the new key the receiver drops the previous key for records, with the first message
//!    the previous key for messages. If nothing is unread when a further key comes, it drops the keys before the key of
//!    the last message.
//!
//! A receiver keeps up to 8 keys; one more is refused.
//!
//! | limit of a key | at most | source |
//! |---|---|---|
//! | records, and as many control messages | 2^31 | together the 2^32 of NIST SP 800-38D, section 8.3 |
//! | bytes of records | 2^38 | RFC 8446, section 5.5: 2^24.5 records of 2^14 bytes, an advantage below 2^-57 |
//!
//! The user is told when half of the messages are used up, or as many bytes as it has chosen (by default a quarter of
//! the limit). A key at its limit seals no more ([`UsedUp`]).

#![forbid(unsafe_code)]

mod aead;
mod control;
mod keyring;
mod limits;
mod open;
mod path;
mod seal;
mod violation;
mod wire;

pub use aead::{Cipher, KEY_BYTES, Key};
pub use control::{CONTROL_BYTES, ControlOpener, ControlSealer};
pub use keyring::KEYS_MAX;
pub use limits::{BYTES_MAX, MESSAGES_MAX, REKEY_MESSAGES, UsedUp};
pub use open::Opener;
pub use path::{PathOpener, PathSealer};
pub use seal::{Sealer, Usage};
pub use violation::{KeyRefused, Violation};
pub use wire::{
    HEADER_BYTES, Header, OVERHEAD_BYTES, PLAIN_BYTES_MAX, RECORD_BYTES_MAX, RECORD_BYTES_MIN, RING_BYTES_MIN,
    TAG_BYTES, filling,
};

/// How the two directions of a stream are sealed.
#[derive(Debug)]
pub struct Protection {
    /// The same on both sides.
    pub cipher: Cipher,
    /// The peer's `receive_key`; never used for anything else.
    pub send_key: Key,
    /// The peer's `send_key`.
    pub receive_key: Key,
    /// The user is asked for the next key once this many bytes were sealed under one key.
    pub rekey_bytes: u64,
}
