//! Lists of what both sides do, with packets of any size, over connections that take and bring any number of bytes.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::tcp::Portion;
use super::world::{Action, MIB, Setup, World};
use crate::LARGE_BYTES;
use crate::frame::DATA_BYTES_MAX;

fn any_packet() -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => 0usize..8,
        4 => 0usize..2000,
        2 => LARGE_BYTES - 3..LARGE_BYTES + 3,
        2 => DATA_BYTES_MAX - 9..DATA_BYTES_MAX + 3,
        1 => 0usize..MIB,
    ]
}

fn any_setup() -> impl Strategy<Value = Setup> {
    let packets = || vec(any_packet(), 0..6);
    let piece = select(vec![1usize, 3, 1000, 40_000, 300_000]);
    // No window is smaller than what the peer receives before it acknowledges.
    let window = select(vec![0, DATA_BYTES_MAX + 1, MIB]);
    ([packets(), packets()], 0u64..4, any::<[bool; 2]>(), piece, window).prop_map(
        |(packets, queue_pairs, [can_be_lost, begins], piece_bytes, window)| Setup {
            packets,
            queue_pairs,
            can_be_lost,
            begins_on_queue: begins && queue_pairs > 0,
            piece_bytes,
            window,
            suspects: None,
            told: None,
        },
    )
}

fn any_action() -> impl Strategy<Value = Action> {
    use Action::*;
    let portion = || select(vec![Portion::Byte, Portion::Part, Portion::Part, Portion::All]);
    let side = 0usize..2;
    let path = select(vec![0usize, 1]).prop_flat_map(|side| {
        select(vec![
            AddPath { side },
            Move { side },
            NoticeQueue { side },
            LoseQueue { side },
            HearRead { side },
            Settle,
        ])
    });
    let connection = select(vec![0usize, 1]).prop_flat_map(|side| {
        select(vec![
            NoticeTcp { side },
            LoseTcp { side },
            Dial { side },
            Dial { side },
            Ask { side },
            Ask { side },
            NoticeDial { side },
            LoseDial { side },
            Tick { side },
            Control { side },
        ])
    });
    let standing = (side.clone(), 0u64..20, 0u8..8).prop_map(|(from, connection, lost)| match lost {
        0 => LoseStanding { from, connection },
        _ => DeliverStanding { from, connection },
    });
    prop_oneof![
        3 => side.clone().prop_map(|side| Append { side }),
        1 => (side.clone(), any::<bool>()).prop_map(|(side, whole)| Pass { side, whole }),
        5 => (side.clone(), portion()).prop_map(|(side, portion)| Transmit { side, portion }),
        5 => (side.clone(), portion()).prop_map(|(from, portion)| Deliver { from, portion }),
        3 => (side.clone(), portion()).prop_map(|(side, portion)| Queue { side, portion }),
        3 => side.prop_map(|side| ReadQueue { side }),
        4 => path,
        4 => connection,
        6 => standing,
    ]
}

fn run(setup: &Setup, actions: Vec<Action>) -> Result<(), TestCaseError> {
    let mut world = World::new(setup);
    for action in actions {
        // Counted in a byte of the world.
        let is_at_an_end = match action {
            Action::Tick { side } => world.sides[side].ticks == u8::MAX,
            Action::Control { side } => world.sides[side].controls == u8::MAX,
            Action::LoseStanding { from, connection } => !world.may_lose_standing(from, connection),
            _ => world.losses == u8::MAX,
        };
        if is_at_an_end {
            continue;
        }
        if let Err(broken) = world.step(setup, action) {
            return Err(TestCaseError::fail(format!("{broken:?} at {action:?}")));
        }
    }
    match world.end_fairly(setup, |_| false) {
        Ok(_) => Ok(()),
        Err(broken) => Err(TestCaseError::fail(format!("{broken:?} at the end"))),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn each_packet_arrives_once_whole_and_in_order(setup in any_setup(), actions in vec(any_action(), 0..200)) {
        run(&setup, actions)?;
    }

    /// Few bytes, so that most of what is done is about paths.
    #[test]
    fn small_packets_arrive_whatever_is_lost(
        packets in [vec(0usize..6, 0..6), vec(0usize..6, 0..6)],
        can_be_lost: bool,
        actions in vec(any_action(), 0..400),
    ) {
        let setup = Setup {
            packets,
            queue_pairs: 4,
            can_be_lost,
            begins_on_queue: false,
            piece_bytes: 3,
            window: MIB,
            suspects: None,
            told: None,
        };
        run(&setup, actions)?;
    }
}

fn any_window_action() -> impl Strategy<Value = Action> {
    use Action::*;
    let side = || 0usize..2;
    let bytes = select(vec![0, 3 * MIB, 5 * MIB, 9 * MIB, 64 * MIB]);
    let connection = side().prop_flat_map(|side| {
        select(vec![
            LoseTcp { side },
            NoticeTcp { side },
            Dial { side },
            Ask { side },
            Ask { side },
            NoticeDial { side },
        ])
    });
    let standing = (side(), 0u64..8).prop_map(|(from, connection)| DeliverStanding { from, connection });
    let portion = || select(vec![Portion::Part, Portion::Part, Portion::All]);
    prop_oneof![
        3 => side().prop_map(|side| Append { side }),
        3 => (side(), bytes).prop_map(|(side, bytes)| SetWindow { side, bytes }),
        6 => (side(), portion()).prop_map(|(side, portion)| Transmit { side, portion }),
        6 => (side(), portion()).prop_map(|(from, portion)| Deliver { from, portion }),
        3 => connection,
        3 => standing,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Windows that grow and shrink at any time, of sides that tell different ones or none. A receiver ends a session
    /// whose peer has more bytes under way than it was told.
    #[test]
    fn packets_arrive_whatever_the_windows_are(
        packets in [vec(0usize..3 * MIB, 1..7), vec(0usize..3 * MIB, 0..4)],
        told in select(vec![None, Some([4 * MIB, 12 * MIB]), Some([64 * MIB, 6 * MIB]), Some([16 * MIB, 16 * MIB])]),
        window in select(vec![0, 4 * MIB, 64 * MIB]),
        actions in vec(any_window_action(), 0..120),
    ) {
        let setup = Setup {
            packets,
            queue_pairs: 0,
            can_be_lost: false,
            begins_on_queue: false,
            piece_bytes: MIB,
            window,
            suspects: None,
            told,
        };
        run(&setup, actions)?;
    }
}

#[test]
fn eight_mebibytes_arrive_through_splits_of_any_size() {
    let setup = Setup {
        packets: [vec![8 * MIB, 0, 8 * MIB - 1], vec![]],
        queue_pairs: 0,
        can_be_lost: false,
        begins_on_queue: false,
        piece_bytes: 77_777,
        window: 0,
        suspects: None,
        told: None,
    };
    let mut world = World::new(&setup);
    let mut random = fastrand::Rng::with_seed(7);
    let from = 0;
    for _ in 0..400 {
        let portions = [Portion::Byte, Portion::Part, Portion::All];
        let (side, portion) = (from, random.choice(portions).expect("one of three"));
        let actions = [
            Action::Append { side },
            Action::Transmit {
                side,
                portion: Portion::Part,
            },
            Action::Deliver { from, portion },
        ];
        for action in actions {
            world.step(&setup, action).expect("a promise kept");
        }
    }
    world.end_fairly(&setup, |_| false).expect("all promises kept");
}
