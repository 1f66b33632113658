//! The session of a distribution link, which outlives the connections that carry it. No I/O, no clock, no threads.
//!
//! A session is two byte streams, one for each direction, of packets with their lengths. A **position** counts the
//! bytes of one direction. The **log** keeps what the peer has not acknowledged. A **path** carries the bytes: a TCP
//! connection, or a queue pair (shared memory, verbs). Paths are made, changed and lost under a living session:
//!
//! * **Move**: the sender marks the position from which the other path carries on ([`frame::Kind::Move`]). The receiver
//!   reads the old path to the mark, then the new one. Each direction moves by itself.
//! * **Loss** of the TCP connection: [`Session::suspend`] on both sides gives the position up to which each has
//!   received, another TCP connection brings that to the peer, and [`Session::resume`] goes back to this position. A
//!   queue pair that both sides still have carries on meanwhile. If either side has lost it, both give it up, and TCP
//!   carries.
//! * **Attempts** to resume have numbers. A greater number replaces a path that one side still takes for alive; a
//!   smaller number is refused. So attempts of both sides at once, and copies of old attempts, do no harm.
//!
//! # Order of calls
//!
//! | caller | calls | until |
//! |---|---|---|
//! | the sender of a packet | [`Session::append`], or [`Session::passes`] and [`Session::handle_passed`] | |
//! | a TCP connection with room | [`Session::poll_transmit`], [`Session::transmission`],
//! [`Session::handle_transmitted`] | `poll_transmit` answers false |
//! | a queue pair with room | [`Session::queue_slices`], [`Session::handle_queued`] | there are none |
//! | a TCP connection with bytes | [`Session::direct`] and [`Session::handle_direct`], or [`Session::handle_input`] |
//! the [`Turn`] is over |
//! | a queue pair with packets, while [`Session::reads_queue`] | [`Session::handle_queue_packets`] | |
//! | the caller that gave input | [`Session::poll_event`] | None |
#![forbid(unsafe_code)]

pub mod frame;
mod inbound;
mod log;
mod position;
pub mod proof;
mod session;
#[cfg(test)]
mod tests;
mod turn;

pub use inbound::{LARGE_BYTES, LENGTH_BYTES, Memory, Sink};
pub use log::{Cursor, Log};
pub use position::Position;
pub use session::{Counts, Event, QueuePairId, Role, Session, Standing, WINDOW_BYTES_FIRST};
pub use turn::Turn;

/// The side that runs from an older state than the other one has seen, as its machine was restored from a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Older {
    /// The peer has received bytes that this side has not sent.
    #[error("the peer has received bytes that this node has not sent: this node was restored from an older state")]
    Own,
    /// The peer lacks bytes that it has acknowledged.
    #[error("the peer lacks bytes that it has acknowledged: it was restored from an older state")]
    Peer,
    /// The peer says that the positions contradict each other.
    #[error("the positions of the two nodes contradict each other: one of them was restored from an older state")]
    Either,
}

/// The peer broke the session's rules, or this side lacks memory for what the peer sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Violation {
    /// A frame of an unknown kind, or of a size that its kind cannot have.
    #[error("a frame is of no known kind or size")]
    Frame,
    /// An acknowledgement of bytes that were never sent, or an end before bytes that have arrived.
    #[error("the peer names a position that it cannot have")]
    Position,
    /// The positions of the two sides contradict each other in a resume.
    #[error("{0}")]
    RolledBack(Older),
    /// A move in the middle of a packet, with a mark that is not the position of the bytes before it, or to a path that
    /// does not exist.
    #[error("the peer moves where it cannot")]
    Move,
    /// Bytes of the stream over TCP after a move to a queue pair.
    #[error("the peer sends over a path that it has left")]
    Path,
    /// More bytes of the stream over TCP than this side takes without having acknowledged them.
    #[error("the peer sends {0} bytes that are not acknowledged")]
    Window(usize),
    /// A packet larger than allowed.
    #[error("the peer sends a packet of {bytes} bytes; {max} are allowed")]
    PacketTooLarge {
        /// The size that it announced.
        bytes: usize,
        /// The option `packet_max_bytes`.
        max: usize,
    },
    /// This side lacks memory for a packet of this size in bytes.
    #[error("no memory for a packet of {0} bytes")]
    NoMemory(usize),
}
