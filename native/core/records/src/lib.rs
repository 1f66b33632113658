//! Records: what a sealed stream carries through the ring, and the authentication of control messages.
//!
//! A [`Sealer`] makes a record of a run of user bytes; the peer's [`Opener`] checks and decrypts it. Over a queue pair
//! a record is one transfer into the ring; over TCP records follow each other. A [`ControlSealer`] and a
//! [`ControlOpener`] do the same for the control messages of a queue pair, which stay readable.
//!
//! Records and control messages of each direction have keys of their own. Each key follows from the previous secret,
//! so that a new key needs no message.
//!
//! The crate moves no bytes, has no clock, and knows no memory that a peer can write: its caller copies a record into
//! private memory first.
//!
//! # Layout
//!
//! Numbers are little-endian.
//!
//! | bytes | field | values |
//! |---|---|---|
//! | 0..4 | n, user bytes in the record | 1 to 69,632 (68 KiB) |
//! | 4..8 | generation of the key | 0 for the first key, then the next number for each |
//! | 8..8+n | the user bytes, encrypted | |
//! | 8+n..24+n | tag | |
//!
//! In a ring a record lies in one run. Where the ring has fewer than 25 bytes before its end the sender fills them with
//! a transfer of zeros, and the receiver passes over them; both know this from the stream's position. So a record is in
//! the ring as a whole once its notice has come. A record needs a ring of 64 bytes or more.
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
//! Numbers begin with 0 in each direction and are not sent; they count on under a new key. A record that is left out,
//! repeated or moved meets another number, and its tag is wrong. A number is never used twice under a key, as it only
//! grows and each key is for the records, or the control messages, of one direction of one stream; a side refuses two
//! equal keys. A record is made in private
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
//! The key that the sides of a stream have told each other gives two secrets, by HKDF-Expand (RFC 5869, SHA-256) with
//! "inet_rdma records" and "inet_rdma controls"; over TCP the caller gives the secret of the records. A generation's
//! key is HKDF-Expand of its secret with "inet_rdma key", the next generation's secret the same with "inet_rdma next".
//!
//! The sender goes on to the next generation by itself. The receiver takes a message of the present generation or of
//! the next, and drops the present key and secret with the first message of the next that its key opens. Each
//! generation has a message at least, so the receiver follows. Records and control messages count their generations
//! separately, as they overtake each other.
//!
//! | a key is replaced after | at most | source |
//! |---|---|---|
//! | records, or control messages | 2^30 | a quarter of the 2^32 of NIST SP 800-38D, section 8.3 |
//! | bytes of records | 2^37 | RFC 8446, section 5.5: 2^24.5 records of 2^14 bytes, an advantage below 2^-57 |
//! | the time and the bytes that the caller has chosen ([`Renewal`]) | | |

#![forbid(unsafe_code)]

mod aead;
mod control;
mod limits;
mod open;
mod seal;
mod secret;
mod violation;
mod wire;

pub use aead::{Cipher, KEY_BYTES, Key};
pub use control::{CONTROL_BYTES, ControlOpener, ControlSealer};
pub use limits::{BYTES_MAX, MESSAGES_MAX, Renewal};
pub use open::Opener;
pub use seal::{Sealer, Usage};
pub use violation::Violation;
pub use wire::{
    HEADER_BYTES, Header, OVERHEAD_BYTES, PLAIN_BYTES_MAX, RECORD_BYTES_MAX, RECORD_BYTES_MIN, RING_BYTES_MIN,
    TAG_BYTES, filling,
};

/// How the two directions of a stream or of a TCP connection are sealed.
#[derive(Debug)]
pub struct Protection {
    /// The same on both sides.
    pub cipher: Cipher,
    /// The peer's `receive_key`; never used for anything else.
    pub send_key: Key,
    /// The peer's `send_key`.
    pub receive_key: Key,
    /// When this side goes on to the next key.
    pub renewal: Renewal,
}
