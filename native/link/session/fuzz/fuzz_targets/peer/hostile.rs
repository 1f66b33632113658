//! A peer that says anything, while the session's own caller acts.

use arbitrary::Arbitrary;
use inet_rdma_session::frame::{Header, Kind};
use inet_rdma_session::{LENGTH_BYTES, Position, Role, Session, Standing, Turn};

use crate::calls::{PACKET_MAX_BYTES, Packets, Tested, append, queue, transmit};

#[derive(Debug, Arbitrary)]
pub enum Throw {
    Raw(Vec<u8>),
    Frame {
        kind: u8,
        bytes: u16,
        received: u16,
        body: Vec<u8>,
    },
    Move {
        received: u8,
        path: u8,
        mark: u64,
    },
    End {
        end: u64,
    },
    Suspend {
        attempt: u64,
    },
    Resume {
        attempt: u8,
        received: u64,
        path: u8,
    },
    Own(Own),
}

/// What the session's own caller does.
#[derive(Debug, Arbitrary)]
pub enum Own {
    Append { bytes: u16, is_held: bool },
    Pass { bytes: u8, less: u8 },
    Transmit { bytes: u16 },
    Queue { bytes: u16 },
    QueueRead { bytes: u16 },
    QueuePackets { bytes: u8 },
    AddPath { path: u8, can_be_lost: bool },
    Move,
    LosePath,
    LoseTcp,
    Tick,
    Control { bytes: u8 },
    End,
    Shrink,
}

pub fn hostile(throws: Vec<Throw>) {
    let mut session: Tested = Session::new(Role::Acceptor, PACKET_MAX_BYTES);
    session.tell_window(16 << 20);
    let mut appended = 0;
    for throw in throws {
        // A violation ends a real session; a caller that goes on must be safe all the same.
        match throw {
            Throw::Raw(bytes) => input(&mut session, &bytes),
            Throw::Frame {
                kind,
                bytes,
                received,
                body,
            } => {
                let kinds = [
                    Kind::Data,
                    Kind::Tick,
                    Kind::Control,
                    Kind::Move,
                    Kind::End,
                    Kind::Echo,
                    Kind::Echoed,
                    Kind::Window,
                ];
                let kind = kinds[usize::from(kind) % kinds.len()];
                input(&mut session, &frame(kind, bytes.into(), received.into(), &body));
            }
            Throw::Move { received, path, mark } => {
                let body = [u64::from(path % 4).to_be_bytes(), mark.to_be_bytes()].concat();
                input(&mut session, &frame(Kind::Move, 16, received.into(), &body));
            }
            Throw::End { end } => input(&mut session, &frame(Kind::End, 8, 0, &end.to_be_bytes())),
            Throw::Suspend { attempt } => {
                let is_newer = session.is_newer(attempt);
                assert_eq!(session.suspend(attempt).is_some(), is_newer);
            }
            Throw::Resume {
                attempt,
                received,
                path,
            } => {
                let path = Some(u64::from(path % 4)).filter(|&path| path > 0);
                let received = Position(received);
                let _ = session.resume(attempt.into(), Standing { received, path });
            }
            Throw::Own(own) => appended += act(&mut session, own),
        }
        while session.poll_event().is_some() {}
        assert!(session.logged_bytes() <= appended);
        assert!(session.unsent_bytes() <= appended);
    }
}

fn frame(kind: Kind, bytes: usize, received: u64, body: &[u8]) -> Vec<u8> {
    let received = Position(received);
    let mut frame = Header { kind, bytes, received }.encode().to_vec();
    frame.extend_from_slice(body);
    frame
}

fn input(session: &mut Tested, mut bytes: &[u8]) {
    let mut packets = Packets::default();
    while !bytes.is_empty() {
        let taken = match session.direct() {
            Some(memory) => {
                let taken = memory.len().min(bytes.len());
                memory[..taken].copy_from_slice(&bytes[..taken]);
                let _ = session.handle_direct(taken, &mut Turn::unbounded(), &mut packets);
                taken
            }
            None => {
                let taken = bytes.len().min(1000);
                let _ = session.handle_input(&bytes[..taken], &mut Turn::unbounded(), &mut packets);
                taken
            }
        };
        bytes = &bytes[taken..];
    }
}

/// Does it; the bytes that it appends.
fn act(session: &mut Tested, own: Own) -> usize {
    match own {
        Own::Append { bytes, is_held } => {
            append(session, vec![1; bytes.into()], is_held);
            return LENGTH_BYTES + usize::from(bytes);
        }
        Own::Pass { bytes, less } => {
            if session.passes() {
                let all = LENGTH_BYTES + usize::from(bytes);
                let taken = all - usize::from(less).min(all);
                session.handle_passed(taken, all);
                session.append_rest(|log| log.copy(&vec![1; all - taken]));
                return all;
            }
        }
        Own::Transmit { bytes } => drop(transmit(session, bytes.into())),
        Own::Queue { bytes } => drop(queue(session, bytes.into())),
        Own::QueueRead { bytes } => session.handle_queue_read(bytes.into()),
        Own::QueuePackets { bytes } => session.handle_queue_packets(bytes.into()),
        Own::AddPath { path, can_be_lost } => session.add_path(u64::from(path % 3) + 1, can_be_lost),
        Own::Move => drop(session.move_to_queue()),
        Own::LosePath => session.lose_path(),
        Own::LoseTcp => session.lose_tcp(),
        Own::Tick => session.tick(),
        Own::Control { bytes } => assert!(session.control(vec![1; bytes.into()])),
        Own::End => session.end(),
        Own::Shrink => session.shrink(),
    }
    0
}
