//! The queue pair of a link.

use inet_rdma_session::QueuePairId;

/// A queue pair that this side has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct QueuePair {
    /// Both sides know it by this name.
    pub(crate) id: QueuePairId,
    /// It may be lost while the peer's process lives: over a device, not over shared memory.
    pub(crate) can_be_lost: bool,
    pub(crate) room: Room,
}

/// The room for outgoing bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Room {
    /// There may be room.
    Free,
    /// The peer has no room; the connection tells when it has. To try for each packet would cost as much as to write
    /// it. With `tries_from_bytes` waiting bytes the port tries nevertheless, as one port task of the VM may send many
    /// packets.
    None { tries_from_bytes: usize },
}

/// The result of a write to the queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueWritten {
    /// All bytes are written; or it has ended, which another event tells.
    All,
    /// The peer has no room; the queue pair tells when it has.
    Blocked,
    /// The turn is over, and bytes are left.
    More,
}

impl QueuePair {
    pub(crate) fn is_blocked(&self) -> bool {
        self.room != Room::Free
    }
}
