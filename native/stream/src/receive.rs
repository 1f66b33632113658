//! A posted receive: the buffer that the caller offers, and its state.

use crate::wire::RemoteAddress;

/// The caller's name for a posted receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiveId(pub u64);

/// A buffer that the caller wants filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Receive {
    /// Names it when it is done.
    pub id: ReceiveId,
    /// The address of the buffer, for the peer.
    pub target: RemoteAddress,
    /// Its size, 1 to [`crate::TRANSFER_BYTES_MAX`].
    pub bytes: u32,
    /// True: it counts as received when it is full. False: with the first bytes.
    pub fill: bool,
}

/// Where the bytes of a transfer arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// In the ring, behind what is there.
    Ring {
        /// How many.
        bytes: u32,
    },
    /// Nowhere: it is a mark. No advertisement from before it can be used any more: take all receives back now, by
    /// [`crate::Stream::withdraw`].
    Mark {
        /// The new ring has been taken over.
        ring: bool,
    },
    /// In a posted receive.
    Direct {
        /// Which.
        id: ReceiveId,
        /// Where in its buffer.
        offset: u32,
        /// How many.
        bytes: u32,
        /// The receive is satisfied: its buffer is the caller's again.
        done: bool,
    },
}

/// A receive that is satisfied by bytes copied from the ring: its buffer is the caller's again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completed {
    /// Which.
    pub id: ReceiveId,
    /// All the bytes that are in its buffer.
    pub bytes: u32,
}

/// A receive on its way to be satisfied.
///
/// # Invariants
/// `filled <= receive.bytes`.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
pub(crate) struct OutstandingReceive {
    pub receive: Receive,
    /// Bytes of it that are there.
    pub filled: u32,
}

impl OutstandingReceive {
    pub fn new(receive: Receive) -> OutstandingReceive {
        OutstandingReceive { receive, filled: 0 }
    }

    /// Bytes that it still takes.
    pub fn room(&self) -> u32 {
        self.receive.bytes - self.filled
    }

    /// The least that it will still get: its share in S'_r while it is advertised.
    pub fn least(&self) -> u32 {
        if self.receive.fill { self.room() } else { 1 }
    }

    /// More bytes are there. True: it is satisfied.
    pub fn fill(&mut self, bytes: u32) -> bool {
        self.filled += bytes;
        !self.receive.fill || self.room() == 0
    }
}
