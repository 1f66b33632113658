//! Random lists of operations on larger worlds: for any calls of the callers, and any splits and delays of messages,
//! the reader gets the writer's bytes, and all of them after a fair end of the run.

use proptest::collection::vec;
use proptest::prelude::*;

use super::world::{Action, Setup, World};
use crate::{Limits, Mode, Seq};

/// Maximum number of steps of a fair end: some for each byte that is left, and a few to close. More steps mean a
/// livelock.
const STEPS_PER_BYTE: u64 = 40;
const STEPS_TO_CLOSE: u64 = 400;

fn any_limits() -> impl Strategy<Value = Limits> {
    let ring = prop_oneof![1u32..9, 1u32..2000];
    let slots = prop_oneof![Limits::RECEIVE_SLOTS_MIN..8, Limits::RECEIVE_SLOTS_MIN..64];
    (ring, slots, 1u16..6).prop_map(|(ring_bytes, receive_slots, adverts)| Limits {
        ring_bytes,
        receive_slots,
        adverts,
    })
}

fn any_mode() -> impl Strategy<Value = Mode> {
    prop_oneof![4 => Just(Mode::Dynamic), 1 => Just(Mode::DirectOnly), 1 => Just(Mode::IndirectOnly)]
}

/// Where the stream starts: at 0, just before the places where narrow arithmetic wraps, and anywhere.
fn any_start() -> impl Strategy<Value = Seq> {
    prop_oneof![
        Just(Seq(0)),
        (0u64..3000).prop_map(|before| Seq((1 << 32) - before)),
        (0u64..3000).prop_map(|before| Seq((1 << 31) - before)),
        (0u64..1 << 62).prop_map(Seq),
    ]
}

fn any_setup() -> impl Strategy<Value = Setup> {
    let limits = [any_limits(), any_limits()];
    let bytes = [0u64..3000, 0u64..3000];
    let buffers = [vec(1u32..600, 1..6), vec(1u32..600, 1..6)];
    let conduct = any::<[bool; 2]>();
    let rings = || vec(prop_oneof![1u32..9, 1u32..2000], 0..4);
    let asks = ([0u8..5, 0u8..5], [rings(), rings()]);
    (any_mode(), limits, bytes, buffers, any_start(), conduct, asks).prop_map(
        |(mode, limits, bytes, buffers, start, [patient, passes_early], (recalls, rings))| Setup {
            patient,
            passes_early,
            recalls,
            rings,
            ..Setup::new(mode, limits, bytes, buffers, start)
        },
    )
}

fn any_action() -> impl Strategy<Value = Action> {
    let size = || prop_oneof![2 => 1u32..8, 2 => 1u32..1000, 1 => Just(u32::MAX)];
    let side = 0usize..2;
    prop_oneof![
        3 => (side.clone(), size(), size())
            .prop_map(|(side, indirect, direct)| Action::Send { side, indirect, direct }),
        1 => (side.clone(), size()).prop_map(|(side, indirect)| Action::Send { side, indirect, direct: 0 }),
        1 => (side.clone(), size()).prop_map(|(side, direct)| Action::Send { side, indirect: 0, direct }),
        4 => side.clone().prop_map(|from| Action::DeliverNotice { from }),
        4 => side.clone().prop_map(|from| Action::DeliverControl { from }),
        4 => side.clone().prop_map(|side| Action::PollControl { side }),
        3 => (side.clone(), any::<bool>()).prop_map(|(side, fill)| Action::Post { side, fill }),
        3 => (side.clone(), size()).prop_map(|(side, bytes)| Action::Copy { side, bytes }),
        1 => side.clone().prop_map(|side| Action::Withdraw { side }),
        1 => side.clone().prop_map(|side| Action::Pass { side }),
        1 => side.clone().prop_map(|side| Action::Recall { side }),
        1 => side.clone().prop_map(|side| Action::ReplaceRing { side }),
        2 => side.clone().prop_map(|side| Action::PollMark { side }),
        1 => side.prop_map(|side| Action::Tick { side }),
    ]
}

/// All parties act in turn until all bytes are read and both sides have seen the end.
fn end_fairly(world: &mut World, setup: &Setup) {
    let left: u64 = (0..2).map(|side| setup.bytes[side] - world.sides[1 - side].read).sum();
    for _ in 0..left * STEPS_PER_BYTE + STEPS_TO_CLOSE {
        if world.sides.iter().all(|side| side.stream.is_end()) {
            assert!(world.is_all_read(setup));
            return;
        }
        for side in 0..2 {
            one_turn(world, setup, side);
        }
    }
    panic!("nothing moves: {world:?}");
}

fn one_turn(world: &mut World, setup: &Setup, side: usize) {
    let bytes = world.sides[side].copyable();
    let (indirect, direct) = (u32::MAX, u32::MAX);
    let posts = (setup.mode == Mode::DirectOnly).then_some(Action::Post { side, fill: false });
    let others = [
        Action::DeliverNotice { from: side },
        Action::DeliverControl { from: side },
        Action::Copy { side, bytes },
        Action::Pass { side },
        Action::Send { side, indirect, direct },
        Action::ReplaceRing { side },
        Action::PollMark { side },
        Action::Finish { side },
        Action::PollControl { side },
    ];
    for action in posts.into_iter().chain(others) {
        world.step(setup, action).expect("a promise kept");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_reader_gets_the_bytes_that_were_written(setup in any_setup(), actions in vec(any_action(), 0..400)) {
        let mut world = World::new(&setup);
        for action in actions {
            // Ticks are counted in a byte of the world; more of them tell nothing new.
            if matches!(action, Action::Tick { side } if world.sides[side].ticks == u8::MAX)
                || matches!(action, Action::Recall { side } if world.sides[side].recalls == setup.recalls[side])
            {
                continue;
            }
            if let Err(broken) = world.step(&setup, action) {
                return Err(TestCaseError::fail(format!("{broken:?} at {action:?} in {world:?}")));
            }
        }
        end_fairly(&mut world, &setup);
    }
}

#[test]
fn more_than_four_gigabytes_pass_through() {
    let limits = Limits {
        ring_bytes: 64,
        receive_slots: 8,
        adverts: 1,
    };
    let (buffers, start) = ([vec![], vec![50]], Seq((1 << 32) - 500));
    let setup = Setup {
        rings: [vec![], vec![16, 128]],
        ..Setup::new(Mode::Dynamic, [limits; 2], [1000, 0], buffers, start)
    };
    let mut world = World::new(&setup);
    end_fairly(&mut world, &setup);
    assert_eq!(world.sides[1].read, 1000);
}
