//! The bound of a turn.

/// The rest of a turn of the caller, which leaves other work its turn. Input stops where one of the numbers is used up:
/// a few bytes of a compressing peer, or a few bytes for each packet, make no turn longer than another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Bytes of the connection, as the session gets them.
    pub bytes: usize,
    /// Packets, signs of life, and messages.
    pub packets: usize,
}

impl Turn {
    /// A turn that takes all input.
    pub fn unbounded() -> Turn {
        Turn {
            bytes: usize::MAX,
            packets: usize::MAX,
        }
    }

    /// Whether input is refused.
    pub fn is_over(&self) -> bool {
        self.bytes == 0 || self.packets == 0
    }

    pub(crate) fn count_packet(&mut self) {
        self.packets = self.packets.saturating_sub(1);
    }
}
