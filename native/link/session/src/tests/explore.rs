//! Every interleaving of small worlds, by stateright.

use stateright::{Checker, HasDiscoveries, Model};

use super::exploration::Exploration;
use super::tcp::Portion;
use super::world::{MIB, Setup};
use crate::{LARGE_BYTES, WINDOW_BYTES_FIRST};

fn all() -> [Vec<Portion>; 2] {
    [vec![Portion::All], vec![Portion::All]]
}

/// Over TCP alone.
fn over_tcp(packets: [&[usize]; 2]) -> Exploration {
    Exploration {
        setup: Setup {
            packets: packets.map(<[usize]>::to_vec),
            queue_pairs: 0,
            can_be_lost: false,
            begins_on_queue: false,
            piece_bytes: 3,
            window: MIB,
            suspects: None,
            told: None,
        },
        transmit: all(),
        deliver: [vec![Portion::Part], vec![Portion::Part]],
        queue: vec![Portion::All],
        losses: 1,
        dials: 1,
        ticks: 0,
        controls: 0,
        ends: vec![],
        returns: false,
        known: Default::default(),
    }
}

fn with_queue(mut exploration: Exploration, can_be_lost: bool) -> Exploration {
    exploration.setup.queue_pairs = 1;
    exploration.setup.can_be_lost = can_be_lost;
    exploration
}

fn explore(exploration: Exploration) {
    let checker = exploration
        .checker()
        .threads(2)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    println!(
        "{} states, {} of them unique, {} levels",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth()
    );
    for (promise, path) in checker.discoveries() {
        println!("{promise}: {:#?}", path.last_state().broken);
        for action in path.into_actions() {
            println!("  {action:?}");
        }
    }
    assert!(checker.discoveries().is_empty());
}

/// Both sides begin on the queue pair.
fn on_queue(packets: [&[usize]; 2], can_be_lost: bool) -> Exploration {
    let mut exploration = with_queue(over_tcp(packets), can_be_lost);
    exploration.setup.begins_on_queue = true;
    exploration.deliver = all();
    exploration
}

/// One byte at a time, and the connection lost at each of them.
#[test]
fn a_loss_at_every_byte_that_arrives() {
    for from in 0..2 {
        let mut bytes = over_tcp([&[], &[]]);
        bytes.setup.packets[from] = vec![0, 3];
        bytes.deliver = all();
        bytes.deliver[from] = vec![Portion::Byte];
        explore(bytes);
    }
}

#[test]
fn a_loss_at_every_byte_that_is_written() {
    let mut bytes = over_tcp([&[1], &[]]);
    bytes.deliver = all();
    bytes.transmit[0] = vec![Portion::Byte];
    explore(bytes);
}

/// The window of one side is lost, or what it follows.
#[test]
fn a_loss_beside_windows_that_the_sides_tell() {
    let mut told = over_tcp([&[2], &[1]]);
    told.setup.told = Some([WINDOW_BYTES_FIRST, 2 * WINDOW_BYTES_FIRST]);
    told.deliver = all();
    explore(told);
    let mut told = with_queue(over_tcp([&[1], &[]]), true);
    told.setup.told = Some([2 * WINDOW_BYTES_FIRST; 2]);
    told.deliver = all();
    explore(told);
}

#[test]
fn losses_in_both_directions() {
    explore(Exploration {
        losses: 2,
        dials: 2,
        ..over_tcp([&[2], &[]])
    });
}

#[test]
fn many_attempts_of_both_sides() {
    explore(Exploration {
        deliver: all(),
        losses: 3,
        dials: 3,
        ..over_tcp([&[1], &[]])
    });
}

#[test]
fn messages_and_an_end_beside_packets() {
    explore(Exploration {
        deliver: all(),
        controls: 1,
        ends: vec![0],
        ..over_tcp([&[1], &[]])
    });
}

#[test]
fn ticks_beside_packets() {
    explore(Exploration {
        ticks: 1,
        ..over_tcp([&[1], &[]])
    });
}

#[test]
fn a_large_packet_in_pieces() {
    let mut large = over_tcp([&[LARGE_BYTES + 1, 1], &[]]);
    large.setup.piece_bytes = LARGE_BYTES / 2 + 3;
    large.transmit[0] = vec![Portion::Part, Portion::All];
    large.dials = 0;
    explore(large);
}

#[test]
fn a_move_to_a_queue_pair_that_lives_as_long_as_the_peer() {
    explore(Exploration {
        deliver: all(),
        ..with_queue(over_tcp([&[2], &[]]), false)
    });
}

#[test]
fn a_move_to_a_queue_pair_that_may_be_lost() {
    explore(Exploration {
        deliver: all(),
        ..with_queue(over_tcp([&[2], &[]]), true)
    });
}

#[test]
fn a_loss_at_every_part_of_a_move() {
    explore(Exploration {
        deliver: [vec![Portion::Part], vec![Portion::All]],
        ..with_queue(over_tcp([&[0], &[]]), true)
    });
}

#[test]
fn both_sides_move() {
    explore(Exploration {
        deliver: all(),
        ..with_queue(over_tcp([&[0], &[0]]), true)
    });
}

#[test]
fn a_queue_pair_that_is_lost_during_a_resume() {
    explore(Exploration {
        losses: 2,
        dials: 2,
        ..on_queue([&[0, 1], &[]], true)
    });
}

#[test]
fn both_sides_lose_a_queue_pair_that_takes_parts_of_packets() {
    explore(Exploration {
        queue: vec![Portion::Part, Portion::All],
        ..on_queue([&[3, 0], &[0]], true)
    });
}

#[test]
fn shared_memory_carries_in_both_directions_while_the_connection_is_lost() {
    explore(on_queue([&[0], &[1]], false));
}

#[test]
fn shared_memory_carries_while_the_connection_is_lost_again() {
    explore(Exploration {
        losses: 2,
        dials: 2,
        ..on_queue([&[1], &[]], false)
    });
}

#[test]
fn a_suspected_queue_pair_is_given_up_with_the_connection() {
    for side in 0..2 {
        let mut suspected = on_queue([&[0, 1], &[]], true);
        suspected.setup.suspects = Some(side);
        explore(Exploration { dials: 2, ..suspected });
    }
}

#[test]
fn an_end_beside_a_queue_pair() {
    explore(Exploration {
        ends: vec![0, 1],
        ..on_queue([&[0, 1], &[]], true)
    });
}

#[test]
fn another_queue_pair_behind_a_lost_one() {
    let mut another = on_queue([&[0], &[]], true);
    another.setup.queue_pairs = 2;
    explore(another);
}

#[test]
fn both_sides_go_back_to_the_connection() {
    for can_be_lost in [false, true] {
        explore(Exploration {
            losses: 0,
            dials: 0,
            ticks: 1,
            returns: true,
            ..on_queue([&[0], &[]], can_be_lost)
        });
    }
}

#[test]
fn a_loss_while_the_sides_go_back() {
    for can_be_lost in [false, true] {
        explore(Exploration {
            losses: 1,
            ticks: 1,
            returns: true,
            ..on_queue([&[0], &[]], can_be_lost)
        });
    }
}

#[test]
fn another_queue_pair_behind_a_return() {
    let mut another = on_queue([&[0, 1], &[]], false);
    another.setup.queue_pairs = 2;
    explore(Exploration {
        losses: 0,
        dials: 0,
        ticks: 1,
        returns: true,
        ..another
    });
}
