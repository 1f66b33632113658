//! The callers' choices as a model for stateright, and the promises to check in every state.

use stateright::{Model, Property};

use super::world::{Action, Broken, Setup, World};

/// The choices of the callers.
#[derive(Debug, Clone)]
pub struct Exploration {
    pub setup: Setup,
    /// Sends of 1 to this many bytes.
    pub send_max: u32,
    /// True: the sender may write into the ring though it has an advertisement.
    pub voluntary: bool,
    /// Kinds of receives that are posted.
    pub fills: Vec<bool>,
    pub withdraw: bool,
    pub finish: bool,
    /// True: a side may close the connection at any time.
    pub close: bool,
    pub ticks: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    world: World,
    broken: Option<Broken>,
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
        if node.broken.is_some() {
            return;
        }
        for side in 0..2 {
            self.side_actions(&node.world, side, actions);
        }
    }

    fn next_state(&self, node: &Node, action: Action) -> Option<Node> {
        let mut world = node.world.clone();
        let done = world.step(&self.setup, action);
        world.forget_counters();
        match done {
            Ok(true) => Some(Node { world, broken: None }),
            Ok(false) => None,
            Err(broken) => Some(Node {
                world,
                broken: Some(broken),
            }),
        }
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("each byte once and in order", |_, node: &Node| {
                node.broken != Some(Broken::Order)
            }),
            Property::always("no direct transfer overtakes ring bytes", |_, node: &Node| {
                node.broken != Some(Broken::Overtaken)
            }),
            Property::always("an advertisement meets its true byte", |_, node: &Node| {
                !matches!(node.broken, Some(Broken::NotTheirs | Broken::WrongReceive))
            }),
            Property::always("the ring never overflows", |_, node: &Node| {
                node.broken != Some(Broken::RingOverflow)
            }),
            Property::always("the receive queue never runs dry", |_, node: &Node| {
                node.broken != Some(Broken::ReceiveQueueDry)
            }),
            Property::always("honest peers never accuse each other", |_, node: &Node| {
                !matches!(node.broken, Some(Broken::Accusation(_)))
            }),
            Property::always("credits do not go to and fro for ever", |_, node: &Node| {
                node.broken != Some(Broken::CreditsForEver)
            }),
            Property::always("a mark gives all back", |_, node: &Node| {
                node.broken != Some(Broken::NotGivenUp)
            }),
            Property::always("a side that closes says so", |_, node: &Node| {
                node.broken != Some(Broken::FinishLost)
            }),
            Property::always("no deadlock", |model: &Exploration, node: &Node| {
                node.broken.is_some() || !node.world.is_stuck(&model.setup)
            }),
            Property::always("what is advertised in peace can be used", |_, node: &Node| {
                node.broken.is_some() || !node.world.wastes_a_buffer()
            }),
            Property::sometimes("all is read in the end", |model: &Exploration, node: &Node| {
                node.broken.is_none() && node.world.is_quiet() && node.world.is_all_read(&model.setup)
            }),
        ]
    }
}

impl Exploration {
    fn side_actions(&self, world: &World, side: usize, actions: &mut Vec<Action>) {
        let state = &world.sides[side];
        if !world.notices[side].is_empty() {
            actions.push(Action::DeliverNotice { from: side });
        }
        if !world.controls[side].is_empty() {
            actions.push(Action::DeliverControl { from: side });
        }
        if state.closed {
            return;
        }
        if self.close {
            actions.push(Action::Close { side });
        }
        let left = (self.setup.bytes[side] - state.sent).min(u64::from(self.send_max)) as u32;
        for bytes in 1..=left {
            actions.push(Action::Send {
                side,
                indirect: bytes,
                direct: bytes,
            });
            if self.voluntary {
                actions.push(Action::Send {
                    side,
                    indirect: bytes,
                    direct: 0,
                });
            }
        }
        if state.stream.has_control() {
            actions.push(Action::PollControl { side });
        }
        actions.extend((1..=state.copyable()).map(|bytes| Action::Copy { side, bytes }));
        if state.posted.len() < self.setup.buffers[side].len() {
            actions.extend(self.fills.iter().map(|fill| Action::Post { side, fill: *fill }));
        }
        if self.setup.patient {
            actions.push(Action::Pass { side });
        }
        if self.withdraw && !state.posted.is_empty() {
            actions.push(Action::Withdraw { side });
        }
        if self.finish && left == 0 && !state.finished && self.setup.bytes[side] > 0 {
            actions.push(Action::Finish { side });
        }
        if state.recalls < self.setup.recalls[side] {
            actions.push(Action::Recall { side });
        }
        if state.replaced < self.setup.rings[side].len() {
            actions.push(Action::ReplaceRing { side });
        }
        if state.stream.owes_mark() {
            actions.push(Action::PollMark { side });
        }
        if state.ticks < self.ticks {
            actions.push(Action::Tick { side });
        }
    }
}
