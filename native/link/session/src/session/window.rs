//! The window: the bytes that the TCP connection may have under way without an acknowledgement.
//!
//! TCP's own flow control protects the receiver; a window costs the sender memory, as its log keeps these bytes. So the
//! sender chooses its window, and the receiver tells a bound at the begin of each connection.

use super::{ACKNOWLEDGED_BYTES, Session, WINDOW_BYTES_FIRST};
use crate::Violation;
use crate::inbound::Memory;

impl<H: AsRef<[u8]>, L: Memory> Session<H, L> {
    /// Both sides tell at the begin of each connection how many bytes they take. This side takes `bytes`, or
    /// [`WINDOW_BYTES_FIRST`] if that is more. Called before the first byte; otherwise neither side sends more than
    /// [`WINDOW_BYTES_FIRST`].
    pub fn tell_window(&mut self, bytes: usize) {
        self.told_window = Some(bytes.max(WINDOW_BYTES_FIRST));
        self.pending.window = true;
    }

    /// Bounds the bytes that the TCP connection has under way; the bound is at least the number of bytes that the peer
    /// receives before it acknowledges. Further bytes wait in the log until an acknowledgement comes.
    pub fn set_window(&mut self, bytes: usize) {
        self.window = bytes.max(ACKNOWLEDGED_BYTES);
    }

    /// The bound in force: that of [`Self::set_window`], or the peer's.
    pub fn window_bytes(&self) -> usize {
        self.window.min(self.peer_window)
    }

    /// The bytes that the peer takes over the present connection.
    pub fn peer_window_bytes(&self) -> usize {
        self.peer_window
    }

    /// Whether bytes for the TCP connection have waited for an acknowledgement since the last call.
    pub fn take_window_full(&mut self) -> bool {
        std::mem::take(&mut self.use_of_window.is_full)
    }

    /// The most bytes that the TCP connection had under way since the last call.
    pub fn take_window_peak(&mut self) -> usize {
        let present = self.bytes_under_way();
        std::mem::replace(&mut self.use_of_window.peak, present)
    }

    /// Bytes of the log that the TCP connection has taken. The log lets go of bytes that the queue pair has taken,
    /// beyond the mark at which TCP stands.
    fn bytes_under_way(&self) -> usize {
        self.tcp.position().saturating_since(self.log.start())
    }

    /// Bytes of the stream that the window leaves to the TCP connection.
    pub(super) fn window_left(&self) -> usize {
        self.window_bytes().saturating_sub(self.bytes_under_way())
    }

    pub(super) fn note_under_way(&mut self) {
        self.use_of_window.peak = self.use_of_window.peak.max(self.bytes_under_way());
    }

    /// The peer's bound; only peers that are told one tell one.
    pub(super) fn handle_window(&mut self, bytes: u64) -> Result<(), Violation> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if self.told_window.is_none() || bytes < WINDOW_BYTES_FIRST {
            return Err(Violation::Frame);
        }
        self.peer_window = bytes;
        Ok(())
    }

    /// The most bytes that this side takes without having acknowledged them. The peer may not have read yet what it is
    /// told.
    pub(super) fn taken_bytes_max(&self) -> usize {
        self.told_window.unwrap_or(WINDOW_BYTES_FIRST)
    }
}
