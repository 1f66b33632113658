//! Every order of what may happen in small cases.

use std::collections::{HashMap, VecDeque};

use super::side::Known;
use super::world::{Action, Broken, Setup, World};

/// A case: what may happen, and how often each.
pub struct Case {
    pub setup: Setup,
    /// What may happen at any time, as often as it is possible.
    pub free: Vec<Action>,
    /// What may happen, and how often.
    pub bounded: Vec<(Action, u8)>,
    /// Actions in a row, beside those of the fair ends.
    pub depth: usize,
}

impl Case {
    pub fn new(setup: Setup, bounded: &[(Action, u8)]) -> Case {
        let free = [0, 1].iter().flat_map(|&side| {
            [
                Action::Deliver {
                    from: side,
                    bytes: 1000,
                },
                Action::Read { side },
                Action::ReadQueue { side },
                Action::Attempt { side },
                Action::DeliverEnd { from: side },
                Action::Timer { side },
            ]
        });
        // The fair end of each state dials as often as it takes.
        let dials = [0, 1].map(|side| (Action::Dial { side }, 1));
        Case {
            setup,
            free: free.collect(),
            bounded: [bounded, &dials].concat(),
            depth: 10,
        }
    }

    /// Goes through all states, each once, and ends each fairly. Prints their number. An error names the steps that
    /// lead there.
    pub fn explore(&self) -> Result<usize, (Broken, Vec<Action>)> {
        let world = World::new(&self.setup).map_err(|broken| (broken, vec![]))?;
        let counts = vec![0_u8; self.bounded.len()];
        let mut fair = Known::new();
        let mut seen: HashMap<u64, (u64, Action)> = HashMap::new();
        let first = fingerprint(&world, &counts);
        let mut queue = VecDeque::from([(world, counts, 0)]);
        while let Some((world, counts, depth)) = queue.pop_front() {
            let from = fingerprint(&world, &counts);
            let path = |action: Option<Action>| path(&seen, first, from, action);
            if let Err(broken) = world.end_fairly(&self.setup, &mut fair) {
                return Err((broken, path(None)));
            }
            if depth == self.depth {
                continue;
            }
            let mut found = Vec::new();
            let bounded = self.bounded.iter().enumerate();
            let allowed = bounded.filter(|(index, (_, most))| counts[*index] < *most);
            let bounded = allowed.map(|(index, (action, _))| (Some(index), *action));
            for (index, action) in self.free.iter().map(|action| (None, *action)).chain(bounded) {
                let mut next = world.clone();
                match next.step(&self.setup, action) {
                    Ok(false) => {}
                    Ok(true) => {
                        let mut counts = counts.clone();
                        if let Some(index) = index {
                            counts[index] += 1;
                        }
                        found.push((next, counts, action));
                    }
                    Err(broken) => return Err((broken, path(Some(action)))),
                }
            }
            for (next, counts, action) in found {
                let to = fingerprint(&next, &counts);
                if to != first && !seen.contains_key(&to) {
                    seen.insert(to, (from, action));
                    queue.push_back((next, counts, depth + 1));
                }
            }
        }
        Ok(seen.len() + 1)
    }
}

fn fingerprint(world: &World, counts: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (world, counts).hash(&mut hasher);
    hasher.finish()
}

fn path(seen: &HashMap<u64, (u64, Action)>, first: u64, to: u64, last: Option<Action>) -> Vec<Action> {
    let mut actions: Vec<Action> = last.into_iter().collect();
    let mut at = to;
    while at != first {
        let (before, action) = seen[&at];
        actions.push(action);
        at = before;
    }
    actions.reverse();
    actions
}

pub fn explore(case: &Case) {
    match case.explore() {
        Ok(states) => println!("{states} states"),
        Err((broken, actions)) => panic!("{broken:?} behind {actions:#?}"),
    }
}

pub fn small() -> Setup {
    Setup {
        sizes: vec![3],
        socket_bytes: 1000,
        ring_bytes: 16,
        can_be_lost: true,
        is_sealed: false,
        is_detour: false,
        begins_on_queue: false,
        told: None,
    }
}

fn on_queue(can_be_lost: bool) -> Setup {
    Setup {
        begins_on_queue: true,
        can_be_lost,
        ..small()
    }
}

#[test]
fn a_connection_is_lost_with_packets_under_way() {
    explore(&Case::new(
        small(),
        &[
            (Action::Send { side: 0 }, 2),
            (Action::Send { side: 1 }, 1),
            (Action::Reset { side: 0 }, 1),
            (Action::Pass, 2),
        ],
    ));
}

#[test]
fn a_connection_is_lost_with_the_windows_that_the_sides_tell() {
    let setup = Setup {
        told: Some([4 << 20, 8 << 20]),
        ..small()
    };
    explore(&Case::new(
        setup,
        &[
            (Action::Send { side: 0 }, 1),
            (Action::Reset { side: 0 }, 1),
            (Action::Pass, 1),
        ],
    ));
}

#[test]
fn attempts_of_both_sides_meet_and_die() {
    explore(&Case::new(
        small(),
        &[
            (Action::Send { side: 0 }, 1),
            (Action::Reset { side: 0 }, 1),
            (Action::Reset { side: 1 }, 1),
            (Action::KillAttempt { side: 0 }, 1),
            (Action::KillAttempt { side: 1 }, 1),
            (Action::Pass, 1),
        ],
    ));
}

#[test]
fn a_silent_connection_is_suspected_and_replaced() {
    explore(&Case::new(
        small(),
        &[
            (Action::Send { side: 0 }, 2),
            (Action::Send { side: 1 }, 1),
            (Action::Cut, 1),
            (Action::Heal, 1),
            (Action::Pass, 3),
        ],
    ));
}

#[test]
fn a_queue_pair_fails_while_both_sides_write() {
    explore(&Case::new(
        on_queue(true),
        &[
            (Action::Send { side: 0 }, 3),
            (Action::Send { side: 1 }, 1),
            (Action::FailQueue, 1),
            (Action::Pass, 1),
        ],
    ));
}

#[test]
fn a_full_queue_pair_falls_silent() {
    explore(&Case::new(
        on_queue(true),
        &[
            (Action::Send { side: 0 }, 4),
            (Action::CutQueue, 1),
            (Action::Pass, 3),
            (Action::Tick { side: 1 }, 1),
        ],
    ));
}

#[test]
fn both_sides_move_and_one_gives_up() {
    explore(&Case::new(
        small(),
        &[
            (Action::Send { side: 0 }, 1),
            (Action::Settle, 1),
            (Action::AddQueue { side: 0 }, 1),
            (Action::AddQueue { side: 1 }, 1),
            (Action::Move { side: 0 }, 1),
            (Action::Move { side: 1 }, 1),
            (Action::DropQueue { side: 1 }, 1),
        ],
    ));
}

#[test]
fn a_connection_is_lost_during_a_move() {
    for can_be_lost in [false, true] {
        explore(&Case::new(
            Setup { can_be_lost, ..small() },
            &[
                (Action::Send { side: 0 }, 1),
                (Action::Settle, 1),
                (Action::AddQueue { side: 0 }, 1),
                (Action::AddQueue { side: 1 }, 1),
                (Action::Move { side: 0 }, 1),
                (Action::Move { side: 1 }, 1),
                (Action::Reset { side: 0 }, 1),
            ],
        ));
    }
}

#[test]
fn both_sides_return_to_the_connection() {
    for can_be_lost in [false, true] {
        explore(&Case::new(
            on_queue(can_be_lost),
            &[
                (Action::Send { side: 0 }, 1),
                (Action::Send { side: 1 }, 1),
                (Action::Tick { side: 0 }, 1),
                (Action::Tick { side: 1 }, 1),
                (Action::Return { side: 0 }, 1),
                (Action::Reset { side: 1 }, 1),
            ],
        ));
    }
}

#[test]
fn a_node_dies_in_every_state() {
    for begins_on_queue in [false, true] {
        for can_be_lost in [false, true] {
            explore(&Case::new(
                Setup {
                    begins_on_queue,
                    can_be_lost,
                    ..small()
                },
                &[
                    (Action::Send { side: 0 }, 1),
                    (Action::Reset { side: 0 }, 1),
                    (Action::Kill { side: 1 }, 1),
                    (Action::Pass, 1),
                ],
            ));
        }
    }
}

#[test]
fn an_end_in_order_comes_behind_all_packets() {
    for begins_on_queue in [false, true] {
        explore(&Case::new(
            Setup {
                begins_on_queue,
                can_be_lost: false,
                ..small()
            },
            &[
                (Action::Send { side: 0 }, 2),
                (Action::Send { side: 1 }, 1),
                (Action::Close { side: 0 }, 1),
            ],
        ));
    }
}

#[test]
fn a_machine_is_restored_from_a_snapshot() {
    for is_sealed in [false, true] {
        explore(&Case::new(
            Setup { is_sealed, ..small() },
            &[
                (Action::Send { side: 0 }, 2),
                (Action::Send { side: 1 }, 1),
                (Action::Save { side: 0 }, 1),
                (Action::Restore { side: 0 }, 1),
                (Action::Pass, 1),
            ],
        ));
    }
}

#[test]
fn a_node_stands_still_and_runs_on() {
    for (begins_on_queue, is_sealed) in [(false, false), (false, true), (true, false)] {
        explore(&Case::new(
            Setup {
                begins_on_queue,
                is_sealed,
                ..small()
            },
            &[
                (Action::Send { side: 0 }, 2),
                (Action::Send { side: 1 }, 1),
                (Action::Stop { side: 0 }, 1),
                (Action::Continue { side: 0 }, 1),
                (Action::Pass, 2),
            ],
        ));
    }
}

#[test]
fn a_side_that_stood_still_gives_up_the_queue_pair_before_its_peer() {
    explore(&Case::new(
        on_queue(true),
        &[
            (Action::Send { side: 0 }, 1),
            (Action::Stop { side: 0 }, 1),
            (Action::Continue { side: 0 }, 1),
            (Action::Reset { side: 1 }, 1),
        ],
    ));
}

#[test]
fn a_detour_swallows_bytes() {
    explore(&Case::new(
        Setup {
            is_detour: true,
            ..small()
        },
        &[
            (Action::Send { side: 0 }, 2),
            (Action::Tick { side: 1 }, 1),
            (Action::Cut, 1),
            (Action::Heal, 1),
            (Action::Pass, 3),
        ],
    ));
}

#[test]
fn a_kernel_takes_a_few_bytes_at_a_time() {
    let mut case = Case::new(
        Setup {
            socket_bytes: 10,
            sizes: vec![30, 3],
            ..small()
        },
        &[(Action::Send { side: 0 }, 2), (Action::Reset { side: 0 }, 1)],
    );
    case.free.push(Action::Deliver { from: 0, bytes: 7 });
    explore(&case);
}
