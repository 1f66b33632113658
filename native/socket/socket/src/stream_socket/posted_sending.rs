//! Writes posted sends, as far as the peer has room.

use super::notifier::{Parcel, StreamNotifier};
use super::sending::WriteDirection;
use super::shared::StreamSocket;
use inet_rdma_engine::connection::Woken;

/// Maximum number of writes of posted sends in one call. One write fills the peer's room; a peer that makes room a byte
/// at a time waits for the polling thread's next turn.
const WRITES_MAX: usize = 16;

impl<N: StreamNotifier> StreamSocket<N> {
    /// Continues the posted sends: about [`super::Bounds::call_bytes`] in at most [`WRITES_MAX`] writes.
    pub(super) fn send_posted(&self) -> Woken {
        let mut direction = self.write_direction.lock();
        if direction.posted.is_empty() {
            return Woken::default();
        }
        if direction.holder().is_some() {
            // The connection may be closed: then the holder never finishes, and the posted sends end here.
            if let Some(closed) = self.connection.closed() {
                direction.end(&self.notifier, &closed);
            }
            return Woken::default();
        }
        let mut woken = self.write_posted(&mut direction);
        woken.writer |= direction.take_wanted();
        woken
    }

    fn write_posted(&self, direction: &mut WriteDirection<N>) -> Woken {
        let mut woken = Woken::default();
        let mut left = self.bounds.call_bytes.max(1);
        let mut writes = 0;
        while !direction.posted.is_empty() {
            if left == 0 || writes == WRITES_MAX {
                // Bytes are left, but other connections wait for their turn.
                self.connection.call_back(Woken::WRITER);
                break;
            }
            writes += 1;
            let (tried, found) = direction.write_posted(left);
            woken.merge(found);
            let written = match tried {
                Ok(written) => written,
                Err(closed) => {
                    direction.end(&self.notifier, &closed);
                    break;
                }
            };
            left = left.saturating_sub(written.at);
            direction.posted.advance(written.at, |token| {
                let bytes = token.bytes();
                self.notifier.sent(token, Ok(bytes));
            });
            if written.blocked && !direction.posted.is_empty() {
                let (armed, found) = self.connection.arm_writer_without_notify();
                woken.merge(found);
                if armed {
                    break;
                }
            }
        }
        woken
    }
}
