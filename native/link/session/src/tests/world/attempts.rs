//! The connections of a world: losses, dials, standings.

use super::super::queue_pair::Hold;
use super::super::side::Dial;
use super::super::tcp::dialer;
use super::{Broken, World};
use crate::QueuePairId;

impl World {
    pub(super) fn lose_tcp(&mut self, side: usize) -> bool {
        let lost = self.sides[side].connection.is_some();
        self.sides[side].session.lose_tcp();
        self.sides[side].leave_tcp();
        lost
    }

    /// The peer has given up the connection of this side.
    pub fn is_dead(&self, side: usize) -> bool {
        let Some(connection) = self.sides[side].connection else {
            return false;
        };
        let peer = &self.sides[1 - side];
        peer.connection != Some(connection) && peer.asked() != Some(connection)
    }

    /// Whether this side has a reason to dial.
    pub fn needs_dial(&self, side: usize) -> bool {
        let side_state = &self.sides[side];
        let has_path = |id: QueuePairId| side_state.session.path() == Some(id);
        let reads_lost = (1..=self.queue_pairs)
            .any(|id| side_state.session.reads_queue(id) && !has_path(id) && self.hold(side) != Some(Hold::Awaited));
        let sends_lost = side_state.session.is_sent_by_queue() && side_state.session.path().is_none();
        side_state.connection.is_none() || reads_lost || sends_lost
    }

    pub(super) fn dial(&mut self, side: usize) -> bool {
        let needs = self.needs_dial(side);
        let side_state = &mut self.sides[side];
        if side_state.dial.is_some() || !needs {
            return false;
        }
        side_state.dial = Some(Dial::Proving(side_state.session.next_attempt()));
        side_state.dials += 1;
        true
    }

    pub(super) fn ask(&mut self, side: usize) -> Result<bool, Broken> {
        let Some(Dial::Proving(attempt)) = self.sides[side].dial else {
            return Ok(false);
        };
        self.sides[side].dial = None;
        if let Some(standing) = self.suspend(side, attempt)? {
            self.sides[side].dial = Some(Dial::Asked(attempt));
            self.flight(attempt, side).standing = Some(standing);
        }
        Ok(true)
    }

    pub(super) fn suspend(&mut self, side: usize, attempt: u64) -> Result<Option<crate::Standing>, Broken> {
        let side_state = &mut self.sides[side];
        let suspended = if self.suspects == Some(side) {
            side_state.session.suspend_without_path(attempt)
        } else {
            side_state.session.suspend(attempt)
        };
        if suspended.is_some() != (attempt > side_state.attempt) {
            return Err(Broken::Attempt);
        }
        if suspended.is_some() {
            side_state.attempt = attempt;
            side_state.leave_tcp();
            if side_state.asked().is_some() {
                side_state.dial = None;
            }
        }
        Ok(suspended)
    }

    pub(super) fn notice_dial(&mut self, side: usize) -> bool {
        let Some(attempt) = self.sides[side].asked() else {
            return false;
        };
        let is_dead = self.position(attempt, 0).is_none()
            && self.position(attempt, 1).is_none()
            && self.sides[1 - side].connection != Some(attempt);
        if is_dead {
            self.sides[side].dial = None;
        }
        is_dead
    }

    /// Whether such a standing is under way. The loss of an answer is that of the dial.
    pub fn may_lose_standing(&self, from: usize, connection: u64) -> bool {
        let index = self.position(connection, from);
        from == dialer(connection) && index.is_some_and(|index| self.flights[index].standing.is_some())
    }

    pub(super) fn take_standing(&mut self, from: usize, connection: u64) -> Option<crate::Standing> {
        let index = self.position(connection, from)?;
        self.flights[index].standing?;
        if from == dialer(connection) {
            self.flights.remove(index).standing
        } else {
            self.flights[index].standing.take()
        }
    }

    pub(super) fn deliver_standing(&mut self, from: usize, connection: u64) -> Result<bool, Broken> {
        let Some(theirs) = self.take_standing(from, connection) else {
            return Ok(false);
        };
        let side = 1 - from;
        if from == dialer(connection) {
            let Some(standing) = self.suspend(side, connection)? else {
                return Ok(true);
            };
            self.flight(connection, side).standing = Some(standing);
        } else if self.sides[side].asked() != Some(connection) {
            return Ok(true);
        } else {
            self.sides[side].dial = None;
        }
        match self.sides[side].session.resume(connection, theirs) {
            Ok(keeps_path) => {
                self.sides[side].connection = Some(connection);
                self.after_resume(side, keeps_path)?;
                Ok(true)
            }
            Err(None) => Err(Broken::Attempt),
            Err(Some(violation)) => Err(Broken::Accusation(violation)),
        }
    }

    /// Drops what nothing will ever read.
    pub(super) fn forget_unreadable(&mut self) {
        let sides = &self.sides;
        self.flights.retain(|flight| {
            let reader = &sides[1 - flight.from];
            let is_read = reader.connection == Some(flight.connection) || reader.asked() == Some(flight.connection);
            let is_asked = flight.from == dialer(flight.connection) && flight.standing.is_some();
            (is_read || is_asked) && (flight.standing.is_some() || !flight.bytes.is_empty())
        });
        let queue = &mut self.queue;
        if let Some(pair) = queue.as_mut() {
            for side in 0..2 {
                if pair.holds == [Hold::Gone, Hold::Awaited] || pair.holds == [Hold::Awaited, Hold::Gone] {
                    pair.holds[side] = Hold::Gone;
                }
            }
            if pair.holds == [Hold::Gone; 2] {
                *queue = None;
            }
        }
        for side in &mut self.sides {
            side.session.forget_counts();
        }
    }
}
