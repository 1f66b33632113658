//! The contract of fabrics: tests that are written once and run against each fabric.

#[path = "contract/events.rs"]
mod events;
#[path = "contract/life.rs"]
mod life;
#[path = "contract/processes.rs"]
mod processes;
#[path = "../../../core/fabric/tests/support/mod.rs"]
mod support;
#[path = "contract/tokens.rs"]
mod tokens;
#[path = "contract/transfers.rs"]
mod transfers;
#[path = "contract/windows.rs"]
mod windows;

use std::sync::Arc;

use inet_rdma_engine::VerbsFabric;
use inet_rdma_fabric::{Fabric, FabricName};
use inet_rdma_fabric_fault::{Exposing, FaultFabric, FaultPlan};
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_fabric_tcp::TcpFabric;

/// One test per behaviour, in a module per fabric.
macro_rules! contract {
    ($name:ident, $fabric:expr) => {
        mod $name {
            use super::*;

            contract!(@tests $fabric; transfers:
                each_side_learns_the_others_hello,
                a_write_lands_where_it_was_sent,
                a_write_lands_in_memory_that_was_exposed_later,
                memory_can_be_exposed_again,
                a_transfer_of_no_bytes_is_a_notice,
                a_write_gathers_its_pieces,
                small_writes_land_as_large_ones_do,
                a_write_may_fill_the_ring,
                writes_outside_of_the_peers_memory_go_nowhere,
                order_is_kept_among_writes_and_controls,
                a_poll_takes_no_more_than_asked_for,
                a_full_queue_is_an_error_and_not_a_loss,
                the_peers_slots_say_how_many_controls_may_be_posted,
                controls_leave_a_transfer_the_room_that_it_was_offered,
                posted_bytes_arrive_though_their_memory_is_used_again,
                staging_memory_is_replaced_while_transfers_are_under_way,
            );
            contract!(@tests $fabric; events:
                a_peer_that_polls_costs_no_wakeup,
                arming_fails_when_there_is_something_to_poll,
                an_armed_queue_is_woken_once,
                messages_after_a_disarm_are_polled_and_armed_for,
                no_wakeup_is_lost_in_a_flood,
                no_wakeup_is_lost_in_a_ping_pong,
                bytes_are_there_before_their_notice,
                threads_of_one_side_may_post_together,
            );
            contract!(@tests $fabric; life:
                the_accepting_side_may_be_the_first_to_send,
                each_side_has_the_ack_timeout_that_it_asks_for,
                a_disconnect_is_seen_by_the_peer,
                a_peer_that_does_nothing_answers,
                disconnecting_twice_is_once,
                dropping_a_queue_pair_disconnects,
                an_end_before_the_queue_is_armed_is_found,
                an_end_behind_a_full_receive_queue_is_found,
                many_end_at_once,
                completions_before_the_end_can_be_polled,
                memory_outlives_its_queue_pair,
                a_port_without_a_listener_refuses,
                a_listener_that_never_answers_times_out,
                a_range_of_ports_is_searched,
                a_port_is_free_again_when_its_listener_is_gone,
                connections_outlive_their_listener,
                many_connect_at_once,
                a_connection_begins_at_the_own_address_that_is_given,
            );
            contract!(@tests $fabric; windows:
                the_peer_writes_through_an_open_window,
                nothing_is_written_through_a_closed_window,
                a_window_that_is_opened_again_has_another_key,
                a_window_opens_its_own_part_alone,
                an_armed_queue_is_woken_when_a_window_is_closed,
                windows_leave_controls_and_transfers_their_places,
                memory_with_windows_can_be_revoked,
                memory_is_revoked_behind_the_requests_of_its_windows,
                windows_that_are_being_closed_end_with_the_connection,
            );
            contract!(@tests $fabric; tokens:
                a_peer_with_another_token_is_refused_and_the_right_one_gets_in,
                a_listener_without_a_token_refuses_peers_with_one,
                a_listener_with_a_token_takes_one_peer,
                a_stranger_costs_no_memory,
            );

            #[test]
            fn two_processes_talk() {
                if support::is_here(&$fabric) {
                    processes::two_processes_talk(&$fabric, concat!(stringify!($name), "::echoing_child"));
                }
            }

            #[test]
            fn a_killed_process_is_seen_at_once() {
                if support::is_here(&$fabric) {
                    let child = concat!(stringify!($name), "::waiting_child");
                    processes::a_killed_process_is_seen_at_once(&$fabric, child);
                }
            }

            #[test]
            fn a_crashed_process_is_seen_while_it_lives() {
                if support::is_here(&$fabric) {
                    let child = concat!(stringify!($name), "::crashing_child");
                    processes::a_crashed_process_is_seen_while_it_lives(&$fabric, child);
                }
            }

            #[test]
            fn many_connections_leave_nothing_behind() {
                if support::is_here(&$fabric) {
                    processes::run_child(concat!(stringify!($name), "::leak_child"), 0).expect_success();
                }
            }

            #[test]
            fn a_connection_has_as_few_descriptors_as_can_be() {
                if support::is_here(&$fabric) {
                    let child = concat!(stringify!($name), "::descriptors_child");
                    processes::run_child(child, 0).expect_success();
                }
            }

            contract!(@children $fabric; echoing_child, waiting_child, crashing_child, leak_child, descriptors_child,);
        }
    };
    (@tests $fabric:expr; $module:ident: $($test:ident,)*) => {
        $(
            #[test]
            fn $test() {
                if support::is_here(&$fabric) {
                    $module::$test(&$fabric);
                }
            }
        )*
    };
    (@children $fabric:expr; $($child:ident,)*) => {
        $(
            #[test]
            #[ignore = "runs in a process of its own, started by another test"]
            fn $child() {
                processes::$child(&$fabric);
            }
        )*
    };
}

macro_rules! contracts {
    ($($name:ident: $fabric:expr,)*) => {
        $(contract!($name, $fabric);)*

        #[test]
        fn each_fabric_runs_the_contract() {
            let run = [$(Fabric::name(&$fabric)),*];
            let missing = FabricName::ALL.into_iter().find(|name| *name != FabricName::Auto && !run.contains(name));
            assert_eq!(missing, None);
        }
    };
}

contracts! {
    shm: ShmFabric,
    verbs: VerbsFabric,
    tcp: TcpFabric,
    faultless: FaultFabric::new(ShmFabric, FaultPlan::default()),
    windowing: windowing(),
}

/// Shared memory with windows, as a device has them.
fn windowing() -> FaultFabric<ShmFabric> {
    let plan = FaultPlan {
        exposing: Exposing::Windows(Arc::default()),
        ..FaultPlan::default()
    };
    FaultFabric::new(ShmFabric, plan)
}
