//! The dynamic direct/indirect byte-stream protocol of inet_rdma as a pure state machine.
//!
//! No I/O, no clock, no threads, no memory of its own: a [`Stream`] counts bytes, slots and phases and says what must
//! be done; the caller moves the bytes. `handle_*` takes what came in, `poll_*` gives what must go out.
//!
//! docs/PROTOCOL.md has the messages and the rules.
//!
//! # What holds
//!
//! `tests/explore.rs` checks it over every interleaving of small worlds. *Credits*, *phase*, *mark*: see
//! docs/PROTOCOL.md.
//!
//! * The receive queue never runs dry: credits of A, messages under way to B, slots owed by B and credits under way to
//!   A add up to B's slots.
//! * Credits never deadlock, and are not passed to and fro for ever: `credit.rs` has the proofs.
//! * A side that closes says so: one credit is reserved for *finish*.
//! * The ring never overflows: the sender counts what it wrote and was told to be free; nothing is freed before it is
//!   copied out.
//! * An acknowledgement comes when it is needed: a sender waits only at a full ring, and all of it read is more than
//!   the quarter that is acknowledged.
//! * A direct transfer never overtakes ring bytes: a direct phase begins with an empty ring, and indirect bytes end it
//!   on arrival.
//! * An advertisement is used only at its true byte. The receiver enters a direct phase P with an empty ring, so the
//!   first advertisement A1 of P names the byte after all that arrived. If something was under way the sender is past
//!   that byte and finds A1 stale. Later advertisements of P rest on the same wrong count, and one may by chance name
//!   the sender's byte; therefore the whole phase is over with A1 (the *jump*). If A1 was used the sender is in phase
//!   P, and uses the others in the order in which the receiver fills them. Without the jump the checker finds a wrong
//!   byte: send one byte indirectly and another; the first is copied out; two buffers are advertised, for bytes 1 and
//!   2; the sender, at byte 2, takes the second advertisement for true.
//! * No advertisement is wasted when nothing is under way: the receiver's count of the next byte is exact then.
//! * Behind a mark nothing that was advertised is used: at the mark the sender knows all advertisements, as control
//!   messages keep their order, and its phase is later than theirs. So is the phase of the receiver's next one.
//! * A byte is written into the ring in which it is read: transfers and marks share one order.
//! * A withdrawn buffer is the caller's: indirect bytes that arrived in phase P were sent after the last use of an
//!   advertisement of P.
//! * The sender holds no more advertisements than it announced: it has dropped those of older phases when the first of
//!   a new phase arrives.
//! * A sender that awaits an advertisement is answered. If it used up a buffer, that transfer makes the answer due. If
//!   an advertisement was late, the indirect bytes that made it so do, and the answer is sent behind that
//!   advertisement.
//! * Progress: if bytes wait, the peer reads and nothing is under way, the sender has a usable advertisement, or room
//!   in the ring; and credits suffice. In mode `direct_only` the peer reads when it posts receives.
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
pub use receive::{Arrival, Completed, Receive, ReceiveId};
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
