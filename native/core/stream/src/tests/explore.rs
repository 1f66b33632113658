//! Explores every interleaving of small worlds with stateright, and checks that it finds intended defects.

use stateright::{Checker, HasDiscoveries, Model};

use super::exploration::Exploration;
use super::world::Setup;
use crate::{Limits, Mode, Seq};

fn limits(ring_bytes: u32, adverts: u16) -> Limits {
    Limits {
        ring_bytes,
        receive_slots: Limits::RECEIVE_SLOTS_MIN,
        adverts,
    }
}

/// One side sends `bytes` bytes, the other has `buffers`.
fn one_way(mode: Mode, ring_bytes: u32, adverts: u16, bytes: u64, buffers: &[u32]) -> Exploration {
    Exploration {
        setup: Setup::new(
            mode,
            [limits(ring_bytes, adverts); 2],
            [bytes, 0],
            [vec![], buffers.to_vec()],
            Seq((1 << 32) - 2),
        ),
        send_max: 2,
        voluntary: true,
        fills: vec![false],
        withdraw: true,
        finish: true,
        close: false,
        ticks: 0,
    }
}

fn patient(mut exploration: Exploration) -> Exploration {
    exploration.setup.patient = true;
    exploration
}

/// Both sides send.
fn both_ways(mut exploration: Exploration, bytes: [u64; 2]) -> Exploration {
    exploration.setup.bytes = bytes;
    exploration
}

/// With as few choices as possible.
fn narrow(exploration: Exploration) -> Exploration {
    Exploration {
        voluntary: false,
        withdraw: false,
        finish: false,
        send_max: 1,
        ..exploration
    }
}

fn explore(exploration: Exploration) {
    let checker = exploration.checker().threads(2).spawn_bfs().join();
    println!(
        "{} states, {} of them unique",
        checker.state_count(),
        checker.unique_state_count()
    );
    checker.assert_properties();
}

#[test]
fn one_buffer() {
    explore(one_way(Mode::Dynamic, 2, 1, 4, &[2]));
}

#[test]
fn two_advertisements_at_a_time() {
    explore(one_way(Mode::Dynamic, 2, 2, 3, &[2, 1]));
}

#[test]
fn a_ring_of_one_byte() {
    explore(one_way(Mode::Dynamic, 1, 2, 3, &[1, 1]));
}

#[test]
fn a_ring_of_three_bytes() {
    explore(Exploration {
        voluntary: false,
        send_max: 3,
        ..one_way(Mode::Dynamic, 3, 1, 4, &[2])
    });
}

#[test]
fn a_ring_of_four_bytes() {
    explore(one_way(Mode::Dynamic, 4, 1, 4, &[1]));
}

#[test]
fn buffers_that_must_be_filled() {
    let dynamic = one_way(Mode::Dynamic, 1, 2, 3, &[2, 1]);
    explore(Exploration {
        fills: vec![true],
        voluntary: false,
        ..dynamic
    });
}

#[test]
fn a_buffer_that_must_be_filled_beside_voluntary_transfers() {
    explore(Exploration {
        fills: vec![true],
        ..one_way(Mode::Dynamic, 2, 1, 4, &[3])
    });
}

#[test]
fn buffers_of_both_sorts() {
    explore(Exploration {
        fills: vec![true, false],
        ..one_way(Mode::Dynamic, 2, 1, 3, &[2])
    });
}

#[test]
fn a_receiver_that_never_withdraws() {
    explore(Exploration {
        withdraw: false,
        ..one_way(Mode::Dynamic, 2, 2, 3, &[1, 1])
    });
}

#[test]
fn a_sender_that_waits_for_one_buffer() {
    explore(patient(one_way(Mode::Dynamic, 2, 1, 4, &[2])));
}

#[test]
fn a_sender_that_waits_for_two_advertisements() {
    explore(patient(one_way(Mode::Dynamic, 1, 2, 4, &[1, 1])));
}

#[test]
fn a_sender_that_waits_for_buffers_of_both_sorts() {
    explore(Exploration {
        fills: vec![true, false],
        ..patient(one_way(Mode::Dynamic, 2, 1, 3, &[2]))
    });
}

#[test]
fn a_sender_that_waits_for_a_receiver_that_never_withdraws() {
    explore(Exploration {
        fills: vec![true, false],
        withdraw: false,
        ..patient(one_way(Mode::Dynamic, 1, 2, 3, &[2, 1]))
    });
}

/// The ring is full with each byte. A pass is sent while the ring is full, and later bytes still make an answer due.
#[test]
fn a_sender_that_waits_for_a_receiver_that_passes_before_it_reads() {
    let mut early = patient(one_way(Mode::Dynamic, 1, 1, 4, &[1]));
    early.setup.passes_early = true;
    explore(early);
}

#[test]
fn senders_that_wait_in_both_directions() {
    let mut both = both_ways(patient(one_way(Mode::Dynamic, 1, 1, 2, &[1])), [2, 1]);
    both.setup.buffers = [vec![1], vec![1]];
    explore(narrow(both));
}

#[test]
fn direct_transfers_only() {
    explore(Exploration {
        fills: vec![true, false],
        ..one_way(Mode::DirectOnly, 1, 2, 4, &[2, 1])
    });
}

#[test]
fn indirect_transfers_only() {
    explore(one_way(Mode::IndirectOnly, 3, 1, 6, &[2]));
}

#[test]
fn both_directions_share_the_credits() {
    explore(Exploration {
        voluntary: false,
        withdraw: false,
        ..both_ways(one_way(Mode::Dynamic, 1, 1, 2, &[1]), [2, 1])
    });
}

#[test]
fn both_directions_indirect_only() {
    explore(Exploration {
        send_max: 1,
        finish: false,
        ..both_ways(one_way(Mode::IndirectOnly, 2, 1, 4, &[]), [4, 3])
    });
}

#[test]
fn sides_that_allow_each_other_different_things() {
    let mut unequal = one_way(Mode::Dynamic, 2, 1, 3, &[1, 2]);
    unequal.setup.limits = [
        Limits {
            ring_bytes: 1,
            receive_slots: Limits::RECEIVE_SLOTS_MIN + 1,
            adverts: 2,
        },
        Limits {
            ring_bytes: 3,
            receive_slots: Limits::RECEIVE_SLOTS_MIN,
            adverts: 1,
        },
    ];
    explore(Exploration {
        finish: false,
        voluntary: false,
        ..unequal
    });
}

#[test]
fn both_directions_within_different_limits() {
    let mut unequal = both_ways(patient(one_way(Mode::Dynamic, 1, 1, 2, &[1])), [2, 1]);
    unequal.setup.buffers = [vec![2], vec![1]];
    unequal.setup.limits = [
        Limits {
            ring_bytes: 2,
            receive_slots: Limits::RECEIVE_SLOTS_MIN + 2,
            adverts: 1,
        },
        Limits {
            ring_bytes: 1,
            receive_slots: Limits::RECEIVE_SLOTS_MIN,
            adverts: 2,
        },
    ];
    explore(narrow(unequal));
}

#[test]
fn keepalives_on_top() {
    let indirect = one_way(Mode::IndirectOnly, 2, 1, 2, &[]);
    explore(Exploration {
        ticks: 2,
        send_max: 1,
        finish: false,
        ..indirect
    });
}

#[test]
fn a_side_that_closes_while_both_send() {
    explore(Exploration {
        send_max: 1,
        finish: false,
        close: true,
        ..both_ways(one_way(Mode::IndirectOnly, 2, 1, 4, &[]), [4, 3])
    });
}

#[test]
fn a_side_that_closes_while_it_advertises() {
    explore(Exploration {
        voluntary: false,
        close: true,
        ..one_way(Mode::Dynamic, 1, 2, 3, &[1, 1])
    });
}

#[test]
fn a_side_that_closes_whatever_both_have_begun() {
    explore(Exploration {
        close: true,
        ..narrow(both_ways(patient(one_way(Mode::Dynamic, 1, 1, 2, &[1])), [2, 1]))
    });
}

#[test]
fn a_side_that_closes_with_a_keepalive_to_send() {
    explore(Exploration {
        ticks: 2,
        send_max: 1,
        finish: false,
        close: true,
        ..one_way(Mode::IndirectOnly, 2, 1, 2, &[])
    });
}

/// The receiver replaces its ring by rings of these sizes.
fn with_rings(mut exploration: Exploration, rings: &[u32]) -> Exploration {
    exploration.setup.rings[1] = rings.to_vec();
    exploration
}

/// The receiver recalls its advertisements this number of times.
fn with_recalls(mut exploration: Exploration, recalls: u8) -> Exploration {
    exploration.setup.recalls[1] = recalls;
    exploration
}

#[test]
fn a_ring_that_grows() {
    explore(with_rings(one_way(Mode::IndirectOnly, 1, 1, 5, &[]), &[3]));
}

#[test]
fn a_ring_that_shrinks() {
    explore(with_rings(one_way(Mode::IndirectOnly, 3, 1, 5, &[]), &[1]));
}

#[test]
fn a_ring_that_grows_and_shrinks() {
    explore(with_rings(one_way(Mode::IndirectOnly, 1, 1, 5, &[]), &[2, 1]));
}

#[test]
fn a_ring_that_grows_beside_a_buffer() {
    explore(with_rings(one_way(Mode::Dynamic, 1, 1, 3, &[2]), &[2]));
}

#[test]
fn a_ring_that_shrinks_beside_a_sender_that_waits() {
    explore(Exploration {
        voluntary: false,
        send_max: 1,
        withdraw: false,
        ..with_rings(patient(one_way(Mode::Dynamic, 2, 1, 3, &[1])), &[1])
    });
}

#[test]
fn a_buffer_that_is_recalled() {
    explore(with_recalls(one_way(Mode::Dynamic, 1, 1, 3, &[2]), 1));
}

#[test]
fn a_buffer_that_is_recalled_twice() {
    explore(Exploration {
        voluntary: false,
        ..with_recalls(one_way(Mode::Dynamic, 1, 1, 3, &[1]), 2)
    });
}

#[test]
fn buffers_that_are_recalled_from_a_sender_that_waits() {
    explore(Exploration {
        voluntary: false,
        withdraw: false,
        send_max: 1,
        ..with_recalls(patient(one_way(Mode::Dynamic, 1, 2, 3, &[1, 1])), 1)
    });
}

#[test]
fn direct_transfers_only_with_a_recall() {
    explore(with_recalls(one_way(Mode::DirectOnly, 1, 2, 3, &[2, 1]), 1));
}

#[test]
fn a_recall_and_a_new_ring() {
    let recalled = with_recalls(patient(one_way(Mode::Dynamic, 1, 1, 3, &[1])), 1);
    explore(narrow(with_rings(recalled, &[2])));
}

#[test]
fn both_sides_replace_their_rings() {
    let mut both = both_ways(one_way(Mode::IndirectOnly, 1, 1, 2, &[]), [2, 2]);
    both.setup.rings = [vec![2], vec![2]];
    explore(Exploration { finish: false, ..both });
}

#[test]
fn a_side_that_closes_while_its_ring_is_replaced() {
    explore(Exploration {
        close: true,
        ..with_rings(one_way(Mode::Dynamic, 1, 1, 2, &[1]), &[2])
    });
}

/// The promises among `promises` that a broken stream does not keep, each with the shortest path to the violation.
fn broken_promises(exploration: Exploration, promises: &[&'static str]) -> Vec<&'static str> {
    let wanted = HasDiscoveries::AllOf(promises.iter().copied().collect());
    let checker = exploration.checker().finish_when(wanted).spawn_bfs().join();
    let found = checker.discoveries();
    for (promise, path) in &found {
        println!("{promise}: {:?}", path.clone().into_actions());
    }
    promises
        .iter()
        .copied()
        .filter(|promise| found.contains_key(promise))
        .collect()
}

#[test]
fn without_the_phase_jump_an_advertisement_meets_a_wrong_byte() {
    let mut broken = one_way(Mode::Dynamic, 2, 2, 3, &[1, 1]);
    broken.setup.without_phase_jump = true;
    broken.voluntary = false;
    let promises = ["an advertisement meets its true byte", "each byte once and in order"];
    assert_eq!(broken_promises(broken, &promises), promises);
}

#[test]
fn without_the_answer_to_what_came_too_late_a_sender_waits_for_ever() {
    let mut broken = patient(one_way(Mode::Dynamic, 1, 1, 3, &[1]));
    broken.setup.without_late_answer = true;
    assert_eq!(broken_promises(broken, &["no deadlock"]), ["no deadlock"]);
}

#[test]
fn without_a_reserve_the_credits_run_out() {
    let mut broken = both_ways(one_way(Mode::IndirectOnly, 4, 1, 4, &[]), [4, 4]);
    broken.setup.without_reserve = true;
    (broken.send_max, broken.finish) = (1, false);
    assert_eq!(broken_promises(broken, &["no deadlock"]), ["no deadlock"]);
}
