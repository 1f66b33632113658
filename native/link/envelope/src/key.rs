//! What bytes are counted by.

use crate::operation::Operation;
use crate::party::Party;

/// Operation, sender and target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// The operation.
    pub operation: Operation,
    /// The sender.
    pub sender: Party,
    /// The target.
    pub target: Party,
}

impl Key {
    /// The key of a packet that is not understood.
    pub const OTHER: Key = Key {
        operation: Operation::Other,
        sender: Party::None,
        target: Party::None,
    };

    /// The key of an empty packet.
    pub const TICK: Key = Key {
        operation: Operation::Tick,
        ..Key::OTHER
    };

    /// A hash, by which a sketch finds the key.
    pub(crate) fn fingerprint(&self) -> u32 {
        let mut hash = u64::from(self.operation as u8);
        for party in [self.sender, self.target] {
            let (first, second) = match party {
                Party::None => (0, 0),
                Party::Name(name) => (1 << 32 | u64::from(name.word()), 0),
                Party::Process {
                    node,
                    id,
                    serial,
                    creation,
                } => (
                    2 << 32 | u64::from(node.word()),
                    pair(id, serial) ^ u64::from(creation).rotate_right(8),
                ),
                Party::Alias { node, creation } => (3 << 32 | u64::from(node.word()), creation.into()),
            };
            for word in [first, second] {
                // The step of FxHash, with the golden ratio's multiplier.
                hash = (hash.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            }
        }
        (hash >> 32) as u32
    }
}

fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}
