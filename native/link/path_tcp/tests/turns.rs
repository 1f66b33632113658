//! The bounds of one call of `receive`, however many bytes and packets the peer makes of what it sends.

#[path = "support/encoding.rs"]
mod encoding;
mod support;

use std::io::Write;
use std::time::{Duration, Instant};

use encoding::path;
use inet_rdma_path_tcp::{ReceiveError, Received, TURN_PACKETS};
use inet_rdma_session::frame::{DATA_BYTES_MAX, Header, Kind};
use inet_rdma_session::{LENGTH_BYTES, Position, Role, Sink, Violation};
use support::{End, Packets, streams};
use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};

/// How the bytes of a connection are encoded: compressed, sealed.
const CODINGS: [(bool, bool); 4] = [(false, false), (true, false), (false, true), (true, true)];

/// Packets of a few sizes, which compress well and lie across frames, blocks and records.
fn packets() -> Vec<Vec<u8>> {
    let sizes = [0, 1, 10, 30, 700, 20_000, 0, 66_000, 3];
    let few = (0..2_000_usize).map(|at| vec![at as u8; sizes[at % sizes.len()]]);
    let tiny = (0..40_000_usize).map(|at| vec![at as u8; at % 3]);
    let huge = std::iter::once(vec![7; 3_000_000]);
    few.chain(tiny).chain(huge).collect()
}

/// The bytes of packets that have come as a whole.
fn bytes_of(packets: &[Vec<u8>]) -> usize {
    packets.iter().map(|packet| LENGTH_BYTES + packet.len()).sum()
}

#[test]
fn a_turn_gives_no_more_than_its_bounds_and_the_next_one_goes_on_there() {
    for coding in CODINGS {
        let (left, right) = streams();
        let (is_compressed, is_sealed) = coding;
        let mut paths = [(&left, 0), (&right, 1)].map(|(stream, side)| path(stream, side, is_compressed, is_sealed));
        let mut sessions = [End::new(Role::Initiator, 1 << 26), End::new(Role::Acceptor, 1 << 26)];
        let mut arrived = [Packets::default(), Packets::default()];
        let packets = packets();
        for packet in &packets {
            sessions[0].append(packet.len(), |log| log.copy(packet));
        }
        let mut held_turns = 0;
        while arrived[1].0.len() < packets.len() {
            for side in 0..2 {
                let _blocked = paths[side].transmit(&mut sessions[side]).expect("a connection");
                let (before, position) = (arrived[side].0.len(), sessions[side].received());
                let received = paths[side]
                    .receive(TURN_PACKETS, &mut sessions[side], &mut arrived[side])
                    .expect("nothing is wrong");
                let given = arrived[side].0.len() - before;
                assert!(given <= TURN_PACKETS, "{given} packets, {coding:?}");
                assert!(
                    sessions[side].received() - position <= paths[side].turn_bytes(),
                    "{coding:?}"
                );
                assert!(received == Received::More || !paths[side].holds_input());
                held_turns += usize::from(paths[side].holds_input());
            }
        }
        assert!(arrived[1].0 == packets, "the packets differ, {coding:?}");
        assert_eq!(sessions[1].received(), Position(bytes_of(&packets) as u64));
        assert!(held_turns > 10, "{held_turns} turns ended in the middle, {coding:?}");
    }
}

/// Blocks of one zstd frame that stand for a stream of frames with empty packets: 250 bytes for each byte.
fn bomb(stream_bytes: usize) -> Vec<u8> {
    let header = Header {
        kind: Kind::Data,
        bytes: DATA_BYTES_MAX,
        received: Position(0),
    };
    let frame = [&header.encode()[..], &[0; DATA_BYTES_MAX]].concat();
    let stream = frame.repeat(stream_bytes / frame.len() + 1);
    let mut context = CCtx::create();
    context.set_parameter(CParameter::WindowLog(17)).expect("a parameter");
    let mut blocks = Vec::new();
    for plain in stream.chunks(66 * 1024) {
        let mut memory = vec![0; 70 * 1024];
        let mut output = OutBuffer::around(&mut memory[..]);
        let mut input = InBuffer::around(plain);
        while context
            .compress_stream2(&mut output, &mut input, ZSTD_EndDirective::ZSTD_e_flush)
            .expect("room")
            > 0
        {}
        let wire = output.pos();
        blocks.push(1);
        blocks.extend_from_slice(&(plain.len() as u32).to_be_bytes()[1..]);
        blocks.extend_from_slice(&(wire as u32).to_be_bytes()[1..]);
        blocks.extend_from_slice(&memory[..wire]);
    }
    blocks
}

#[derive(Default)]
struct Counted(usize);

impl Sink for Counted {
    type Large = Vec<u8>;

    fn allocate(&mut self, bytes: usize) -> Option<Vec<u8>> {
        Some(vec![0; bytes])
    }

    fn small(&mut self, _packet: &[u8]) {
        self.0 += 1;
    }

    fn large(&mut self, _packet: Vec<u8>) {
        self.0 += 1;
    }
}

/// The longest call is printed: without the bounds it is as long as the whole bomb.
#[test]
fn a_bomb_takes_short_turns_and_ends_with_the_window() {
    let (mut hostile, stream) = streams();
    let mut path = path(&stream, 1, true, false);
    let bomb = bomb(64 << 20);
    let thrower = std::thread::spawn(move || hostile.write_all(&bomb).map(|()| hostile));
    let mut session = End::new(Role::Acceptor, 1 << 20);
    let mut longest = Duration::ZERO;
    let verdict = loop {
        let (mut turn, begun) = (Counted::default(), Instant::now());
        let received = path.receive(TURN_PACKETS, &mut session, &mut turn);
        longest = longest.max(begun.elapsed());
        assert!(turn.0 <= TURN_PACKETS, "{} packets in one turn", turn.0);
        match received {
            Ok(Received::All) => std::thread::yield_now(),
            Ok(Received::More) => {}
            Err(error) => break error,
        }
    };
    println!("the longest of all turns: {longest:?}");
    assert!(
        matches!(verdict, ReceiveError::Violation(Violation::Window(_))),
        "{verdict:?}"
    );
    path.shutdown();
    let _cut_off = thrower.join().expect("no panic");
}
