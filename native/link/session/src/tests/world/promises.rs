//! The promises of a world: checked after each step, and by a fair end, in which all arrives.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use super::super::tcp::Portion;
use super::{Action, Broken, Setup, World};
use crate::WINDOW_BYTES_FIRST;

/// Turns of a fair end: more means that nothing moves.
const FAIR_TURNS: usize = 250;

impl World {
    pub(super) fn check(&self, setup: &Setup) -> Result<(), Broken> {
        if self.is_over() {
            return Ok(());
        }
        for side in 0..2 {
            let (ours, peer) = (&self.sides[side], &self.sides[1 - side]);
            let appended = setup.stream_bytes(side, ours.appended);
            let received = usize::try_from(peer.session.received().0).expect("few bytes");
            if ours.session.logged_bytes() > appended || ours.session.unsent_bytes() > appended || received > appended {
                return Err(Broken::Bytes);
            }
            let safe = match &self.queue {
                Some(queue) if !setup.can_be_lost => queue.unread[side].len(),
                _ => 0,
            };
            if appended - ours.session.logged_bytes() > received + safe {
                return Err(Broken::Released);
            }
            let taken = setup.told.map_or(WINDOW_BYTES_FIRST, |told| told[1 - side]);
            if ours.session.window_bytes() > taken {
                return Err(Broken::Window);
            }
        }
        Ok(())
    }

    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// Everybody does what there is to do, in turn, until all has arrived. `is_known` answers whether an earlier fair
    /// end has come through this state; the states of this one.
    pub fn end_fairly(&self, setup: &Setup, is_known: impl Fn(u64) -> bool) -> Result<Vec<u64>, Broken> {
        let mut world = self.clone();
        let mut states = Vec::new();
        for _ in 0..FAIR_TURNS {
            let fingerprint = world.fingerprint();
            if is_known(fingerprint) {
                return Ok(states);
            }
            states.push(fingerprint);
            if world.is_over() {
                return Ok(states);
            }
            if world.is_done(setup) {
                world.check_idle(setup)?;
                return Ok(states);
            }
            for side in 0..2 {
                world.fair_turn(setup, side)?;
            }
        }
        Err(Broken::Stuck)
    }

    pub(super) fn fair_turn(&mut self, setup: &Setup, side: usize) -> Result<(), Broken> {
        use Action::*;
        let portion = Portion::All;
        while self.step(setup, Append { side })? {}
        for action in [
            NoticeTcp { side },
            NoticeQueue { side },
            NoticeDial { side },
            AddPath { side },
            Dial { side },
            Ask { side },
        ] {
            self.step(setup, action)?;
        }
        self.fair_standings(setup)?;
        while self.step(setup, Transmit { side, portion })? {}
        let from = 1 - side;
        while self.step(setup, Deliver { from, portion })? && !self.is_over() {}
        while self.step(setup, Queue { side, portion })? {}
        while self.step(setup, ReadQueue { side })? && !self.is_over() {}
        self.step(setup, HearRead { side })?;
        Ok(())
    }

    pub(super) fn fair_standings(&mut self, setup: &Setup) -> Result<(), Broken> {
        while let Some(flight) = self.flights.iter().find(|flight| flight.standing.is_some()) {
            let action = Action::DeliverStanding {
                from: flight.from,
                connection: flight.connection,
            };
            self.step(setup, action)?;
        }
        Ok(())
    }

    pub(super) fn is_done(&self, setup: &Setup) -> bool {
        let [first, second] = &self.sides;
        first.connection == second.connection
            && self.flights.is_empty()
            && (0..2).all(|side| {
                let (ours, peer) = (&self.sides[side], &self.sides[1 - side]);
                ours.connection.is_some()
                    && !self.needs_dial(side)
                    && !ours.has_ended
                    && ours.appended == setup.packets[side].len()
                    && peer.arrived == ours.appended
                    && !ours.session.clone().poll_transmit()
            })
    }

    /// All has arrived: a tick of each side brings the last acknowledgement, and the logs are empty.
    pub(super) fn check_idle(mut self, setup: &Setup) -> Result<(), Broken> {
        if self.sides[0].attempt != self.sides[1].attempt {
            return Err(Broken::Attempt);
        }
        for side in [0, 1] {
            self.step(setup, Action::Tick { side })?;
            self.fair_turn(setup, side)?;
            self.fair_turn(setup, 1 - side)?;
        }
        for side in &mut self.sides {
            side.session.shrink();
            if side.session.logged_bytes() > 0 || side.session.allocated_bytes() > 0 {
                return Err(Broken::LogKept);
            }
            if side.session.unsent_bytes() > 0 {
                return Err(Broken::Bytes);
            }
        }
        Ok(())
    }
}
