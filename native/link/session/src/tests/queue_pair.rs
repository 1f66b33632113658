//! A queue pair between two sides: bytes in order, of which a reader takes whole packets.

use crate::{LENGTH_BYTES, QueuePairId};

/// What a side has of the queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hold {
    /// It is being set up.
    Awaited,
    Had,
    /// Lost, given up, or never set up.
    Gone,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct QueuePair {
    pub id: QueuePairId,
    pub holds: [Hold; 2],
    /// Per sender: bytes that it has given and the peer has not read.
    pub unread: [Vec<u8>; 2],
    /// Per sender: bytes that the peer has read, of whole packets.
    pub read: [u64; 2],
}

impl QueuePair {
    pub fn new(id: QueuePairId) -> QueuePair {
        QueuePair {
            id,
            holds: [Hold::Awaited; 2],
            unread: Default::default(),
            read: [0; 2],
        }
    }

    /// This side has it no longer: what it has not read is lost.
    pub fn leave(&mut self, side: usize) {
        self.holds[side] = Hold::Gone;
        self.unread[1 - side].clear();
    }

    /// Size of the first packet with its length, if all of it has been given.
    pub fn whole_packet(&self, from: usize) -> Option<usize> {
        let (length, rest) = self.unread[from].split_first_chunk::<LENGTH_BYTES>()?;
        let bytes = u32::from_be_bytes(*length) as usize;
        (rest.len() >= bytes).then_some(LENGTH_BYTES + bytes)
    }

    /// What the sender is told: a part of a packet counts as read when it lies with the reader.
    pub fn read_with_part(&self, from: usize) -> u64 {
        match self.whole_packet(from) {
            None => self.read[from] + self.unread[from].len() as u64,
            Some(_) => self.read[from],
        }
    }
}
