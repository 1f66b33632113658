//! Two honest sessions of which connections and queue pairs are lost.

use std::collections::VecDeque;

use arbitrary::Arbitrary;
use inet_rdma_session::{LENGTH_BYTES, Role, Session, Standing, Turn};

use crate::calls::{PACKET_MAX_BYTES, Packets, Tested, append, queue, transmit};

/// What happens to two honest sessions. `side`: of which.
#[derive(Debug, Arbitrary)]
pub enum Act {
    Append { side: bool, bytes: u32, is_held: bool },
    Pass { side: bool, less: u8 },
    Transmit { side: bool, bytes: u32 },
    Deliver { side: bool, bytes: u32 },
    Queue { side: bool, bytes: u16 },
    ReadQueue { side: bool },
    HearRead { side: bool },
    AddPath { side: bool },
    Move { side: bool },
    LoseQueue { side: bool },
    Suspend { side: bool },
    Answer { side: bool },
    Resume { side: bool },
    Tick { side: bool },
    Control { side: bool, bytes: u8 },
    Shrink { side: bool },
}

/// One side and what has left it.
struct Side {
    session: Tested,
    packets: Packets,
    appended: VecDeque<Vec<u8>>,
    count: usize,
    /// The attempt that made its connection.
    connection: Option<u64>,
    wire: VecDeque<u8>,
    queued: VecDeque<u8>,
    queue_read: u64,
    path: u64,
    /// Sent on the connection of this attempt.
    standing: Option<(u64, Standing)>,
}

struct World {
    sides: [Side; 2],
    can_be_lost: bool,
    path: u64,
}

pub fn honest(can_be_lost: bool, acts: Vec<Act>) {
    let side = |role| Side {
        session: Session::new(role, PACKET_MAX_BYTES),
        packets: Packets::default(),
        appended: VecDeque::new(),
        count: 0,
        connection: Some(0),
        wire: VecDeque::new(),
        queued: VecDeque::new(),
        queue_read: 0,
        path: 0,
        standing: None,
    };
    let mut world = World {
        sides: [side(Role::Initiator), side(Role::Acceptor)],
        can_be_lost,
        path: 1,
    };
    for act in acts {
        world.act(act);
        world.compare();
    }
    world.end();
}

impl World {
    fn act(&mut self, act: Act) {
        match act {
            Act::Append { side, bytes, is_held } => {
                let packet = self.packet(side, bytes);
                append(&mut self.sides[usize::from(side)].session, packet, is_held);
            }
            Act::Pass { side, less } => {
                if self.sides[usize::from(side)].session.passes() {
                    let packet = self.packet(side, u32::from(less) * 3);
                    self.pass(usize::from(side), packet, less.into());
                }
            }
            Act::Transmit { side, bytes } => self.transmit(side.into(), bytes as usize),
            Act::Deliver { side, bytes } => self.deliver(side.into(), bytes as usize),
            Act::Queue { side, bytes } => self.queue(side.into(), bytes.into()),
            Act::ReadQueue { side } => self.read_queue(side.into()),
            Act::HearRead { side } => self.hear_read(side.into()),
            Act::AddPath { side } => self.add_path(side.into()),
            Act::Move { side } => drop(self.sides[usize::from(side)].session.move_to_queue()),
            Act::LoseQueue { side } => self.lose_queue(side.into()),
            Act::Suspend { side } => self.suspend(side.into()),
            Act::Answer { side } => self.answer(side.into()),
            Act::Resume { side } => self.resume(side.into()),
            Act::Tick { side } => self.sides[usize::from(side)].session.tick(),
            Act::Control { side, bytes } => {
                assert!(self.sides[usize::from(side)].session.control(vec![9; bytes.into()]));
            }
            Act::Shrink { side } => self.sides[usize::from(side)].session.shrink(),
        }
    }

    fn packet(&mut self, side: bool, bytes: u32) -> Vec<u8> {
        let side = &mut self.sides[usize::from(side)];
        let bytes = bytes as usize % PACKET_MAX_BYTES;
        side.count += 1;
        let packet: Vec<u8> = (0..bytes)
            .map(|place| (side.count * 41 + place * 3 + (place >> 8)) as u8)
            .collect();
        side.appended.push_back(packet.clone());
        packet
    }

    fn pass(&mut self, side: usize, packet: Vec<u8>, less: usize) {
        let mut framed = (packet.len() as u32).to_be_bytes().to_vec();
        framed.extend(packet);
        let (taken, rest) = framed.split_at(framed.len() - less.min(framed.len()));
        let ours = &mut self.sides[side];
        ours.session.handle_passed(taken.len(), framed.len());
        ours.session.append_rest(|log| log.copy(rest));
        ours.queued.extend(taken);
    }

    fn transmit(&mut self, side: usize, most: usize) {
        let is_read = self.sides[1 - side].connection == self.sides[side].connection
            || self.sides[side]
                .standing
                .is_some_and(|(attempt, _)| Some(attempt) == self.sides[side].connection);
        let ours = &mut self.sides[side];
        if ours.connection.is_some() && most > 0 {
            let bytes = transmit(&mut ours.session, most);
            if is_read {
                ours.wire.extend(bytes);
            }
        }
    }

    /// To this side.
    fn deliver(&mut self, side: usize, most: usize) {
        let [ours, peer] = pair(&mut self.sides, side);
        if ours.connection.is_none() || ours.connection != peer.connection {
            return;
        }
        let most = most.min(peer.wire.len());
        let bytes: Vec<u8> = peer.wire.drain(..most).collect();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let taken = match ours.session.direct() {
                Some(memory) => {
                    let taken = memory.len().min(rest.len());
                    memory[..taken].copy_from_slice(&rest[..taken]);
                    let direct = ours.session.handle_direct(taken, &mut Turn::unbounded(), &mut ours.packets);
                    direct.expect("the peer is honest");
                    taken
                }
                None => {
                    let taken = rest.len().min(1000);
                    // A turn of a few packets: the rest comes in the next one.
                    let mut turn = Turn { bytes: 700, packets: 3 };
                    let input = ours.session.handle_input(&rest[..taken], &mut turn, &mut ours.packets);
                    input.expect("the peer is honest")
                }
            };
            rest = &rest[taken..];
        }
        while ours.session.poll_event().is_some() {}
    }

    fn queue(&mut self, side: usize, most: usize) {
        let ours = &mut self.sides[side];
        if ours.path == self.path && ours.session.path() == Some(self.path) {
            let bytes = queue(&mut ours.session, most);
            ours.queued.extend(bytes);
        }
    }

    fn read_queue(&mut self, side: usize) {
        let path = self.path;
        let [ours, peer] = pair(&mut self.sides, side);
        if ours.session.path() != Some(path) || !ours.session.reads_queue(path) || peer.queued.len() < LENGTH_BYTES {
            return;
        }
        let length: Vec<u8> = peer.queued.iter().take(LENGTH_BYTES).copied().collect();
        let bytes = u32::from_be_bytes(length.try_into().expect("four bytes")) as usize;
        if peer.queued.len() >= LENGTH_BYTES + bytes {
            peer.queued.drain(..LENGTH_BYTES);
            ours.packets.0.push_back(peer.queued.drain(..bytes).collect());
            peer.queue_read += (LENGTH_BYTES + bytes) as u64;
            ours.session.handle_queue_packets(LENGTH_BYTES + bytes);
        }
    }

    fn hear_read(&mut self, side: usize) {
        let path = self.path;
        let ours = &mut self.sides[side];
        if self.can_be_lost && ours.session.path() == Some(path) {
            ours.session.handle_queue_read(ours.queue_read);
        }
    }

    /// A queue pair is set up when neither side has anything to do with an older one.
    fn add_path(&mut self, side: usize) {
        let (path, can_be_lost) = (self.path, self.can_be_lost);
        if self.sides[side].path < path {
            self.sides[side].path = path;
            self.sides[side].session.add_path(path, can_be_lost);
        }
    }

    fn lose_queue(&mut self, side: usize) {
        let path = self.path;
        let ours = &mut self.sides[side];
        if self.can_be_lost && ours.session.path() == Some(path) {
            ours.session.lose_path();
        }
    }

    /// This side dials: what it held before is given up.
    fn suspend(&mut self, side: usize) {
        let ours = &mut self.sides[side];
        let attempt = ours.session.next_attempt();
        let standing = ours.session.suspend(attempt).expect("the next attempt");
        ours.connection = None;
        ours.wire.clear();
        ours.standing = Some((attempt, standing));
    }

    /// The standing of the peer's dial arrives.
    fn answer(&mut self, side: usize) {
        let [ours, peer] = pair(&mut self.sides, side);
        let Some((attempt, theirs)) = peer.standing.filter(|(attempt, _)| is_dialler(1 - side, *attempt)) else {
            return;
        };
        if let Some(standing) = ours.session.suspend(attempt) {
            ours.session.resume(attempt, theirs).expect("the peer is honest");
            ours.connection = Some(attempt);
            ours.wire.clear();
            ours.standing = Some((attempt, standing));
        }
    }

    /// The peer's answer arrives.
    fn resume(&mut self, side: usize) {
        let [ours, peer] = pair(&mut self.sides, side);
        let (Some((attempt, _)), Some((answered, theirs))) = (ours.standing, peer.standing) else {
            return;
        };
        if is_dialler(side, attempt) && attempt == answered && ours.connection.is_none() {
            ours.session.resume(attempt, theirs).expect("the peer is honest");
            ours.connection = Some(attempt);
            ours.standing = None;
            peer.standing = None;
        }
    }

    fn compare(&mut self) {
        for side in 0..2 {
            let [ours, peer] = pair(&mut self.sides, side);
            while let Some(packet) = ours.packets.0.pop_front() {
                assert_eq!(Some(packet), peer.appended.pop_front());
            }
        }
    }

    /// Nothing is lost from now on: all arrives.
    fn end(&mut self) {
        self.dial();
        let lacks = |side: &Side, path| {
            side.session.path() != Some(path) && (side.session.is_sent_by_queue() || side.session.reads_queue(path))
        };
        for _ in 0..2 {
            for side in 0..2 {
                self.add_path(side);
            }
            self.settle();
            if self.sides.iter().any(|side| lacks(side, self.path))
                || self.sides[0].session.path() != self.sides[1].session.path()
            {
                for side in &mut self.sides {
                    side.session.lose_path();
                }
                self.dial();
            }
            self.settle();
        }
        self.compare();
        for side in &mut self.sides {
            assert!(side.appended.is_empty(), "packets that do not arrive");
            side.session.shrink();
            assert_eq!(side.session.logged_bytes(), 0);
            assert_eq!(side.session.unsent_bytes(), 0);
            assert_eq!(side.session.allocated_bytes(), 0);
        }
    }

    /// Attempts of the peer may have had greater numbers.
    fn dial(&mut self) {
        let attempts = 1 + self.sides[1].session.next_attempt() / 2;
        for _ in 0..attempts {
            self.suspend(0);
            self.answer(1);
            self.resume(0);
            if self.sides[0].connection.is_some() {
                return;
            }
        }
        panic!("no attempt has led to a connection");
    }

    fn settle(&mut self) {
        for _ in 0..3 {
            for side in 0..2 {
                self.sides[side].session.tick();
                for _ in 0..10_000 {
                    let before = self.sides[side].wire.len();
                    self.transmit(side, usize::MAX);
                    if self.sides[side].wire.len() == before {
                        break;
                    }
                }
                self.deliver(1 - side, usize::MAX);
                self.queue(side, usize::MAX);
                while !self.sides[side].queued.is_empty() {
                    let before = self.sides[side].queued.len();
                    self.read_queue(1 - side);
                    if self.sides[side].queued.len() == before {
                        break;
                    }
                }
                self.hear_read(side);
            }
        }
    }
}

/// Attempts of the initiator are odd.
fn is_dialler(side: usize, attempt: u64) -> bool {
    (attempt % 2 == 1) == (side == 0)
}

fn pair(sides: &mut [Side; 2], first: usize) -> [&mut Side; 2] {
    let [a, b] = sides;
    if first == 0 { [a, b] } else { [b, a] }
}
