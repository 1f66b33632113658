//! Exact counts by operation.

use crate::operation::{OPERATIONS, Operation};

/// Messages and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Messages; a fragmented one is one. Of [`Operation::Other`]: packets that begin a message, or might.
    pub messages: u64,
    /// Bytes of packets, without the lengths before them.
    pub bytes: u64,
}

/// Counts of each operation.
pub struct Counts([Count; OPERATIONS]);

impl Default for Counts {
    fn default() -> Self {
        Counts([Count::default(); OPERATIONS])
    }
}

impl Counts {
    /// Returns the messages of the operation.
    #[inline]
    pub(crate) fn add(&mut self, operation: Operation, begins_message: bool, bytes: usize) -> u64 {
        let count = &mut self.0[operation as usize];
        count.messages += u64::from(begins_message);
        count.bytes += bytes as u64;
        count.messages
    }

    /// Those of all operations but [`Operation::Tick`].
    pub fn total(&self) -> Count {
        let mut total = Count::default();
        for (_, count) in self.iter().filter(|(operation, _)| *operation != Operation::Tick) {
            total.messages += count.messages;
            total.bytes += count.bytes;
        }
        total
    }

    /// Those of one operation.
    pub fn of(&self, operation: Operation) -> Count {
        self.0[operation as usize]
    }

    /// The operations of which there were packets.
    pub fn iter(&self) -> impl Iterator<Item = (Operation, Count)> {
        Operation::ALL
            .into_iter()
            .map(|operation| (operation, self.of(operation)))
            .filter(|(_, count)| *count != Count::default())
    }
}
