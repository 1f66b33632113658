//! Which packets wait for others, when the port is busy, and what is written when.

use std::time::Duration;

use inet_rdma_paths::{EARNED_PACKETS, Path, State};
use inet_rdma_session::{Event, Role};

use super::lone::{Lone, PLAIN, QUEUE};
use super::side::{Large, start};
use crate::{Fault, GATHERED_BYTES, Link, Loss, Notice, QueueStep, QueueWritten, TcpWritten, Work};

const TO_TCP: Work = Work::Transmit(Path::Tcp);
const TO_QUEUE: Work = Work::Transmit(Path::QueuePair);
/// A write, of a link with both paths.
const TO_BOTH: [Work; 2] = [TO_TCP, TO_QUEUE];
const LOOK: Work = Work::Look(Path::Tcp);
const MICROSECOND: Duration = Duration::from_micros(1);
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn packets_that_follow_one_closely_share_a_write() {
    let mut lone = Lone::new();
    lone.send();
    assert_eq!(lone.work(), [TO_TCP], "its sender may wait for an answer");
    for _ in 0..2 {
        lone.pass(20 * MICROSECOND);
        lone.send();
        assert_eq!(lone.work(), []);
        assert!(lone.link.is_gathering());
    }
    lone.link.handle_timeout(lone.now);
    assert_eq!(lone.work(), [TO_TCP]);
    assert_eq!((lone.delivered, lone.link.is_gathering()), (3, false));
    lone.pass(21 * MICROSECOND);
    lone.send();
    assert_eq!(lone.work(), [TO_TCP], "behind a pause");
}

#[test]
fn a_packet_above_4_kib_takes_those_along_that_wait() {
    for (bytes, waits) in [(4096, true), (4097, false)] {
        let mut lone = Lone::new();
        lone.sizes = vec![1, 1, bytes];
        lone.send();
        let _first = lone.work();
        lone.send();
        assert!(lone.link.is_gathering());
        lone.send();
        assert_eq!(lone.work().is_empty(), waits, "{bytes}");
        assert_eq!(lone.delivered, if waits { 1 } else { 3 });
    }
}

#[test]
fn gathered_packets_of_48_kib_are_written() {
    let mut lone = Lone::new();
    lone.sizes = vec![4092];
    lone.send();
    let _first = lone.work();
    for _ in 0..12 {
        lone.send();
        assert_eq!(lone.work(), []);
    }
    lone.send();
    assert_eq!(lone.work(), [TO_TCP]);
    assert_eq!(lone.delivered, 14);
}

#[test]
fn nothing_is_written_to_a_full_socket_until_it_is_writable() {
    let mut lone = Lone::new();
    lone.tcp = TcpWritten::Blocked;
    lone.send();
    assert_eq!(lone.work(), [TO_TCP]);
    assert!(lone.link.waits_for_tcp_room() && !lone.link.has_tcp_room());
    assert!(!lone.link.append_for_tcp(1, |log| log.copy(&[0])), "it waits, too");
    lone.link.request_transmission();
    assert_eq!(lone.work(), []);
    lone.link.handle_writable();
    assert_eq!(lone.work(), [LOOK, TO_TCP]);
}

#[test]
fn a_write_for_which_the_kernel_has_no_memory_is_repeated_by_a_timer() {
    let mut lone = Lone::new();
    lone.tcp = TcpWritten::NoMemory;
    lone.send();
    let _failed = lone.work();
    assert!(
        !lone.link.waits_for_tcp_room() && !lone.link.has_tcp_room(),
        "no event follows"
    );
    let at = lone.link.poll_timeout().expect("a timer");
    assert_eq!(at, lone.now + Duration::from_millis(10));
    lone.link.handle_timeout(at - MICROSECOND);
    assert_eq!(lone.work(), []);
    lone.tcp = TcpWritten::All;
    lone.link.handle_timeout(at);
    assert_eq!(lone.work(), [LOOK, TO_TCP]);
    assert_eq!(lone.delivered, 1);
}

#[test]
fn bytes_that_the_socket_has_not_taken_count_as_unsent() {
    let mut lone = Lone::new();
    lone.link.append(96, |log| log.copy(&[0; 96]));
    let session = lone.link.session_mut();
    let before = session.tcp_bytes();
    assert!(session.poll_transmit());
    session.handle_transmitted(1000);
    lone.link.handle_tcp_written(lone.now, before, 100, TcpWritten::Blocked);
    assert_eq!(lone.link.unsent_bytes(), 100);
    lone.link.handle_writable();
    assert_eq!(lone.work(), [LOOK, TO_TCP], "nothing has gone, and bytes wait");
}

#[test]
fn before_the_start_nothing_goes_over_the_connection() {
    let mut lone = Lone::settling(PLAIN);
    lone.send();
    lone.link.look_before_tick();
    assert!(!lone.work().contains(&TO_TCP));
    lone.link.start();
    assert_eq!(lone.work(), [TO_TCP]);
}

#[test]
fn small_packets_for_a_queue_pair_wait_for_others_and_large_ones_do_not() {
    let lone = Lone::on_queue(false);
    let gathers = |may_gather| QueueStep::Append { may_gather };
    assert_eq!(lone.link.queue_step(GATHERED_BYTES, false), QueueStep::Pass);
    assert_eq!(lone.link.queue_step(GATHERED_BYTES, true), gathers(true));
    assert_eq!(lone.link.queue_step(GATHERED_BYTES + 1, true), QueueStep::Pass);
    let lone = Lone::on_queue(true);
    assert_eq!(lone.link.queue_step(1, false), gathers(false), "the log keeps it");
}

#[test]
fn packets_behind_gathered_ones_gather_or_take_those_along() {
    let mut lone = Lone::on_queue(false);
    lone.link.append(96, |log| log.copy(&[0; 96]));
    lone.link.handle_appended_for_queue(true);
    assert_eq!(lone.work(), []);
    assert!(lone.link.is_gathering());
    assert_eq!(lone.link.queue_step(1, false), QueueStep::Append { may_gather: true });
    let large = lone.link.queue_step(GATHERED_BYTES + 1, false);
    assert_eq!(large, QueueStep::Append { may_gather: false });
    lone.link.handle_timeout(lone.now);
    assert_eq!(lone.work(), TO_BOTH);
    assert_eq!(lone.queue_bytes, 100);
}

#[test]
fn gathered_bytes_above_16_kib_are_written_to_the_queue_pair() {
    for (bytes, waits) in [(GATHERED_BYTES, true), (GATHERED_BYTES + 1, false)] {
        let mut lone = Lone::on_queue(false);
        lone.link.append(bytes - 4, |log| log.copy(&vec![0; bytes - 4]));
        lone.link.handle_appended_for_queue(true);
        assert_eq!(lone.work().is_empty(), waits, "{bytes}");
    }
}

#[test]
fn nothing_is_written_to_a_queue_pair_that_does_not_carry_or_is_held() {
    let mut lone = Lone::new();
    lone.link.add_queue(QUEUE, true);
    lone.send();
    assert_eq!(lone.work(), [TO_TCP]);
    let mut lone = Lone::on_queue(true);
    lone.link.hold_writes(lone.now);
    lone.send_by_queue();
    assert_eq!(lone.work(), []);
}

#[test]
fn a_packet_that_the_queue_pair_takes_in_part_goes_on_behind_it() {
    let mut lone = Lone::on_queue(false);
    lone.queue_room = 10;
    lone.link.handle_passed(30, 100, |log| log.copy(&[0; 70]));
    assert_eq!(lone.link.unsent_bytes(), 70);
    assert_eq!(lone.work(), TO_BOTH);
    assert_eq!(lone.queue_bytes, 10);
    let mut whole = Lone::on_queue(false);
    whole.link.handle_passed(100, 100, |_log| panic!("nothing is left"));
    assert_eq!((whole.work(), whole.link.unsent_bytes()), (vec![], 0));
}

/// A link whose queue pair has no room for its packet of 100 bytes.
fn blocked(can_be_lost: bool) -> Lone {
    let mut lone = Lone::on_queue(can_be_lost);
    lone.queue_room = 0;
    lone.send_by_queue();
    assert_eq!(lone.work().last(), Some(&TO_QUEUE));
    lone
}

#[test]
fn a_full_queue_pair_is_tried_again_when_another_16_kib_wait() {
    let mut lone = blocked(false);
    assert_eq!(lone.link.queue_step(1, false), QueueStep::Append { may_gather: false });
    lone.sizes = vec![GATHERED_BYTES - 8];
    lone.send_by_queue();
    assert_eq!(lone.work(), [], "4 bytes are missing");
    lone.sizes = vec![0];
    lone.send_by_queue();
    assert_eq!(lone.work(), TO_BOTH);
    lone.send_by_queue();
    assert_eq!(lone.work(), [], "as many again");
}

#[test]
fn a_full_queue_pair_is_written_to_when_it_tells_of_room_or_brings_packets() {
    for (packets, has_room) in [(0, true), (1, false), (0, false)] {
        let mut lone = blocked(false);
        lone.link.handle_queue_packets(lone.now, packets, has_room);
        assert_eq!(lone.work(), TO_BOTH);
    }
    let mut lone = Lone::on_queue(false);
    lone.link.handle_queue_packets(lone.now, 1, false);
    assert_eq!(lone.work(), [], "it is not full");
    lone.link.handle_queue_packets(lone.now, 0, true);
    assert_eq!(lone.work(), TO_BOTH);
    assert!(!lone.link.must_poll_queue(), "nothing waits");
    assert!(blocked(false).link.must_poll_queue());
}

#[test]
fn gathered_packets_are_written_when_the_queue_pair_brings_some() {
    let mut lone = Lone::on_queue(false);
    lone.link.append(96, |log| log.copy(&[0; 96]));
    lone.link.handle_appended_for_queue(true);
    lone.link.handle_queue_packets(lone.now, 1, false);
    assert_eq!(lone.work(), TO_BOTH);
}

#[test]
fn a_write_to_a_queue_pair_goes_on_behind_the_turns_of_others() {
    let mut lone = Lone::on_queue(false);
    lone.link.append(96, |log| log.copy(&[0; 96]));
    lone.link.handle_queue_written(lone.now, 100, QueueWritten::More);
    assert!(lone.link.is_gathering());
    lone.link.handle_timeout(lone.now);
    assert_eq!(lone.work(), TO_BOTH);
    assert!(!lone.link.is_gathering());
}

#[test]
fn what_the_peer_has_read_is_told_where_the_log_keeps_it() {
    assert!(Lone::on_queue(true).link.wants_queue_read());
    assert!(!Lone::on_queue(false).link.wants_queue_read());
    assert!(!Lone::new().link.wants_queue_read());
    let mut lone = Lone::new();
    lone.link.add_queue(QUEUE, true);
    assert!(!lone.link.wants_queue_read(), "nothing goes over it");
    let mut lone = Lone::on_queue(true);
    lone.send_by_queue();
    let _written = lone.work();
    assert_eq!(lone.link.session().logged_bytes(), 104);
    lone.link.handle_queue_read(104);
    assert_eq!(lone.link.session().logged_bytes(), 0);
}

#[test]
fn the_port_is_busy_from_256_kib_on_that_tcp_has_not_taken_until_96_kib() {
    let mut lone = Lone::new();
    lone.tcp_room = 0;
    lone.sizes = vec![65_532, 65_532, 65_532, 65_532, 0];
    (0..4).for_each(|_| lone.send());
    assert!(!lone.work().contains(&Work::SetBusy(true)));
    lone.send();
    assert_eq!(lone.work(), [Work::SetBusy(true)]);
    // Beside the bytes of the stream, a question and the header of a frame go over the connection.
    lone.tcp_room = 20 + 12 + 4 * 65_536 + 4 - 98_305;
    lone.link.handle_writable();
    assert_eq!(lone.work(), [LOOK, TO_TCP], "one byte too many waits");
    lone.tcp_room = 1;
    lone.link.handle_writable();
    assert_eq!(lone.work(), [TO_TCP, Work::SetBusy(false)]);
}

#[test]
fn the_port_is_busy_later_if_tcp_has_taken_what_waited_at_once() {
    let mut lone = Lone::new();
    lone.sizes = vec![65_532; 9];
    for packets in [5, 9] {
        lone.tcp_room = 0;
        (1..packets).for_each(|_| lone.send());
        assert!(!lone.work().contains(&Work::SetBusy(true)));
        lone.send();
        assert!(lone.work().contains(&Work::SetBusy(true)), "{packets}");
        lone.tcp_room = usize::MAX;
        lone.link.handle_writable();
        assert!(lone.work().contains(&Work::SetBusy(false)), "{packets}");
    }
}

#[test]
fn the_port_is_busy_from_64_kib_on_that_a_queue_pair_has_not_taken_until_16_kib() {
    let mut lone = Lone::on_queue(false);
    lone.queue_room = 0;
    lone.sizes = vec![65_532];
    lone.send_by_queue();
    assert_eq!(lone.work(), TO_BOTH);
    lone.sizes = vec![0];
    lone.send_by_queue();
    assert_eq!(lone.work(), [Work::SetBusy(true)]);
    lone.queue_room = 65_540 - 16_385;
    lone.link.handle_queue_packets(lone.now, 0, true);
    assert_eq!(lone.work(), TO_BOTH, "one byte too many");
    lone.queue_room = 1;
    lone.link.handle_queue_packets(lone.now, 0, true);
    assert_eq!(lone.work(), [TO_TCP, TO_QUEUE, Work::SetBusy(false)]);
}

#[test]
fn the_port_is_busy_while_the_peer_of_a_queue_pair_has_not_read_4_mib() {
    const LOG_BYTES: usize = 4 << 20;
    let mut lone = Lone::on_queue(true);
    lone.sizes = vec![(1 << 20) - 4];
    (0..4).for_each(|_| lone.send_by_queue());
    assert!(!lone.work().contains(&Work::SetBusy(true)), "4 MiB");
    lone.sizes = vec![0];
    lone.send_by_queue();
    assert!(lone.work().contains(&Work::SetBusy(true)));
    lone.link.handle_queue_read(1 << 20);
    assert_eq!(lone.link.session().logged_bytes(), LOG_BYTES + 4 - (1 << 20));
    assert_eq!(lone.work(), [Work::SetBusy(false)]);
}

#[test]
fn a_log_that_is_a_little_below_4_mib_leaves_the_port_busy() {
    let mut lone = Lone::on_queue(true);
    let step = 192 * 1024;
    lone.sizes = vec![step - 4];
    lone.send_by_queue();
    lone.sizes = vec![(4 << 20) - step];
    lone.send_by_queue();
    assert!(lone.work().contains(&Work::SetBusy(true)), "4 bytes above");
    lone.link.handle_queue_read(step as u64);
    assert_eq!(lone.work(), [], "4 bytes less than the step");
    let mut lone = Lone::on_queue(true);
    lone.sizes = vec![step];
    lone.send_by_queue();
    lone.sizes = vec![(4 << 20) - step - 4];
    lone.send_by_queue();
    assert!(lone.work().contains(&Work::SetBusy(true)), "4 bytes above");
    lone.link.handle_queue_read((step + 4) as u64);
    assert_eq!(lone.work(), [Work::SetBusy(false)]);
}

#[test]
fn a_busy_port_whose_peer_takes_nothing_is_told_and_its_end_too() {
    let mut lone = Lone::on_queue(false);
    lone.queue_room = 0;
    lone.sizes = vec![70_000];
    lone.send_by_queue();
    assert!(lone.work().contains(&Work::SetBusy(true)));
    assert_eq!(lone.notices(), [Notice::Busy]);
    let at = lone.link.poll_timeout().expect("a look at what has gone");
    assert_eq!(at, lone.now + SECOND);
    lone.now = at;
    lone.link.handle_timeout(lone.now);
    assert_eq!(lone.notices(), [Notice::Stalled]);
    lone.queue_room = 1;
    lone.link.handle_queue_packets(lone.now, 0, true);
    assert_eq!(lone.work(), TO_BOTH);
    assert_eq!(lone.notices(), [Notice::StallEnded]);
}

#[test]
fn a_busy_port_that_sends_does_not_stall() {
    let mut lone = Lone::on_queue(false);
    lone.queue_room = 0;
    lone.sizes = vec![70_000];
    lone.send_by_queue();
    let _busy = lone.work();
    assert_eq!(lone.notices(), [Notice::Busy]);
    for _ in 0..3 {
        lone.queue_room = 1;
        lone.link.handle_queue_packets(lone.now, 0, true);
        let _written = lone.work();
        lone.pass(SECOND);
        lone.link.handle_timeout(lone.now);
        assert_eq!(lone.notices(), []);
    }
    lone.link.handle_queue_packets(lone.now, 0, true);
    assert_eq!(lone.work(), TO_BOTH, "without room");
    lone.pass(SECOND);
    lone.link.handle_timeout(lone.now);
    assert_eq!(lone.notices(), [Notice::Stalled]);
}

#[test]
fn a_stalled_port_that_is_no_longer_busy_tells_the_end_of_the_stall() {
    let mut lone = Lone::on_queue(true);
    lone.sizes = vec![(1 << 20) - 4];
    (0..5).for_each(|_| lone.send_by_queue());
    assert!(lone.work().contains(&Work::SetBusy(true)), "the log is full");
    assert_eq!(lone.notices(), [Notice::Busy]);
    lone.pass(SECOND);
    lone.link.handle_timeout(lone.now);
    assert_eq!(lone.notices(), [Notice::Stalled]);
    lone.link.handle_queue_read(5 << 20);
    assert!(lone.work().contains(&Work::SetBusy(false)));
    assert_eq!(lone.notices(), [Notice::StallEnded]);
}

#[test]
fn messages_to_the_guard_go_over_tcp_and_only_while_there_is_a_connection() {
    let mut lone = Lone::on_queue(true);
    assert!(lone.link.control(lone.now, &[1, 2, 3]));
    assert_eq!(lone.work(), TO_BOTH);
    assert_eq!(lone.peer.poll_event(), Some(Event::Control(vec![1, 2, 3])));
    assert!(!lone.link.control(lone.now, &[0; 65_537]), "too large");
    assert_eq!(
        lone.link.poll_timeout(),
        Some(lone.now + SECOND),
        "an answer to it is owed"
    );
    lone.lose(Loss::Closed);
    let _lost = lone.work();
    assert!(!lone.link.control(lone.now, &[1]));
}

#[test]
fn a_tick_goes_over_the_path_that_carries_and_over_no_other() {
    let mut lone = Lone::new();
    lone.link.tick(lone.now);
    assert_eq!(lone.work(), [TO_TCP]);
    assert_eq!(lone.peer.counts().ticks, 1);
    let mut lone = Lone::new();
    lone.link.add_queue(QUEUE, true);
    lone.link.tick(lone.now);
    assert_eq!(lone.work(), [TO_TCP], "the queue pair does not carry yet");
    let mut lone = Lone::on_queue(true);
    lone.link.tick(lone.now);
    assert_eq!(lone.work(), [Work::TickQueue, TO_TCP, TO_QUEUE]);
    assert_eq!(lone.peer.counts().ticks, 0, "an acknowledgement alone");
    let mut lone = Lone::new();
    lone.lose(Loss::Closed);
    let _lost = lone.work();
    lone.link.tick(lone.now);
    assert_eq!(lone.work(), [], "no path carries the link");
}

#[test]
fn no_tick_goes_over_a_queue_pair_that_is_held() {
    let mut lone = Lone::on_queue(true);
    lone.look = None;
    lone.link.hold_writes(lone.now);
    assert!(!lone.link.has_writable_queue() && !lone.link.has_writable_tcp());
    lone.link.tick(lone.now);
    assert_eq!(lone.work(), []);
}

#[test]
fn before_the_start_a_tick_over_the_queue_pair_acknowledges_nothing_over_tcp() {
    let mut lone = Lone::settling(PLAIN);
    lone.link.add_queue(QUEUE, true);
    lone.link.begin_on_queue();
    lone.link.tick(lone.now);
    assert_eq!(lone.work(), [Work::TickQueue]);
}

#[test]
fn a_tick_tries_a_full_queue_pair_again_if_there_is_no_connection_beside_it() {
    let mut lone = blocked(true);
    lone.lose(Loss::Closed);
    let _lost = lone.work();
    lone.queue_room = usize::MAX;
    lone.link.tick(lone.now);
    assert_eq!(lone.work(), [Work::TickQueue, TO_QUEUE, Work::Ask]);
    assert_eq!(lone.queue_bytes, 104);
    lone.link.tick(lone.now);
    assert_eq!(lone.work(), [Work::TickQueue], "it is not full");
}

#[test]
fn the_round_trip_of_a_question_is_measured_once() {
    let mut lone = Lone::new();
    assert_eq!(lone.link.take_round_trip(), None);
    lone.link.tick(lone.now);
    let _asked = lone.work();
    lone.pass(70 * MICROSECOND);
    lone.read();
    assert_eq!(lone.link.take_round_trip(), Some(70 * MICROSECOND));
    assert_eq!(lone.link.take_round_trip(), None);
    lone.send();
    let _written = lone.work();
    lone.read();
    assert_eq!(lone.link.take_round_trip(), None, "one question in a second");
    lone.pass(SECOND);
    lone.send();
    let _asked = lone.work();
    lone.read();
    assert_eq!(lone.link.take_round_trip(), Some(Duration::ZERO));
}

#[test]
fn an_answer_that_comes_with_another_message_keeps_the_round_trip() {
    let mut lone = Lone::new();
    lone.link.tick(lone.now);
    let _asked = lone.work();
    lone.pass(70 * MICROSECOND);
    let frames = lone.frames();
    // The same answer a second time, as of a peer that answers twice.
    lone.input(&[frames.clone(), frames].concat());
    lone.link.handle_received(lone.now, true, Ok(()));
    assert_eq!(lone.link.take_round_trip(), Some(70 * MICROSECOND));
}

#[test]
fn a_link_earns_a_queue_pair_by_packets_of_both_sides_once() {
    let mut lone = Lone::new();
    lone.link.tick(lone.now);
    (0..EARNED_PACKETS - 4).for_each(|_| lone.send());
    let _written = lone.work();
    lone.peer_sends(3);
    lone.read();
    assert_eq!(lone.notices(), [], "a packet is missing, and there was a tick");
    lone.peer_sends(1);
    lone.read();
    assert_eq!(lone.notices(), [Notice::Earned]);
    (0..2 * EARNED_PACKETS).for_each(|_| lone.send());
    assert_eq!(lone.notices(), []);
}

#[test]
fn a_link_earns_a_queue_pair_by_bytes_but_not_while_it_has_one() {
    let mut lone = Lone::new();
    lone.sizes = vec![128 * 1024 - 5, 128 * 1024 - 4, 128 * 1024];
    lone.send();
    lone.send();
    assert_eq!(lone.notices(), [], "a byte is missing");
    lone.send();
    assert_eq!(lone.notices(), [Notice::Earned]);
    let mut lone = Lone::new();
    lone.link.add_queue(QUEUE, true);
    (0..2 * EARNED_PACKETS).for_each(|_| lone.send());
    assert_eq!(lone.notices(), []);
}

#[test]
fn a_link_has_output_until_all_of_it_is_polled() {
    let events: [fn(&mut Lone); 9] = [
        |lone| lone.link.request_transmission(),
        |lone| lone.link.watch(),
        |lone| lone.lose(Loss::Closed),
        |lone| lone.link.hold_writes(lone.now),
        |lone| lone.link.handle_data_written(Path::QueuePair, lone.now),
        |lone| lone.link.tick(lone.now),
        |lone| {
            lone.link.tick(lone.now);
            let _ticked = lone.work();
            lone.link.look_before_tick();
        },
        |lone| lone.link.append(5 << 20, |log| log.copy(&vec![0; 5 << 20])),
        |lone| assert!(lone.link.suspend(lone.now, 3, Ok(())).is_some()),
    ];
    for (number, event) in events.into_iter().enumerate() {
        let mut lone = Lone::on_queue(true);
        lone.look = None;
        assert!(!lone.link.has_output());
        event(&mut lone);
        assert!(lone.link.has_output(), "{number}");
        let _all = (lone.work(), lone.notices());
        assert!(!lone.link.has_output(), "{number}");
    }
}

#[test]
fn a_link_without_a_guard_tells_nothing() {
    let mut link = Link::<Vec<u8>, Large>::new(Role::Acceptor, 1 << 20);
    link.handle_connected(start(), PLAIN);
    link.start();
    for _ in 0..100 {
        link.append(0, |_log| {});
    }
    link.hold_writes(start());
    link.handle_received(start(), true, Err(Fault::Lost(Loss::Closed)));
    assert_eq!(link.poll_notice(), None);
    assert_eq!(link.state().state, State::Suspended);
}
