//! The queue pair of a world: set up, filled, read, left and lost.

use super::super::queue_pair::{Hold, QueuePair};
use super::super::queued;
use super::super::side::{Comparer, Side};
use super::super::tcp::Portion;
use super::{Broken, Setup, World};

impl World {
    pub fn hold(&self, side: usize) -> Option<Hold> {
        self.queue.as_ref().map(|queue| queue.holds[side])
    }

    pub(super) fn settle(&mut self, setup: &Setup) -> bool {
        let is_settled = self.queue.is_some() || self.queue_pairs == setup.queue_pairs;
        let [first, second] = &self.sides;
        let is_free = |side: &Side| side.session.path().is_none() && !side.session.is_sent_by_queue();
        let same = first.connection.is_some() && first.connection == second.connection;
        if is_settled || !same || !is_free(first) || !is_free(second) || self.reads_queue(0) || self.reads_queue(1) {
            return false;
        }
        self.queue_pairs += 1;
        self.queue = Some(QueuePair::new(self.queue_pairs));
        true
    }

    /// Whether the peer's bytes come over any of the queue pairs.
    pub(super) fn reads_queue(&self, side: usize) -> bool {
        (1..=self.queue_pairs).any(|id| self.sides[side].session.reads_queue(id))
    }

    pub(super) fn add_path(&mut self, setup: &Setup, side: usize) -> bool {
        match &mut self.queue {
            Some(queue) if queue.holds[side] == Hold::Awaited => {
                if queue.holds[1 - side] == Hold::Gone {
                    queue.leave(side);
                } else {
                    queue.holds[side] = Hold::Had;
                    self.sides[side].session.add_path(queue.id, setup.can_be_lost);
                }
                true
            }
            _ => false,
        }
    }

    pub(super) fn give_queue(&mut self, side: usize, portion: Portion) -> bool {
        if self.hold(side) != Some(Hold::Had) {
            return false;
        }
        let limit = if portion == Portion::All { usize::MAX } else { 3 };
        let bytes = queued(&mut self.sides[side].session, limit);
        self.put_queue(side, &bytes);
        !bytes.is_empty()
    }

    pub(super) fn put_queue(&mut self, side: usize, bytes: &[u8]) {
        if let Some(queue) = self.queue.as_mut().filter(|queue| queue.holds[1 - side] != Hold::Gone) {
            queue.unread[side].extend_from_slice(bytes);
        }
    }

    pub(super) fn read_queue(&mut self, setup: &Setup, side: usize) -> Result<bool, Broken> {
        let Some(queue) = self.queue.as_mut().filter(|queue| queue.holds[side] == Hold::Had) else {
            return Ok(false);
        };
        let side_state = &mut self.sides[side];
        let Some(bytes) = queue
            .whole_packet(1 - side)
            .filter(|_| side_state.session.reads_queue(queue.id))
        else {
            return Ok(false);
        };
        let packet: Vec<u8> = queue.unread[1 - side].drain(..bytes).collect();
        queue.read[1 - side] += bytes as u64;
        let mut sink = Comparer {
            setup,
            from: 1 - side,
            arrived: &mut side_state.arrived,
            broken: None,
        };
        sink.compare_framed(&packet);
        if let Some(broken) = sink.broken {
            return Err(broken);
        }
        side_state.session.handle_queue_packets(bytes);
        self.take_events(side)?;
        Ok(true)
    }

    pub(super) fn hear_read(&mut self, side: usize) -> bool {
        let Some(queue) = self.queue.as_ref().filter(|queue| queue.holds[side] == Hold::Had) else {
            return false;
        };
        let reads = self.sides[1 - side].session.reads_queue(queue.id) && queue.holds[1 - side] == Hold::Had;
        let read = if reads {
            queue.read_with_part(side)
        } else {
            queue.read[side]
        };
        let before = self.sides[side].session.logged_bytes();
        self.sides[side].session.handle_queue_read(read);
        self.sides[side].session.logged_bytes() != before
    }

    pub(super) fn lose_queue(&mut self, side: usize) -> bool {
        match &mut self.queue {
            Some(queue) if queue.holds[side] == Hold::Had => {
                queue.leave(side);
                self.sides[side].session.lose_path();
                true
            }
            _ => false,
        }
    }

    /// The initiator closes the queue pair that it has left. The peer has left it, too: it takes the end for nothing
    /// else.
    pub(super) fn close_queue(&mut self, side: usize) -> Result<bool, Broken> {
        if side != 0 || !self.sides[side].session.has_left_queue() || self.hold(side) != Some(Hold::Had) {
            return Ok(false);
        }
        if self.hold(1 - side) == Some(Hold::Had) && !self.sides[1 - side].session.has_left_queue() {
            return Err(Broken::EarlyClose);
        }
        Ok(self.lose_queue(side))
    }

    /// A session that has given its path up has its queue pair closed.
    pub(super) fn after_resume(&mut self, side: usize, keeps_path: bool) -> Result<(), Broken> {
        let path = self.sides[side].session.path();
        if let Some(queue) = self.queue.as_mut().filter(|queue| queue.holds[side] == Hold::Had) {
            if path != Some(queue.id) {
                queue.leave(side);
            }
            if keeps_path != (path == Some(queue.id)) {
                return Err(Broken::Event);
            }
        }
        Ok(())
    }
}
