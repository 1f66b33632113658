//! The callers' choices as a model for stateright, and the promises to check in every state.

use std::collections::HashSet;
use std::sync::Mutex;

use stateright::{Model, Property};

use super::queue_pair::Hold;
use super::side::Dial;
use super::tcp::{Flight, Portion};
use super::world::{Action, Broken, Setup, World};

/// What the callers may do, and how often.
#[derive(Debug)]
pub struct Exploration {
    pub setup: Setup,
    /// Per sender: how much a connection takes, and how much it brings.
    pub transmit: [Vec<Portion>; 2],
    pub deliver: [Vec<Portion>; 2],
    /// How much a queue pair takes.
    pub queue: Vec<Portion>,
    /// Losses of anything.
    pub losses: u8,
    /// Per side.
    pub dials: u8,
    pub ticks: u8,
    pub controls: u8,
    /// Sides that may end the session.
    pub ends: Vec<usize>,
    /// Whether the sides go back to the TCP connection.
    pub returns: bool,
    /// States whose fair end has been seen.
    pub known: Mutex<HashSet<u64>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    pub world: World,
    pub broken: Option<Broken>,
}

/// The property that no state breaks this promise.
macro_rules! never {
    ($what:literal, $broken:pat) => {
        Property::always(concat!("never: ", $what), |_, node: &Node| {
            !matches!(node.broken, Some($broken))
        })
    };
}

impl Model for Exploration {
    type State = Node;
    type Action = Action;

    fn init_states(&self) -> Vec<Node> {
        vec![Node {
            world: World::new(&self.setup),
            broken: None,
        }]
    }

    fn actions(&self, node: &Node, actions: &mut Vec<Action>) {
        if node.broken.is_some() || node.world.is_over() {
            return;
        }
        if node.world.queue.is_none() {
            actions.push(Action::Settle);
        }
        for side in 0..2 {
            self.traffic(&node.world, side, actions);
            self.paths(&node.world, side, actions);
        }
    }

    fn next_state(&self, node: &Node, action: Action) -> Option<Node> {
        let mut world = node.world.clone();
        let done = world.step(&self.setup, action);
        match done {
            Ok(false) => None,
            Ok(true) => {
                let broken = self.end(&world).err();
                Some(Node { world, broken })
            }
            Err(broken) => Some(Node {
                world,
                broken: Some(broken),
            }),
        }
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            never!("a packet twice, changed, or out of order", Broken::Order),
            never!("honest peers accuse each other", Broken::Accusation(_)),
            never!("an attempt wins that is not the greatest", Broken::Attempt),
            never!("the log lets go of what the peer may need", Broken::Released),
            never!("the log keeps what is acknowledged", Broken::LogKept),
            never!("counts of bytes contradict each other", Broken::Bytes),
            never!("the end comes before a packet", Broken::EarlyEnd),
            never!("a queue pair is closed that one side has not left", Broken::EarlyClose),
            never!("an event without a cause", Broken::Event),
            never!("more is sent than the peer takes", Broken::Window),
            never!("a deadlock", Broken::Stuck),
        ]
    }
}

impl Exploration {
    /// From here on nothing is lost: all arrives.
    fn end(&self, world: &World) -> Result<(), Broken> {
        let known = |state| self.known.lock().expect("no panic").contains(&state);
        let states = world.end_fairly(&self.setup, known)?;
        self.known.lock().expect("no panic").extend(states);
        Ok(())
    }

    fn traffic(&self, world: &World, side: usize, actions: &mut Vec<Action>) {
        let ours = &world.sides[side];
        actions.push(Action::Append { side });
        if world.queue.is_some() {
            actions.extend([true, false].map(|whole| Action::Pass { side, whole }));
            actions.extend(self.queue.iter().map(|&portion| Action::Queue { side, portion }));
            actions.push(Action::ReadQueue { side });
            if self.setup.can_be_lost || self.returns {
                actions.push(Action::HearRead { side });
            }
        }
        let (transmit, deliver) = (self.transmit[side].iter(), self.deliver[side].iter());
        actions.extend(transmit.map(|&portion| Action::Transmit { side, portion }));
        actions.extend(deliver.map(|&portion| Action::Deliver { from: side, portion }));
        if ours.ticks < self.ticks {
            actions.push(Action::Tick { side });
        }
        if ours.controls < self.controls {
            actions.push(Action::Control { side });
        }
        if self.ends.contains(&side) {
            actions.push(Action::End { side });
        }
    }

    fn paths(&self, world: &World, side: usize, actions: &mut Vec<Action>) {
        let ours = &world.sides[side];
        if world.queue.is_some() {
            actions.extend([
                Action::AddPath { side },
                Action::Move { side },
                Action::NoticeQueue { side },
            ]);
        }
        if self.returns {
            actions.extend([Action::Return { side }, Action::CloseQueue { side }]);
        }
        actions.extend([
            Action::NoticeTcp { side },
            Action::NoticeDial { side },
            Action::Ask { side },
        ]);
        if ours.dials < self.dials {
            actions.push(Action::Dial { side });
        }
        if world.losses < self.losses {
            if ours.connection.is_some() {
                actions.push(Action::LoseTcp { side });
            }
            if matches!(ours.dial, Some(Dial::Asked(_))) {
                actions.push(Action::LoseDial { side });
            }
            if world.hold(side) == Some(Hold::Had) {
                actions.push(Action::LoseQueue { side });
            }
        }
        let is_asked = |flight: &&Flight| flight.from == side && flight.standing.is_some();
        for flight in world.flights.iter().filter(is_asked) {
            let (from, connection) = (side, flight.connection);
            actions.push(Action::DeliverStanding { from, connection });
            if world.losses < self.losses && world.may_lose_standing(from, connection) {
                actions.push(Action::LoseStanding { from, connection });
            }
        }
    }
}
