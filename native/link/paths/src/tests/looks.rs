use std::time::{Duration, Instant};

use crate::{CarryingPath, Counts, Debt, LinkState, Look, Notice, Path, Paths, State};

const PATIENCE: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

fn watched() -> (Paths, Instant) {
    let mut paths = Paths::default();
    paths.set_patience(Some(PATIENCE));
    paths.add(Path::Tcp);
    (paths, Instant::now())
}

/// An answer is owed for this time, and may take that long.
fn look(heard: Duration, owed: Duration, due: Duration) -> Look {
    let debt = Debt::Owed { owed, due };
    let answered = heard;
    Look { heard, answered, debt }
}

fn owed(heard: Duration) -> Look {
    look(heard, Duration::ZERO, Duration::ZERO)
}

fn settled(heard: Duration) -> Look {
    let answered = heard;
    Look {
        heard,
        answered,
        ..SETTLED
    }
}

const SETTLED: Look = Look {
    heard: Duration::ZERO,
    answered: Duration::ZERO,
    debt: Debt::Nothing,
};

#[test]
fn a_write_without_an_answer_is_suspected_after_the_time_and_trusted_with_the_answer() {
    let (mut paths, start) = watched();
    paths.handle_data_written(Path::Tcp, start);
    assert_eq!(paths.at(), Some(start + PATIENCE));
    paths.handle_look(Path::Tcp, start + PATIENCE, owed(PATIENCE * 60));
    assert_eq!(paths.poll_notice(), Some(Notice::Suspected));
    assert_eq!(paths.poll_notice(), None);
    assert_eq!(paths.state(false).state, State::Suspected);
    paths.handle_look(Path::Tcp, start + PATIENCE * 2, owed(PATIENCE * 61));
    assert_eq!(paths.poll_notice(), None);
    paths.handle_look(Path::Tcp, start + PATIENCE * 3, SETTLED);
    assert_eq!(paths.poll_notice(), Some(Notice::Trusted));
    assert_eq!(paths.at(), None);
    let counts = Counts {
        suspicions: 1,
        false_suspicions: 1,
    };
    assert_eq!(paths.counts(), counts);
    // The next time it takes twice as long.
    paths.handle_data_written(Path::Tcp, start + PATIENCE * 4);
    assert_eq!(paths.at(), Some(start + PATIENCE * 6));
}

#[test]
fn what_the_peer_sends_by_itself_neither_prevents_nor_ends_a_suspicion() {
    let (mut paths, start) = watched();
    let one_way = |answered| Look {
        heard: MILLISECOND,
        ..owed(answered)
    };
    paths.handle_data_written(Path::Tcp, start);
    paths.handle_look(Path::Tcp, start + PATIENCE, one_way(PATIENCE * 2));
    assert_eq!(paths.poll_notice(), Some(Notice::Suspected));
    for second in 2..20 {
        paths.handle_look(Path::Tcp, start + PATIENCE * second, one_way(PATIENCE * (second + 1)));
        assert_eq!(paths.poll_notice(), None, "after {second} s");
    }
    paths.handle_look(Path::Tcp, start + PATIENCE * 20, one_way(MILLISECOND));
    assert_eq!(paths.poll_notice(), Some(Notice::Trusted));
}

#[test]
fn an_acknowledged_link_under_load_looks_once_in_the_time() {
    let (mut paths, mut now) = watched();
    paths.handle_data_written(Path::Tcp, now);
    for _ in 0..100 {
        let before = now;
        now = paths.at().expect("it waits");
        assert!(now.duration_since(before) >= PATIENCE - MILLISECOND * 2);
        assert!(!paths.wants_data_written(Path::Tcp));
        // Bytes are under way, and the last answer is young.
        paths.handle_look(Path::Tcp, now, owed(MILLISECOND));
    }
    assert_eq!(paths.poll_notice(), None);
}

#[test]
fn a_write_each_second_over_a_well_path_is_not_suspected() {
    let (mut paths, mut now) = watched();
    for _ in 0..100 {
        // The answer to the last write came 999 ms ago, and the look finds the next one under way.
        paths.handle_data_written(Path::Tcp, now);
        now = paths.at().expect("it waits");
        paths.handle_look(Path::Tcp, now, owed(PATIENCE - MILLISECOND));
        now = paths.at().expect("it waits");
        paths.handle_look(Path::Tcp, now, settled(MILLISECOND * 499));
        assert_eq!((paths.poll_notice(), paths.at()), (None, None));
    }
}

#[test]
fn a_busy_path_that_falls_silent_is_suspected_within_one_and_a_half_of_the_time() {
    for fault_ms in 0..1000 {
        let (mut paths, start) = watched();
        paths.handle_data_written(Path::Tcp, start);
        let fault = start + MILLISECOND * fault_ms;
        loop {
            let now = paths.at().expect("it waits");
            let heard = now.saturating_duration_since(fault).max(MILLISECOND);
            paths.handle_look(Path::Tcp, now, owed(heard));
            if paths.poll_notice().is_some() {
                assert!(now <= fault + PATIENCE * 3 / 2, "{fault_ms}");
                break;
            }
        }
    }
}

#[test]
fn the_kernels_retransmissions_show_since_when_an_answer_is_owed() {
    let (mut paths, start) = watched();
    paths.handle_data_written(Path::Tcp, start);
    // The last answer came with the write: this look alone cannot tell which of the two was first.
    let (now, owed) = (start + PATIENCE, |owed| look(PATIENCE, owed, Duration::ZERO));
    paths.handle_look(Path::Tcp, now, owed(MILLISECOND * 200));
    assert_eq!(paths.poll_notice(), None);
    paths.handle_look(Path::Tcp, now, owed(MILLISECOND * 600));
    assert_eq!(paths.poll_notice(), Some(Notice::Suspected));
}

#[test]
fn a_long_way_gets_the_time_that_its_answers_take() {
    let (mut paths, start) = watched();
    paths.handle_data_written(Path::Tcp, start);
    let long = |heard| look(heard, Duration::ZERO, PATIENCE * 3);
    paths.handle_look(Path::Tcp, start + PATIENCE, long(PATIENCE * 2));
    assert_eq!((paths.poll_notice(), paths.at()), (None, Some(start + PATIENCE * 2)));
    paths.handle_look(Path::Tcp, start + PATIENCE * 2, long(PATIENCE * 3));
    assert_eq!(paths.poll_notice(), Some(Notice::Suspected));
}

#[test]
fn ticks_have_no_timer_and_the_next_one_finds_that_the_last_was_not_answered() {
    let (mut paths, start) = watched();
    for tick in 0..10 {
        assert_eq!(paths.must_look_first(Path::Tcp), tick > 0);
        paths.handle_look(Path::Tcp, start + PATIENCE * 15 * tick, SETTLED);
        paths.handle_tick_written(Path::Tcp);
        assert_eq!(paths.at(), None);
    }
    let unanswered = look(PATIENCE * 30, PATIENCE * 12, Duration::ZERO);
    paths.handle_look(Path::Tcp, start + PATIENCE * 165, unanswered);
    assert_eq!(paths.poll_notice(), Some(Notice::Suspected));
}

#[test]
fn a_write_soon_after_a_tick_does_not_inherit_its_age() {
    let (mut paths, start) = watched();
    paths.handle_tick_written(Path::Tcp);
    assert!(paths.must_look_first(Path::Tcp));
    // The tick was answered long ago.
    paths.handle_look(Path::Tcp, start + PATIENCE * 14, settled(PATIENCE * 14));
    assert!(!paths.must_look_first(Path::Tcp));
    paths.handle_data_written(Path::Tcp, start + PATIENCE * 14);
    assert_eq!(paths.at(), Some(start + PATIENCE * 15));
}

#[test]
fn of_two_suspected_paths_both_must_answer() {
    let (mut paths, start) = watched();
    paths.add(Path::QueuePair);
    let now = start + PATIENCE;
    for path in [Path::Tcp, Path::QueuePair] {
        paths.handle_data_written(path, start);
        paths.handle_look(path, now, owed(Duration::MAX));
    }
    assert_eq!(paths.poll_notice(), Some(Notice::Suspected));
    paths.handle_look(Path::QueuePair, now + PATIENCE, SETTLED);
    assert_eq!(paths.poll_notice(), Some(Notice::Suspected));
    let state = LinkState {
        state: State::Carried,
        path: CarryingPath::QueuePair,
        is_held: false,
        has_tcp: true,
    };
    assert_eq!(paths.state(true), state);
    paths.handle_look(Path::Tcp, now + PATIENCE, SETTLED);
    assert_eq!(paths.poll_notice(), Some(Notice::Trusted));
}

#[test]
fn what_the_node_suspects_is_trusted_with_an_answer_that_comes_afterwards() {
    let (mut paths, start) = watched();
    paths.hold_writes(start);
    assert_eq!(paths.poll_notice(), Some(Notice::Suspected));
    paths.handle_look(Path::Tcp, start + PATIENCE, settled(PATIENCE * 2));
    assert_eq!(paths.poll_notice(), None);
    paths.handle_look(Path::Tcp, start + PATIENCE * 2, settled(PATIENCE / 2));
    assert_eq!(paths.poll_notice(), Some(Notice::Trusted));
    // The path was not to blame.
    assert_eq!((paths.counts().suspicions, paths.counts().false_suspicions), (1, 0));
}

#[test]
fn a_path_at_its_end_is_neither_suspected_nor_trusted() {
    let (mut paths, start) = watched();
    let ended = Look {
        heard: Duration::MAX,
        answered: Duration::MAX,
        debt: Debt::Ended,
    };
    paths.handle_data_written(Path::Tcp, start);
    paths.handle_look(Path::Tcp, start + PATIENCE, ended);
    assert_eq!(paths.poll_notice(), None);
    paths.handle_look(Path::Tcp, start + PATIENCE * 2, owed(PATIENCE * 60));
    assert_eq!(paths.poll_notice(), Some(Notice::Suspected));
    paths.handle_look(Path::Tcp, start + PATIENCE * 3, ended);
    assert_eq!(paths.poll_notice(), None);
    paths.remove(Path::Tcp);
    assert_eq!(paths.state(false).state, State::Suspended);
}

#[test]
fn a_kernel_that_does_not_say_counts_as_an_answer() {
    let (mut paths, start) = watched();
    paths.handle_data_written(Path::Tcp, start);
    paths.handle_look(Path::Tcp, start + PATIENCE, Look::UNKNOWN);
    assert_eq!((paths.poll_notice(), paths.at()), (None, None));
}

#[test]
fn without_the_option_nothing_is_watched() {
    let (mut paths, start) = watched();
    paths.handle_data_written(Path::Tcp, start);
    paths.set_patience(None);
    assert_eq!(paths.at(), None);
    paths.handle_tick_written(Path::Tcp);
    assert!(!paths.wants_data_written(Path::Tcp) && !paths.must_look_first(Path::Tcp));
    paths.handle_data_written(Path::Tcp, start);
    assert_eq!(paths.at(), None);
}
