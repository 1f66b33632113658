//! Violations of the protocol by the peer. Each ends the connection; none is ever the fault of this side's caller.

use crate::seq::{Phase, Seq};
use crate::wire::WireError;

/// How the peer broke the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// It sent bytes that are no message.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// It used more receive slots than it had credits for.
    #[error("the peer used more than the {slots} receive slots it may")]
    SlotsOverrun {
        /// Depth of this side's receive queue.
        slots: u16,
    },
    /// It gave back more credits than its receive queue is deep.
    #[error("{credits} credits given back with {known} known free, of {slots} in all")]
    CreditExcess {
        /// Credits that it gave back.
        credits: u16,
        /// Credits known to be free.
        known: u16,
        /// Depth of its receive queue.
        slots: u16,
    },
    /// A direct transfer of no bytes, or a transfer of more than a notice can say.
    #[error("a transfer of {0} bytes")]
    NoticeBytes(u32),
    /// More bytes into the ring than were free in it.
    #[error("{bytes} bytes written into a ring with {free} free")]
    RingOverflow {
        /// Bytes that it wrote.
        bytes: u32,
        /// Bytes that were free.
        free: u32,
    },
    /// A write over the ring's end: each must be contiguous.
    #[error("{bytes} bytes written where the ring ends after {contiguous}")]
    RingWrap {
        /// Bytes that it wrote.
        bytes: u32,
        /// Bytes up to the ring's end.
        contiguous: u32,
    },
    /// A direct transfer that no advertisement of this phase allows.
    #[error("a direct transfer that nothing was advertised for")]
    DirectUnadvertised,
    /// A direct transfer longer than the buffer.
    #[error("a direct transfer of {bytes} bytes into a buffer for {room}")]
    DirectTooLong {
        /// Bytes that it wrote.
        bytes: u32,
        /// Bytes that the buffer still took.
        room: u32,
    },
    /// Bytes after the end that it had announced.
    #[error("a transfer of {bytes} bytes over the stream's end at {}", end.0)]
    DataAfterFinish {
        /// Bytes that it wrote.
        bytes: u32,
        /// The end that it announced.
        end: Seq,
    },
    /// An end before bytes that had arrived.
    #[error("the stream's end at {} after {} bytes had arrived", end.0, arrived.0)]
    FinishShort {
        /// The end that it announced.
        end: Seq,
        /// Bytes that had arrived.
        arrived: Seq,
    },
    /// It announced the end twice.
    #[error("the stream's end announced twice")]
    FinishTwice,
    /// It acknowledged bytes that were never written into its ring.
    #[error("{} ring bytes acknowledged of {} written", freed.0, written.0)]
    AckUnsent {
        /// Bytes freed, as the peer says.
        freed: Seq,
        /// Bytes that were written.
        written: Seq,
    },
    /// It took back an acknowledgement.
    #[error("{} ring bytes acknowledged after {}", freed.0, before.0)]
    AckBack {
        /// Bytes freed, as the peer says now.
        freed: Seq,
        /// Bytes freed, as it said before.
        before: Seq,
    },
    /// More advertisements than this side holds.
    #[error("more than {max} advertisements at a time")]
    AdvertExcess {
        /// Advertisements that this side announced.
        max: u16,
    },
    /// An advertisement for a phase of indirect transfers.
    #[error("an advertisement for the indirect phase {}", phase.0)]
    AdvertIndirect {
        /// The phase it names.
        phase: Phase,
    },
    /// An advertisement for a phase that has passed, or that cannot have come yet.
    #[error("an advertisement for phase {} after one for phase {}", phase.0, before.0)]
    AdvertPhase {
        /// The phase it names.
        phase: Phase,
        /// The phase of the advertisement before it.
        before: Phase,
    },
    /// An advertisement for a byte that it cannot be for.
    #[error("an advertisement for byte {}, possible are {} to {}", seq.0, least.0, most.0)]
    AdvertSeq {
        /// The byte it names.
        seq: Seq,
        /// The first that it could be for.
        least: Seq,
        /// The last that it could be for.
        most: Seq,
    },
    /// An advertised buffer that runs over the end of the address space.
    #[error("an advertised buffer over the end of the address space")]
    AdvertAddress,
    /// It asked for a mark before it had the last one.
    #[error("a mark asked for twice")]
    AskedTwice,
    /// A mark that nothing asked for.
    #[error("a mark that nothing asked for")]
    MarkUnasked,
    /// A new ring that runs over the end of the address space.
    #[error("a new ring over the end of the address space")]
    RingAddress,
    /// More bytes than 64 bits can count.
    #[error("more bytes than can be counted")]
    TooManyBytes,
}
