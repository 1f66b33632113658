//! Senders and targets.

use crate::names::Name;

/// The sender or the target of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Party {
    /// The control message names none.
    #[default]
    None,
    /// A registered name, on the receiver's node as a target, on the sender's as a sender.
    Name(Name),
    /// A process, by the fields of its identifier.
    Process {
        /// The node's name.
        node: Name,
        /// ID.
        id: u32,
        /// Serial.
        serial: u32,
        /// Creation.
        creation: u32,
    },
    /// An alias of a process. Each call makes its own alias, so all aliases of a node are one party.
    Alias {
        /// The node's name.
        node: Name,
        /// Creation.
        creation: u32,
    },
}
