//! The dynamic direct/indirect byte-stream protocol of inet_rdma as a pure state machine.
//!
//! No I/O, no clock, no threads, no memory of its own: a [`Stream`] counts bytes, slots and phases and says what must be
//! done; the caller moves the bytes. `handle_*` takes what came in, `poll_*` gives what must go out.
//!
//! docs/PROTOCOL.md has the messages, the rules and the proofs in words.
#![forbid(unsafe_code)]

mod counters;
mod credit;
mod limits;
mod receive;
mod receiver;
mod ring;
mod sender;
mod seq;
mod stream;
mod violation;
mod wire;

pub use counters::Counters;
pub use limits::{Limits, LimitsError, Mode};
pub use receive::{Arrival, Completed, Receive, ReceiveId};
pub use ring::RingSpan;
pub use sender::{Offer, Transfer};
pub use seq::{Phase, Seq};
pub use stream::{ControlEvent, Stream};
pub use violation::Violation;
pub use wire::{
    Advert, CONTROL_BYTES, Control, ControlBody, HELLO_BYTES, Hello, NewRing, Notice, PROTOCOL_VERSION, RemoteAddress,
    TRANSFER_BYTES_MAX, WireError,
};

#[cfg(test)]
mod tests;
