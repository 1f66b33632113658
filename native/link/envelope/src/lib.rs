//! Reads the envelopes of a distribution link's packets: operation, sender, target, bytes. No I/O, no clock, no thread,
//! no memory after the creation.
//!
//! A [`Direction`] takes each packet of one direction of a link, in order, from nodeup on: the bytes after the length.
//! It counts messages and bytes by [`Operation`], exactly, and keeps two [`Sketch`]es of the heaviest [`Key`]s
//! (operation, sender, target): of the last [`RECENT`] and since nodeup. The sketches take a sample of the packets, of
//! which there are [`SAMPLES`] a second at most, each with the bytes for which it stands ([`Sample`]); of the others
//! only the first bytes are read, for the operation. A [`Reader`] alone gives the [`Envelope`] of each packet. Nothing
//! here changes, delays or refuses a byte.
//!
//! Source of the formats: the guides "Distribution Protocol" and "External Term Format" of ERTS, OTP 25 to 29. A packet
//! begins with a distribution header, which brings the atoms that the sender has put into its cache (the reader keeps a
//! copy), or passes without one. A control message follows, a tuple that begins with the operation's
//! number; then the payload, which is never read.
//!
//! | what the reader meets | it does |
//! |---|---|
//! | an operation that it does not know | counts the packet as [`Operation::Other`] |
//! | a fragment of a message whose first fragment it does not know | the same |
//! | a term that it does not know, in place of a sender or a target or before it | the party is of [`Name::UNKNOWN`] |
//! | a packet that contradicts the formats | switches itself off ([`Off`], returned once); counts all packets from then on as [`Operation::Other`] |
//!
//! | bound | beyond it |
//! |---|---|
//! | [`SEQUENCES`] fragmented messages under way | the fragments of further ones are [`Operation::Other`] |
//! | [`NAMES`] names of [`NAMES_BYTES`] bytes in all, each of [`NAME_BYTES_MAX`] at most | names that no control message has used lately are forgotten: [`Name::UNKNOWN`], until the peer sends the atom again |
//! | [`SKIPPED_TERMS`] terms before the sender and the target | the party is of [`Name::UNKNOWN`] |
#![forbid(unsafe_code)]

mod cache;
mod control;
mod counts;
mod direction;
mod input;
mod key;
mod latin1;
mod names;
mod off;
mod operation;
mod party;
mod reader;
mod sampler;
mod sequences;
mod sketch;
mod term;

pub use counts::{Count, Counts};
pub use direction::{Direction, RECENT};
pub use key::Key;
pub use names::{NAME_BYTES_MAX, NAMES, NAMES_BYTES, Name};
pub use off::Off;
pub use operation::Operation;
pub use party::Party;
pub use reader::{Envelope, Reader};
pub use sampler::{SAMPLES, Sample};
pub use sequences::SEQUENCES;
pub use sketch::{Entry, Sketch};
pub use term::SKIPPED_TERMS;
