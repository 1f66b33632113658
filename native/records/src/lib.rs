//! Records: what a sealed stream carries through the ring, and the authentication of control messages.
//!
//! A [`Sealer`] makes a record of a run of user bytes, one for each transfer; the peer's [`Opener`] checks and decrypts
//! it. A [`ControlSealer`] and a [`ControlOpener`] do the same for control messages, which stay readable. Each direction has a
//! key of its own. New keys come by generation ([`Sealer::renew`], [`Opener::install`]).
//!
//! A [`PathSealer`] and a [`PathOpener`] do so for bytes that come in order, as over TCP. Both derive each key from the one
//! before it, so that a new key needs no message.
//!
//! The crate moves no bytes and knows no memory that a peer can write: its caller copies a record into private memory
//! first. docs/PROTOCOL.md has the layout, the nonces and the limits with their sources.

#![forbid(unsafe_code)]

mod aead;
mod control;
mod keyring;
mod open;
mod path;
mod seal;
mod violation;
mod wire;

pub use aead::{Cipher, KEY_BYTES, Key};
pub use control::{CONTROL_BYTES, ControlOpener, ControlSealer};
pub use keyring::KEYS_MAX;
pub use open::Opener;
pub use path::{PathOpener, PathSealer};
pub use seal::{BYTES_MAX, MESSAGES_MAX, RENEW_MESSAGES, Sealer, Usage, UsedUp};
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
    /// From this many bytes sealed under one key on the user is asked for the next one.
    pub renew_bytes: u64,
}
