//! Active mode: arrived bytes become messages, as many as were asked for, and the end comes last.

#[path = "../../../core/assembly/tests/support/contents.rs"]
mod contents;
#[path = "../../../core/engine/tests/support/message.rs"]
mod message;
#[path = "support/pair.rs"]
mod pair;

use std::sync::Arc;

use inet_rdma_assembly::ReadLimit;
use inet_rdma_engine::connection::{Closed, ReadEnd};
use inet_rdma_fabric_fault::{FaultFabric, FaultPlan};
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_socket::endpoint::Pollers;
use inet_rdma_socket::poller::Polling;
use inet_rdma_socket::stream_socket::{ActiveOption, Left, Refused};
use message::Messages;
use pair::signal::{Event, Ticket};
use pair::{BOUND, Conn, Side};

fn connected() -> (Arc<Conn>, Arc<Conn>) {
    let (left, right) = pair::connect(&ShmFabric, &Side::default(), &Side::default());
    look(&left);
    look(&right);
    (left, right)
}

/// One look of a polling thread.
fn look(socket: &Conn) {
    assert!(!socket.connection().attend(false));
}

fn write(socket: &Conn, packets: usize) -> Messages {
    let messages = Messages::new(1, &vec![100; packets]);
    let written = socket.write(&messages.gather(true), 0, usize::MAX);
    assert!(!written.expect("it is up").blocked);
    messages
}

fn switch(socket: &Conn, option: ActiveOption, number: u64) {
    socket.set_active(option, Ticket::of(number)).expect("allowed");
    look(socket);
}

/// The notifications so far: the number of each message, `p` for passive, `e` for the end.
fn told(socket: &Conn) -> String {
    let word = |event| match event {
        Event::Message(number, _) => number.to_string(),
        Event::Passive(number) => format!("p{number}"),
        Event::Ended(number, _) => format!("e{number}"),
        Event::Sent(..) | Event::Received(..) => panic!("nothing is posted"),
    };
    std::iter::from_fn(|| socket.notifier().event())
        .map(word)
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn once_is_one_message_and_no_word_behind_it() {
    let (left, right) = connected();
    write(&left, 2);
    switch(&right, ActiveOption::Once, 1);
    assert_eq!(told(&right), "1");
    assert_eq!(right.active(), None);
    look(&right);
    assert_eq!(told(&right), "");
    switch(&right, ActiveOption::Once, 2);
    assert_eq!(told(&right), "2");
}

#[test]
fn a_count_is_that_many_messages_and_a_word_behind_the_last() {
    let (left, right) = connected();
    switch(&right, ActiveOption::Add(2), 1);
    switch(&right, ActiveOption::Add(1), 2);
    assert_eq!(right.active(), Some(Left::Count(3)));
    write(&left, 2);
    look(&right);
    assert_eq!(told(&right), "2 2");
    assert_eq!(right.active(), Some(Left::Count(1)));
    write(&left, 2);
    look(&right);
    assert_eq!(told(&right), "2 p2");
    assert_eq!(right.active(), None);
}

#[test]
fn a_sum_of_nothing_makes_passive_and_says_so_and_passive_does_not() {
    let (_left, right) = connected();
    switch(&right, ActiveOption::Add(2), 1);
    switch(&right, ActiveOption::Add(-2), 2);
    assert_eq!(told(&right), "p2");
    switch(&right, ActiveOption::Infinity, 3);
    switch(&right, ActiveOption::Passive, 4);
    assert_eq!(told(&right), "");
    assert_eq!(right.active(), None);
    switch(&right, ActiveOption::Add(i16::MAX), 5);
    assert_eq!(
        right.set_active(ActiveOption::Add(1), Ticket::of(6)),
        Err(Refused::Unfit)
    );
    assert_eq!(right.active(), Some(Left::Count(i16::MAX)), "as it was");
}

#[test]
fn infinity_hands_over_all_in_order_and_the_end_comes_behind_the_last_byte() {
    let (left, right) = connected();
    switch(&right, ActiveOption::Infinity, 1);
    let first = write(&left, 3);
    look(&right);
    let second = write(&left, 200);
    left.finish().expect("it is up");
    look(&right);
    // More than one turn of the thread: it is called back.
    look(&right);
    look(&right);
    look(&right);
    let mut due = [first.bodies(), second.bodies()].concat().into_iter();
    while let Some(Event::Message(1, received)) = right.notifier().event() {
        for packet in contents::packets(&[received]) {
            assert_eq!(Some(packet), due.next());
        }
    }
    assert_eq!(due.next(), None);
    assert_eq!(right.active(), None, "the end was told");
}

#[test]
fn packets_before_the_peers_end_are_handed_over_first() {
    let (left, right) = connected();
    switch(&right, ActiveOption::Infinity, 1);
    write(&left, 100);
    left.close();
    assert!(!right.connection().handle_liveness());
    assert_eq!(told(&right), ["1 "; 100].concat() + "e1");
}

#[test]
fn a_failure_names_its_reason() {
    let (left, right) = connected();
    switch(&right, ActiveOption::Infinity, 1);
    drop(left);
    assert!(!right.connection().handle_liveness());
    let event = right.notifier().event();
    assert!(matches!(event, Some(Event::Ended(1, Closed::PeerGone))));
}

#[test]
fn the_end_is_told_after_stop_reading_and_not_after_close() {
    let (_left, right) = connected();
    switch(&right, ActiveOption::Infinity, 1);
    right.connection().stop_reading();
    look(&right);
    assert_eq!(told(&right), "e1");
    let (_left, right) = connected();
    switch(&right, ActiveOption::Infinity, 1);
    right.close();
    look(&right);
    assert_eq!(told(&right), "");
}

#[test]
fn posted_receives_and_active_mode_exclude_each_other() {
    let (_left, right) = connected();
    switch(&right, ActiveOption::Once, 1);
    assert_eq!(right.post_receive(Ticket::of(2), 0), Err(Refused::Unfit));
    switch(&right, ActiveOption::Passive, 3);
    assert_eq!(
        right.post_receive(Ticket::of(4), 10),
        Err(Refused::Unfit),
        "packets say their size"
    );
    assert_eq!(right.post_receive(Ticket::of(5), 0), Ok(()));
    assert_eq!(right.set_active(ActiveOption::Once, Ticket::of(6)), Err(Refused::Unfit));
    assert_eq!(right.set_active(ActiveOption::Passive, Ticket::of(7)), Ok(()));
    let mut out = Vec::new();
    assert_eq!(right.read_unposted(ReadLimit::bytes(100), &mut out), None);
    assert!(right.cancel(|ticket| ticket.number == 5));
    assert_eq!(
        right.read_unposted(ReadLimit::bytes(100), &mut out),
        Some((ReadEnd::Empty, 0))
    );
}

#[test]
fn a_read_says_how_many_bytes_were_copied() {
    let (left, right) = connected();
    write(&left, 3);
    let mut out = Vec::new();
    let read = right.read_unposted(ReadLimit::bytes(usize::MAX), &mut out);
    assert_eq!(read, Some((ReadEnd::Empty, 3 * 104)));
}

/// A real polling thread looks here, not the test: it calls back by itself.
#[test]
fn a_polling_thread_delivers_all_and_the_end_of_a_lost_connection() {
    let plan = FaultPlan {
        drop_after_posts: Some(40),
        ..FaultPlan::default()
    };
    let fabric = FaultFabric::new(ShmFabric, plan);
    let pollers = Arc::new(Pollers::start(1, Polling::Event).expect("a thread"));
    let (left, right) = pair::connect(&fabric, &Side::default(), &Side::default());
    let _attached = [&left, &right].map(|side| pollers.attach(Arc::clone(side.connection())).expect("an attachment"));
    right
        .set_active(ActiveOption::Infinity, Ticket::of(1))
        .expect("allowed");
    let messages = Messages::new(1, &[10]);
    let mut packets = 0;
    while left.write(&messages.gather(true), 0, usize::MAX).is_ok() {
        packets += 1;
        assert!(packets < 1000, "the fabric drops the connection");
    }
    let end = std::time::Instant::now() + BOUND;
    let mut got = 0;
    loop {
        match right.notifier().event() {
            Some(Event::Message(1, received)) => got += received.packets(),
            Some(Event::Ended(1, Closed::PeerGone)) => break,
            Some(_) => panic!("only active mode is on"),
            None => assert!(std::time::Instant::now() < end, "the end is never told"),
        }
    }
    assert!(got > 0 && got <= packets, "{got} of {packets}");
}
