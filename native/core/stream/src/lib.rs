//! The dynamic direct/indirect byte-stream protocol of inet_rdma as a pure state machine.
//!
//! It has no I/O, clock, threads or memory of its own: a [`Stream`] counts bytes, slots and phases and tells its caller
//! what to do; the caller moves the bytes. `handle_*` takes arrived messages, `poll_*` gives messages to send.
//!
//! docs/PROTOCOL.md has the messages and the rules.
//!
//! # What holds
//!
//! `tests/explore.rs` checks these promises over every interleaving of small worlds. *Credits*, *phase*, *mark*: see
//! docs/PROTOCOL.md.
//!
//! * The receive queue never runs dry: credits of A, messages under way to B, slots owed by B and credits under way to
//!   A add up to B's slots.
//! * Credits never deadlock, and credit messages do not follow each other for ever: `credit.rs` has the proofs.
//! * A side can always tell that it closes: one credit is reserved for *finish*.
//! * The ring never overflows: the sender counts the bytes that it has written and that were acknowledged; no byte is
//!   acknowledged before it is copied out.
//! * An acknowledgement comes when it is needed: a sender waits only at a full ring, and an acknowledgement is due once
//!   half of the ring is read.
//! * A direct transfer never overtakes ring bytes: a direct phase begins with an empty ring, and indirect bytes end it
//!   on arrival.
//! * An advertisement is used only at its true byte. The receiver enters a direct phase P with an empty ring, so the
//!   first advertisement A1 of P names the byte after all arrived bytes. If bytes were under way, the sender is past
//!   that byte and finds A1 stale. Later advertisements of P rest on the same wrong count, and one may by chance name
//!   the sender's byte; therefore the whole phase ends with A1 (the *jump*). If A1 was used, the sender is in phase P
//!   and uses the other advertisements in the order in which the receiver fills them. Without the jump the checker
//!   finds a wrong byte: two bytes are sent indirectly, one after the other; the first is copied out; two buffers are
//!   advertised, for bytes 1 and 2; the sender, at byte 2, uses the second advertisement.
//! * No advertisement is wasted when nothing is under way: the receiver's count of the next byte is exact then.
//! * After a mark no earlier advertisement is used: when it sends the mark the sender knows all advertisements, as
//!   control messages keep their order, and enters a later phase than theirs. The receiver's next advertisement has a
//!   later phase, too.
//! * A byte is read from the ring into which it was written: transfers and marks share one order.
//! * The peer does not write into a withdrawn buffer: indirect bytes that arrive in phase P were sent after the last
//!   use of an advertisement of P.
//! * The sender holds at most the advertisements that it announced: it has dropped those of older phases when the first
//!   of a new phase arrives.
//! * A sender that awaits an advertisement gets an answer. If the sender used up a buffer, that transfer makes the
//!   answer due. If an advertisement came late, the indirect bytes that made it stale make the answer due, and the
//!   answer follows that advertisement.
//! * Progress: if bytes wait, the peer reads and nothing is under way, then the sender has a usable advertisement or
//!   room in the ring, and enough credits. In mode `direct_only` the peer reads when it posts receives.
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
mod transfer;
mod violation;
mod wire;

pub use counters::Counters;
pub use limits::{Limits, LimitsError, Mode};
pub use receive::{Arrival, Receive, ReceiveId};
pub use ring::RingSpan;
pub use seq::{Phase, Seq};
pub use stream::{ControlEvent, Stream};
pub use transfer::{Offer, Transfer};
pub use violation::Violation;
pub use wire::{
    Advert, CONTROL_BYTES, Control, ControlBody, HELLO_BYTES, Hello, NewRing, Notice, PROTOCOL_VERSION, RemoteAddress,
    TRANSFER_BYTES_MAX, WireError,
};

#[cfg(test)]
mod tests;
