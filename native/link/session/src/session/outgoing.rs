//! Outgoing packets: into the log, and to the queue pair.

use super::{Route, Session, Source};
use crate::inbound::{LENGTH_BYTES, Memory};
use crate::log::Log;
use crate::position::Position;

impl<H: AsRef<[u8]>, L: Memory> Session<H, L> {
    /// Whether a packet may go to the queue pair without the log: the queue pair carries, all earlier bytes have left
    /// the log, and the queue pair lives as long as the peer.
    pub fn passes(&self) -> bool {
        self.log.is_empty() && self.keeps_nothing()
    }

    /// The queue pair has taken the first `bytes` bytes of a packet of `packet_bytes` bytes with its length, past the
    /// log. The rest goes by [`Self::append_rest`].
    pub fn handle_passed(&mut self, bytes: usize, packet_bytes: usize) {
        self.counts.packets_sent += 1;
        self.counts.bytes_sent += packet_bytes as u64;
        self.log.pass(bytes);
        self.sent = self.log.end();
        self.queue = self.log.seek(self.log.end()).unwrap_or_default();
    }

    /// A packet of `bytes` bytes: its length, then its pieces by the two functions of `add`.
    pub fn append(&mut self, bytes: usize, add: impl FnOnce(&mut Log<H>)) {
        let length = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.counts.packets_sent += 1;
        self.counts.bytes_sent += (LENGTH_BYTES + bytes) as u64;
        self.log.copy(&length.to_be_bytes());
        self.append_rest(add);
    }

    /// The rest of a packet, after [`Self::handle_passed`].
    pub fn append_rest(&mut self, add: impl FnOnce(&mut Log<H>)) {
        add(&mut self.log);
        if matches!(self.route, Route::Queue { .. }) {
            self.packet_ends.push_back(self.log.end());
        }
    }

    /// Gives slices of up to `bytes` bytes for the queue pair to `take`, until it returns false.
    pub fn queue_slices<'a>(&'a self, bytes: usize, take: impl FnMut(&'a [u8]) -> bool) {
        if matches!(self.route, Route::Queue { .. }) {
            self.log.slices(&self.queue, bytes, take);
        }
    }

    /// The queue pair has taken this many bytes of them.
    pub fn handle_queued(&mut self, bytes: usize) {
        self.log.advance(&mut self.queue, bytes);
        self.sent = self.sent.max(self.queue.position());
        self.release_taken();
    }

    /// Releases what the queue pair has taken, once the log need not keep it.
    pub(super) fn release_taken(&mut self) {
        if self.keeps_nothing() {
            self.release(self.queue.position());
        }
    }

    /// The queue pair's peer has read the first `bytes` bytes that went over it.
    pub fn handle_queue_read(&mut self, bytes: u64) {
        if let Route::Queue { mark, .. } = self.route {
            if self.log.start() < mark {
                return;
            }
            let read = Position(mark.0 + bytes).min(self.queue.position());
            // A peer that loses the queue pair drops the packet of which it has a part.
            let whole = self.packet_ends.iter().take_while(|&&end| end <= read).last().copied();
            if let Some(end) = whole {
                self.release(end);
            }
        }
    }

    /// True if the log need not keep bytes that the queue pair takes. The queue pair is lost only with the peer; the
    /// peer has it, too, as it has moved there; the attempt under way does not give it up; and all bytes that went over
    /// TCP before have arrived.
    fn keeps_nothing(&self) -> bool {
        match (self.route, self.path) {
            (Route::Queue { path: id, mark }, Some(path)) => {
                path.id == id
                    && !path.can_be_lost
                    && self.source == Source::Queue(id)
                    && self.standing.is_none_or(|ours| ours.path == Some(id))
                    && self.log.start() >= mark
            }
            _ => false,
        }
    }

    pub(super) fn release(&mut self, position: Position) {
        self.log.acknowledge(position);
        while self.packet_ends.front().is_some_and(|&end| end <= position) {
            self.packet_ends.pop_front();
        }
    }
}
