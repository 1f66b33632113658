//! Moves to a queue pair, and back to the TCP connection.

use std::time::Instant;

use inet_rdma_paths::Path;
use inet_rdma_session::{Memory, QueuePairId};

use crate::link::Link;
use crate::notice::Notice;
use crate::queue_pair::{QueuePair, Room};

impl<H: AsRef<[u8]>, L: Memory> Link<H, L> {
    /// This side has a queue pair, which replaces an earlier one; both sides know it by `id`. `can_be_lost`: while the
    /// peer's process lives.
    pub fn add_queue(&mut self, id: QueuePairId, can_be_lost: bool) {
        self.session.add_path(id, can_be_lost);
        if can_be_lost {
            self.paths.add(Path::QueuePair)
        } else {
            self.paths.add_exempt(Path::QueuePair)
        }
        self.queue = Some(QueuePair {
            id,
            can_be_lost,
            room: Room::Free,
        });
    }

    /// Gives up a queue pair that this side does not send over. A peer that has moved there comes back by an attempt.
    pub fn drop_unused_queue(&mut self, now: Instant) {
        if !self.session.is_sent_by_queue() {
            self.lose_unused_queue(now);
        } else if self.session.awaits_queue() {
            self.lose_with_queue(now);
        }
    }

    /// Both sides begin on the queue pair, before [`Self::start`].
    pub fn begin_on_queue(&mut self) {
        if !self.session.is_sent_by_queue() {
            self.session.begin_on_queue();
            self.changes.moves += 1;
            self.traffic.end();
        }
    }

    /// Sends over the queue pair from now on. False: it does, or there is none.
    pub fn move_to_queue(&mut self) -> bool {
        let moves = self.session.move_to_queue();
        if moves {
            self.traffic.end();
        }
        self.request_transmission();
        moves
    }

    /// Begins to go back to the TCP connection. False: not now, as the peer has not said that all has arrived.
    pub fn return_to_tcp(&mut self) -> bool {
        let returns = self.tcp.is_present() && self.session.return_to_tcp();
        if returns {
            self.traffic.begin_anew(self.passed());
            self.request_transmission();
        }
        returns
    }

    /// The peer has gone back to TCP: this side follows when all bytes that it sent over the queue pair have arrived.
    pub(crate) fn follows(&self) -> bool {
        self.tcp.is_present() && self.session.is_sent_by_queue() && self.session.peer_has_left_queue()
    }

    /// Goes back to the TCP connection behind the peer, which closes the queue pair. False: not now.
    pub(crate) fn follow(&mut self) -> bool {
        let returns = self.follows() && self.return_to_tcp();
        if returns {
            self.handle_left_queue();
        }
        returns
    }

    /// Both sides have gone back: this side closes the queue pair.
    pub(crate) fn leave_queue(&mut self, now: Instant) {
        self.lose_unused_queue(now);
        self.handle_left_queue();
    }

    fn handle_left_queue(&mut self) {
        self.tell(Notice::Returned);
        self.tell_if_earned();
    }
}
