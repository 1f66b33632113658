//! A peer that says anything, well-formed or not: nothing makes a session panic, or take more memory than is allowed.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::{Tested, frame, queued, transmission};
use crate::frame::{CONTROL_BYTES_MAX, DATA_BYTES_MAX, Kind};
use crate::{Older, Position, Role, Session, Sink, Standing, Turn, Violation};

const PACKET_MAX_BYTES: usize = 100_000;

/// Takes packets of up to the limit, and counts what it allocates.
#[derive(Default)]
struct Limited {
    packets: usize,
    allocated: usize,
}

impl Sink for Limited {
    type Large = Vec<u8>;

    fn allocate(&mut self, bytes: usize) -> Option<Vec<u8>> {
        assert!(bytes <= PACKET_MAX_BYTES);
        self.allocated += 1;
        Some(vec![0; bytes])
    }

    fn small(&mut self, packet: &[u8]) {
        assert!(packet.len() <= PACKET_MAX_BYTES);
        self.packets += 1;
    }

    fn large(&mut self, packet: Vec<u8>) {
        assert!(packet.len() <= PACKET_MAX_BYTES);
        self.packets += 1;
    }
}

/// What a peer may throw at a session, and what its own caller does meanwhile.
#[derive(Debug, Clone)]
enum Throw {
    Bytes(Vec<u8>),
    Frame(Kind, usize, u64, Vec<u8>),
    Move(u64, u64, u64),
    End(u64, u64),
    Suspend(u64),
    Resume(u64, Standing),
    Append(usize),
    Transmit(usize),
    Queue(usize),
    QueueRead(u64),
    QueuePackets(usize),
    AddPath(u64, bool),
    MoveToQueue,
    LosePath,
    LoseTcp,
    Tick,
    Control,
    End_,
    Pass,
    Shrink,
}

/// Numbers that are near what is right, and numbers that are far off.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 0u64..60, 1 => any::<u64>(), 1 => (0u64..20).prop_map(|below| u64::MAX - below)]
}

fn throw() -> impl Strategy<Value = Throw> {
    let kind = select(vec![
        Kind::Data,
        Kind::Data,
        Kind::Tick,
        Kind::Control,
        Kind::Move,
        Kind::End,
        Kind::Echo,
        Kind::Echoed,
        Kind::Window,
    ]);
    let size = prop_oneof![4 => 0usize..40, 1 => 0usize..=DATA_BYTES_MAX + 1];
    let body = prop_oneof![
        2 => (0u32..30).prop_map(|bytes| u32::to_be_bytes(bytes).to_vec()),
        1 => vec(any::<u8>(), 0..40),
        1 => (0u32..=2 * PACKET_MAX_BYTES as u32).prop_map(|bytes| [&bytes.to_be_bytes()[..], &[1; 3000]].concat()),
    ];
    let path = || 0u64..4;
    let standing = (number(), path()).prop_map(|(received, path)| Standing {
        received: Position(received),
        path: (path > 0).then_some(path),
    });
    prop_oneof![
        1 => vec(any::<u8>(), 0..60).prop_map(Throw::Bytes),
        8 => (kind, size, number(), body)
            .prop_map(|(kind, size, received, body)| Throw::Frame(kind, size, received, body)),
        3 => (number(), path(), number()).prop_map(|(received, path, mark)| Throw::Move(received, path, mark)),
        1 => (number(), number()).prop_map(|(received, end)| Throw::End(received, end)),
        4 => (0u64..12).prop_map(Throw::Suspend),
        1 => number().prop_map(Throw::Suspend),
        5 => (0u64..12, standing).prop_map(|(attempt, standing)| Throw::Resume(attempt, standing)),
        5 => (0usize..30).prop_map(Throw::Append),
        4 => (0usize..60).prop_map(Throw::Transmit),
        4 => (0usize..60).prop_map(Throw::Queue),
        2 => (0u64..60).prop_map(Throw::QueueRead),
        1 => (0usize..30).prop_map(Throw::QueuePackets),
        2 => (1u64..4, any::<bool>()).prop_map(|(path, can_be_lost)| Throw::AddPath(path, can_be_lost)),
        2 => Just(Throw::MoveToQueue),
        1 => Just(Throw::LosePath),
        1 => Just(Throw::LoseTcp),
        1 => Just(Throw::Tick),
        1 => Just(Throw::Control),
        1 => Just(Throw::End_),
        2 => Just(Throw::Pass),
        1 => Just(Throw::Shrink),
    ]
}

fn take(session: &mut Tested, sink: &mut Limited, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        if let Some(memory) = session.direct() {
            let taken = memory.len().min(bytes.len());
            memory[..taken].copy_from_slice(&bytes[..taken]);
            let _ = session.handle_direct(taken, &mut Turn::unbounded(), sink);
            bytes = &bytes[taken..];
        } else {
            // A violation ends a real session; a caller that goes on must be safe all the same.
            let taken = bytes.len().min(1024);
            let _ = session.handle_input(&bytes[..taken], &mut Turn::unbounded(), sink);
            bytes = &bytes[taken..];
        }
    }
}

fn transmit(session: &mut Tested, bytes: usize) {
    if !session.poll_transmit() {
        return;
    }
    let mut there = 0;
    session.transmission(|slice| {
        there += slice.len();
        there < bytes
    });
    assert!(there > 0, "something is to be written, and nothing is there");
    session.handle_transmitted(there.min(bytes));
}

fn run(session: &mut Tested, sink: &mut Limited, throw: Throw) {
    match throw {
        Throw::Bytes(bytes) => take(session, sink, &bytes),
        Throw::Frame(kind, size, received, body) => take(session, sink, &frame(kind, size, received, &body)),
        Throw::Move(received, path, mark) => {
            let body = [path.to_be_bytes(), mark.to_be_bytes()].concat();
            take(session, sink, &frame(Kind::Move, body.len(), received, &body));
        }
        Throw::End(received, end) => take(session, sink, &frame(Kind::End, 8, received, &end.to_be_bytes())),
        Throw::Suspend(attempt) => {
            let is_newer = session.is_newer(attempt);
            assert_eq!(session.suspend(attempt).is_some(), is_newer);
        }
        Throw::Resume(attempt, standing) => {
            let _ = session.resume(attempt, standing);
        }
        Throw::Append(bytes) => session.append(bytes, |log| match bytes % 2 {
            0 => log.copy(&vec![1; bytes]),
            _ => log.hold(vec![1; bytes]),
        }),
        Throw::Transmit(bytes) => transmit(session, bytes),
        Throw::Queue(bytes) => assert!(queued(session, bytes).len() <= bytes),
        Throw::QueueRead(bytes) => session.handle_queue_read(bytes),
        Throw::QueuePackets(bytes) => session.handle_queue_packets(bytes),
        Throw::AddPath(path, can_be_lost) => session.add_path(path, can_be_lost),
        Throw::MoveToQueue => {
            session.move_to_queue();
        }
        Throw::LosePath => session.lose_path(),
        Throw::LoseTcp => session.lose_tcp(),
        Throw::Tick => session.tick(),
        Throw::Control => {
            assert!(session.control(vec![3; 9]));
            assert!(!session.control(vec![3; CONTROL_BYTES_MAX + 1]));
        }
        Throw::End_ => session.end(),
        Throw::Pass => {
            if session.passes() {
                session.handle_passed(9, 20);
                session.append_rest(|log| log.copy(&[5; 11]));
            }
        }
        Throw::Shrink => session.shrink(),
    }
    while session.poll_event().is_some() {}
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn nothing_that_a_peer_says_makes_a_session_panic(throws in vec(throw(), 0..150)) {
        let mut session = Session::new(Role::Acceptor, PACKET_MAX_BYTES);
        let mut sink = Limited::default();
        let mut appended = 0;
        for throw in throws {
            appended += match throw {
                Throw::Append(bytes) => 4 + bytes,
                Throw::Pass if session.passes() => 20,
                _ => 0,
            };
            run(&mut session, &mut sink, throw);
            prop_assert!(session.logged_bytes() <= appended);
            prop_assert!(session.unsent_bytes() <= appended);
        }
    }

    #[test]
    fn bytes_alone_never_allocate_beyond_the_limit(bytes in vec(any::<u8>(), 0..400), limit in 0usize..100_000) {
        let mut session: Tested = Session::new(Role::Initiator, limit.min(PACKET_MAX_BYTES));
        take(&mut session, &mut Limited::default(), &bytes);
    }
}

fn input(session: &mut Tested, bytes: &[u8]) -> Result<usize, Violation> {
    session.handle_input(bytes, &mut Turn::unbounded(), &mut Limited::default())
}

#[test]
fn a_length_above_the_limit_allocates_nothing() {
    for (limit, length) in [(100_000, 100_001), (100_000, u32::MAX), (20, 21), (0, 1)] {
        for cut in 0..=3 {
            let mut session: Tested = Session::new(Role::Acceptor, limit);
            let mut sink = Limited::default();
            let bytes = frame(Kind::Data, 1000, 0, &length.to_be_bytes());
            session
                .handle_input(&bytes[..12 + cut], &mut Turn::unbounded(), &mut sink)
                .expect("no length yet");
            let broken = session.handle_input(&bytes[12 + cut..], &mut Turn::unbounded(), &mut sink);
            let violation = Violation::PacketTooLarge {
                bytes: length as usize,
                max: limit,
            };
            assert_eq!((broken, sink.allocated), (Err(violation), 0));
        }
    }
}

#[test]
fn a_control_message_is_bounded() {
    let mut session = Session::new(Role::Acceptor, PACKET_MAX_BYTES);
    let too_large = frame(Kind::Control, CONTROL_BYTES_MAX + 1, 0, &[]);
    assert_eq!(input(&mut session, &too_large), Err(Violation::Frame));
}

#[test]
fn no_memory_for_a_packet_is_said() {
    struct Nothing;
    impl Sink for Nothing {
        type Large = Vec<u8>;
        fn allocate(&mut self, _bytes: usize) -> Option<Vec<u8>> {
            None
        }
        fn small(&mut self, _packet: &[u8]) {}
        fn large(&mut self, _packet: Vec<u8>) {}
    }
    let mut session: Tested = Session::new(Role::Acceptor, PACKET_MAX_BYTES);
    let large = frame(Kind::Data, 1000, 0, &50_000_u32.to_be_bytes());
    assert_eq!(
        session.handle_input(&large, &mut Turn::unbounded(), &mut Nothing),
        Err(Violation::NoMemory(50_000))
    );
}

#[test]
fn bytes_that_were_never_sent_cannot_be_acknowledged() {
    for kind in [Kind::Data, Kind::Tick] {
        let mut session = Session::new(Role::Acceptor, PACKET_MAX_BYTES);
        session.append(3, |log| log.copy(b"abc"));
        assert_eq!(input(&mut session, &frame(kind, 0, 1, &[])), Err(Violation::Position));
        transmit(&mut session, 15);
        assert_eq!(input(&mut session, &frame(kind, 0, 3, &[])), Ok(12));
        assert_eq!(input(&mut session, &frame(kind, 0, 4, &[])), Err(Violation::Position));
    }
}

#[test]
fn a_peer_that_asks_without_end_gets_one_answer_for_what_came_at_once() {
    let mut session = Session::new(Role::Acceptor, PACKET_MAX_BYTES);
    for number in 0..1000_u64 {
        input(&mut session, &frame(Kind::Echo, 8, 0, &number.to_be_bytes())).expect("a question");
    }
    let answer = frame(Kind::Echoed, 8, 0, &999_u64.to_be_bytes());
    assert!(session.poll_transmit());
    let written = transmission(&session);
    assert_eq!(written, answer);
    session.handle_transmitted(written.len());
    assert!(!session.poll_transmit());
    // An answer that was not asked for is the caller's to ignore.
    input(&mut session, &frame(Kind::Echoed, 8, 0, &7_u64.to_be_bytes())).expect("an answer");
    assert_eq!(session.poll_event(), Some(crate::Event::Echoed(7)));
    let short = frame(Kind::Echo, 7, 0, &[0; 7]);
    assert_eq!(input(&mut session, &short), Err(Violation::Frame));
}

#[test]
fn forged_standings_are_violations() {
    let resume = |received| {
        let mut session: Tested = Session::new(Role::Acceptor, PACKET_MAX_BYTES);
        session.append(3, |log| log.copy(b"abc"));
        transmit(&mut session, 17);
        input(&mut session, &frame(Kind::Tick, 0, 2, &[])).expect("acknowledged");
        session.suspend(2).expect("newer");
        let received = Position(received);
        session.resume(
            2,
            Standing {
                received,
                path: Some(9),
            },
        )
    };
    for (older, positions) in [(Older::Peer, &[0, 1][..]), (Older::Own, &[6, 7, u64::MAX])] {
        for &received in positions {
            assert_eq!(resume(received), Err(Some(Violation::RolledBack(older))), "{received}");
        }
    }
    for received in 2..=5 {
        assert_eq!(resume(received), Ok(false), "{received}");
    }
}

#[test]
fn a_stream_over_a_path_that_was_left_is_a_violation() {
    let mut session = Session::new(Role::Acceptor, PACKET_MAX_BYTES);
    let body = [7_u64.to_be_bytes(), 0_u64.to_be_bytes()].concat();
    input(&mut session, &frame(Kind::Move, 16, 0, &body)).expect("a move");
    assert_eq!(input(&mut session, &frame(Kind::Data, 1, 0, &[])), Err(Violation::Path));
}

#[test]
fn a_move_in_a_packet_or_to_another_place_is_a_violation() {
    let place = |path: u64, mark: u64| frame(Kind::Move, 16, 0, &[path.to_be_bytes(), mark.to_be_bytes()].concat());
    for (before, moved) in [(0, place(7, 1)), (2, place(7, 2)), (5, place(7, 5)), (0, place(0, 1))] {
        let mut session = Session::new(Role::Acceptor, PACKET_MAX_BYTES);
        input(&mut session, &frame(Kind::Data, before, 0, &[0, 0, 0, 2, 1][..before])).expect("a part");
        assert_eq!(input(&mut session, &moved), Err(Violation::Move));
    }
}
