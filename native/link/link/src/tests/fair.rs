//! A fair end: from a state on nothing more is lost, and everybody does what there is to do.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use super::side::{Known, Side};
use super::world::{Action, Broken, Setup, World};

/// Turns of a fair end: more means that nothing moves.
const TURNS: usize = 600;
/// Time between two ticks: a quarter of `net_ticktime`.
const TICK: Duration = Duration::from_secs(15);
const ALL: usize = usize::MAX;

impl World {
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// All arrives, from here on. `known`: states from which a fair end has been seen.
    pub fn end_fairly(&self, setup: &Setup, known: &mut Known) -> Result<(), Broken> {
        let mut world = self.clone();
        for side in 0..2 {
            world.step(setup, Action::Continue { side })?;
        }
        world.step(setup, Action::Heal)?;
        for side in 0..2 {
            world.step(setup, Action::Send { side })?;
        }
        let mut ticked_at = world.now;
        for _ in 0..TURNS {
            if !known.insert(world.fingerprint()) || world.is_done() {
                return Ok(());
            }
            let mut moves = false;
            for side in 0..2 {
                moves |= world.fair_turn(setup, side)?;
            }
            if !moves && !world.step(setup, Action::Pass)? {
                if world.sides.iter().any(Side::waits_for_nothing) {
                    return Err(Broken::NoTimer);
                }
                world.now += TICK;
            }
            if world.now >= ticked_at + TICK {
                ticked_at = world.now;
                for side in 0..2 {
                    world.step(setup, Action::Tick { side })?;
                }
            }
        }
        let is_alive = |side: usize| world.sides[side].runs();
        Err(if is_alive(0) != is_alive(1) {
            Broken::Death
        } else {
            Broken::Stuck
        })
    }

    fn fair_turn(&mut self, setup: &Setup, side: usize) -> Result<bool, Broken> {
        let mut moves = false;
        for action in [
            Action::Deliver { from: side, bytes: ALL },
            Action::DeliverEnd { from: side },
            Action::Read { side },
            Action::AddQueue { side },
            Action::ReadQueue { side },
            Action::Timer { side },
            Action::Dial { side },
            Action::Attempt { side },
        ] {
            moves |= self.step(setup, action)?;
        }
        Ok(moves)
    }

    /// Both have ended; or one path carries both, and all has arrived.
    fn is_done(&self) -> bool {
        let [first, second] = &self.sides;
        if !first.runs() && !second.runs() {
            return true;
        }
        first.runs()
            && second.runs()
            && first.tcp.is_some()
            && first.tcp == second.tcp
            && first.dial.is_none()
            && second.dial.is_none()
            && [first, second].iter().all(|side| side.is_at_rest())
            && first.arrived == second.sent
            && second.arrived == first.sent
    }
}
