//! Conversations of two parties, over shm. One thread drives both ends, in an order that a seed picks.

use inet_rdma_assembly::Framing;
use inet_rdma_fabric::Fabric;
use inet_rdma_fabric_fault::{Delay, FaultFabric, FaultPlan};
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_records::{Cipher, RECORD_BYTES_MIN, RING_BYTES_MIN};
use inet_rdma_stream::{Limits, Mode};
use proptest::prelude::*;

use crate::message::Messages;
use crate::pair::{self, Keys, Side};
use crate::world::{self, Habits, Party};

/// The messages of two parties, and their settings.
#[derive(Debug, Clone)]
struct Conversation {
    sides: [Side; 2],
    habits: [Habits; 2],
    sizes: [Vec<usize>; 2],
    seed: u64,
}

impl Conversation {
    fn hold(&self, fabric: &dyn Fabric) {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let (left, right) = pair::connect(fabric, &self.sides[0], &self.sides[1]);
        let said = [
            Messages::new(self.seed, &self.sizes[0]),
            Messages::new(!self.seed, &self.sizes[1]),
        ];
        let expected = [heard(&self.sides[1], &said[0]), heard(&self.sides[0], &said[1])];
        let mut parties = [
            Party::new(&left, &said[0], &expected[1], self.habits[0]),
            Party::new(&right, &said[1], &expected[0], self.habits[1]),
        ];
        world::run(&mut parties, &mut random);
    }
}

/// The messages that a party with these settings receives.
fn heard(side: &Side, messages: &Messages) -> Vec<Vec<u8>> {
    if side.framing == Framing::Raw {
        vec![messages.bodies().concat()]
    } else {
        messages.bodies().to_vec()
    }
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![
        8 => 0..200usize,
        4 => 0..3_000usize,
        2 => 10_000..80_000usize,
        1 => 0..200_000usize,
    ];
    prop::collection::vec(size, 0..60)
}

fn side(mode: Mode, framing: Framing) -> impl Strategy<Value = Side> {
    let least = if mode == Mode::DirectOnly { 1 } else { 0 };
    (
        prop_oneof![Just(4_096), 1..300u32, Just(262_144)],
        prop_oneof![
            Just(Limits::RECEIVE_SLOTS_MIN),
            Limits::RECEIVE_SLOTS_MIN..20,
            Just(256)
        ],
        prop_oneof![least..4u16, Just(32)],
        prop_oneof![Just(69_632u32), 4_096..100_000u32],
        prop_oneof![Just(16_384usize), 1..20_000usize],
    )
        .prop_map(
            move |(ring_bytes, receive_slots, landing_buffers, landing_bytes, direct_bytes)| Side {
                mode,
                framing,
                ring_bytes,
                receive_slots,
                landing_buffers,
                landing_bytes,
                direct_bytes,
                ..Side::default()
            },
        )
}

fn habits() -> impl Strategy<Value = Habits> {
    (any::<bool>(), any::<bool>(), 0..5usize, 0..6u32).prop_map(|(spin, self_polling, hold, ticks)| Habits {
        spin,
        self_polling,
        hold,
        ticks,
    })
}

/// A conversation in records, over rings that are large enough for records.
fn sealed() -> impl Strategy<Value = Conversation> {
    let cipher = prop_oneof![3 => Just(Cipher::Aes256Gcm), 1 => Just(Cipher::ChaCha20Poly1305)];
    (conversation(Mode::Dynamic), cipher).prop_map(|(mut talk, cipher)| {
        for (side, keys) in talk.sides.iter_mut().zip(Keys::pair(cipher)) {
            side.keys = Some(keys);
            side.ring_bytes = side.ring_bytes.max(RING_BYTES_MIN);
        }
        talk
    })
}

fn conversation(mode: Mode) -> impl Strategy<Value = Conversation> {
    prop_oneof![3 => Just(Framing::Length4), 1 => Just(Framing::Raw)].prop_flat_map(move |framing| {
        (
            [side(mode, framing), side(mode, framing)],
            [habits(), habits()],
            [sizes(), sizes()],
            any::<u64>(),
        )
            .prop_map(|(sides, habits, sizes, seed)| Conversation {
                sides,
                habits,
                sizes,
                seed,
            })
    })
}

fn plan() -> impl Strategy<Value = FaultPlan> {
    (
        any::<u64>(),
        0..900u16,
        0..900u16,
        1..20u32,
        prop_oneof![Just(None), (1..5_000usize).prop_map(Some)],
    )
        .prop_map(
            |(seed, delayed_notices, delayed_controls, polls, write_room_max)| FaultPlan {
                seed,
                delayed_notices,
                delayed_controls,
                delay: Delay::Polls(1..=polls),
                write_room_max,
                ..FaultPlan::default()
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn everything_arrives_and_no_side_waits_for_ever(talk in conversation(Mode::Dynamic)) {
        talk.hold(&ShmFabric);
    }

    #[test]
    fn everything_arrives_directly_only(talk in conversation(Mode::DirectOnly)) {
        talk.hold(&ShmFabric);
    }

    #[test]
    fn everything_arrives_indirectly_only(talk in conversation(Mode::IndirectOnly)) {
        talk.hold(&ShmFabric);
    }

    #[test]
    fn everything_arrives_sealed(talk in sealed()) {
        talk.hold(&ShmFabric);
    }

    #[test]
    fn everything_arrives_sealed_however_late_its_parts_do(talk in sealed(), plan in plan()) {
        // A fabric that gives room gives at least that of a record.
        let write_room_max = plan.write_room_max.map(|bytes| bytes.max(RECORD_BYTES_MIN));
        talk.hold(&FaultFabric::new(ShmFabric, FaultPlan { write_room_max, ..plan }));
    }

    #[test]
    fn everything_arrives_however_late_its_parts_do(talk in conversation(Mode::Dynamic), plan in plan()) {
        talk.hold(&FaultFabric::new(ShmFabric, plan));
    }
}
