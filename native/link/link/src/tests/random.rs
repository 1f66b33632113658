//! Long lists of what happens, by chance. A failure is made shorter, and its seed is printed.
//!
//! `PROPTEST_CASES=100000 cargo test -p inet_rdma_link random` runs longer; `PROPTEST_RNG_SEED=7` before it repeats the
//! run with that seed. `-- --nocapture` shows the seed and the steps of a run that passes.

use std::cell::Cell;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{RngSeed, TestRunner};

use super::side::Known;
use super::world::{Action, Setup, World};

/// Lists of a run, of 200 steps on average, beside the steps of the fair ends: 40 s of CPU (Xeon, 2 cores).
const CASES: u32 = 3_000;
/// The seed of a run without `PROPTEST_RNG_SEED`: CI repeats one run, and a commit fails by what it changes alone.
const SEED: u64 = 11;

fn any_setup() -> impl Strategy<Value = Setup> {
    let size = prop_oneof![4 => 0usize..60, 1 => 16_380usize..16_400, 1 => 60_000usize..90_000];
    (
        vec(size, 1..4),
        select(vec![20usize, 300, 100_000]),
        select(vec![16usize, 200, 100_000]),
        any::<[bool; 4]>(),
        select(vec![None, Some([64 << 20; 2]), Some([4 << 20, 8 << 20])]),
    )
        .prop_map(
            |(sizes, socket_bytes, ring_bytes, [can_be_lost, is_sealed, is_detour, begins_on_queue], told)| {
                // A fair end has a bound of turns.
                let least = sizes.iter().max().copied().unwrap_or(0) / 20;
                Setup {
                    socket_bytes: socket_bytes.max(least),
                    ring_bytes: ring_bytes.max(least),
                    sizes,
                    can_be_lost,
                    is_sealed,
                    is_detour,
                    begins_on_queue,
                    told,
                }
            },
        )
}

fn of_side(side: usize) -> impl Strategy<Value = Action> {
    use Action::*;
    let from = side;
    prop_oneof![
        8 => select(vec![Send { side }, Read { side }, ReadQueue { side }]),
        8 => select(vec![1usize, 13, 100_000]).prop_map(move |bytes| Deliver { from, bytes }),
        6 => select(vec![Timer { side }, Tick { side }, DeliverEnd { from }, Control { side }]),
        8 => select(vec![Dial { side }, Attempt { side }, Attempt { side }, Attempt { side }]),
        4 => select(vec![AddQueue { side }, Move { side }, Return { side }]),
        2 => select(vec![Reset { side }, DropQueue { side }, KillAttempt { side }, Stop { side }, Continue { side }]),
        1 => select(vec![Save { side }, Restore { side }, Continue { side }]),
    ]
}

fn any_action() -> impl Strategy<Value = Action> {
    use Action::*;
    prop_oneof![
        40 => (0usize..2).prop_flat_map(of_side),
        4 => Just(Pass),
        2 => (1u64..2000).prop_map(|ms| PassMs { ms }),
        2 => select(vec![Cut, Heal, Heal, Settle, Settle, Settle]),
        1 => select(vec![CutQueue, FailQueue]),
    ]
}

/// The end of a node, or none.
fn any_end() -> impl Strategy<Value = Option<Action>> {
    (0usize..2).prop_flat_map(|side| {
        select(vec![
            None,
            None,
            Some(Action::Kill { side }),
            Some(Action::Close { side }),
        ])
    })
}

fn run(setup: &Setup, actions: &[Action], end: Option<Action>) -> Result<(), TestCaseError> {
    let fail = |broken, action| TestCaseError::fail(format!("{broken:?} at {action:?}"));
    let mut world = World::new(setup).map_err(|broken| fail(broken, None))?;
    for &action in actions.iter().chain(&end) {
        world.step(setup, action).map_err(|broken| fail(broken, Some(action)))?;
    }
    world
        .end_fairly(setup, &mut Known::new())
        .map_err(|broken| fail(broken, None))
}

/// The numbers of the environment, else those of CI.
fn config() -> (ProptestConfig, u64) {
    let config = ProptestConfig::default();
    let seed = match config.rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => SEED,
    };
    let cases = match std::env::var_os("PROPTEST_CASES") {
        Some(_) => config.cases,
        None => CASES,
    };
    let config = ProptestConfig {
        cases,
        max_shrink_iters: 20_000,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        ..config
    };
    (config, seed)
}

#[test]
fn all_arrives_once_and_in_order_or_the_link_ends() {
    let (config, seed) = config();
    let steps = Cell::new(0);
    let inputs = (any_setup(), vec(any_action(), 0..400), any_end());
    let result = TestRunner::new(config).run(&inputs, |(setup, actions, end)| {
        steps.set(steps.get() + actions.len());
        run(&setup, &actions, end)
    });
    println!(
        "{} steps and a fair end for each list, PROPTEST_RNG_SEED={seed}",
        steps.get()
    );
    if let Err(error) = result {
        panic!("PROPTEST_RNG_SEED={seed}: {error}");
    }
}
