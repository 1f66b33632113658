//! A posted receive: the buffer that the caller offers, and its state.

use crate::wire::RemoteAddress;

/// The caller's name for a posted receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiveId(pub u64);

/// A buffer that the caller wants filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Receive {
    /// The name of the receive.
    pub id: ReceiveId,
    /// The address of the buffer, for the peer.
    pub target: RemoteAddress,
    /// Its size, 1 to [`crate::TRANSFER_BYTES_MAX`].
    pub bytes: u32,
    /// True: the receive is complete when the buffer is full. False: with the first bytes.
    pub fill: bool,
}

/// The place in which the bytes of a transfer have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// In the ring, after the earlier bytes. The peer no longer fills receives that were advertised before: take them
    /// back by [`crate::Stream::withdraw`], else no other one is advertised.
    Ring {
        /// Number of bytes.
        bytes: u32,
    },
    /// The transfer is a mark, without bytes. The peer uses no advertisement from before the mark: take all receives
    /// back now, by [`crate::Stream::withdraw`].
    Mark {
        /// True: the peer writes into the new ring from now on.
        ring: bool,
    },
    /// In a posted receive.
    Direct {
        /// The receive.
        id: ReceiveId,
        /// Offset in its buffer.
        offset: u32,
        /// Number of bytes.
        bytes: u32,
        /// True: the receive is complete, and the caller owns its buffer again.
        done: bool,
    },
}

/// A receive that is not complete.
///
/// # Invariants
/// `filled <= receive.bytes`.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
pub(crate) struct OutstandingReceive {
    pub receive: Receive,
    /// Bytes that have arrived in its buffer.
    pub filled: u32,
}

impl OutstandingReceive {
    pub fn new(receive: Receive) -> OutstandingReceive {
        OutstandingReceive { receive, filled: 0 }
    }

    /// Bytes that still fit into the buffer.
    pub fn room(&self) -> u32 {
        self.receive.bytes - self.filled
    }

    /// Minimum number of bytes that the receive will still get: its share in S'_r while it is advertised.
    pub fn least(&self) -> u32 {
        if self.receive.fill { self.room() } else { 1 }
    }

    /// Notes that more bytes have arrived. True: the receive is complete.
    pub fn fill(&mut self, bytes: u32) -> bool {
        self.filled += bytes;
        !self.receive.fill || self.room() == 0
    }
}
