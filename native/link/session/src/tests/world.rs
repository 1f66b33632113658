//! Two sessions, the connections between them, and their queue pair: enough to see every promise kept or broken.

mod action;
mod attempts;
mod promises;
mod queue;

pub use action::{Action, Broken};

use super::queue_pair::{Hold, QueuePair};
use super::side::{Comparer, Side};
use super::tcp::{Flight, Portion};
use super::transmission;
use crate::{Event, LENGTH_BYTES, Turn};

pub const MIB: usize = 1024 * 1024;

/// What the two sides have to do.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Per side: sizes of its packets.
    pub packets: [Vec<usize>; 2],
    /// Queue pairs that may be set up, one after the other.
    pub queue_pairs: u64,
    /// Whether a queue pair may be lost while both sides live.
    pub can_be_lost: bool,
    /// Both sides begin on the first queue pair.
    pub begins_on_queue: bool,
    /// Bytes of the stream that [`Portion::Part`] takes at once.
    pub piece_bytes: usize,
    /// Bytes that a connection has under way.
    pub window: usize,
    /// A side whose attempts give up its queue pair, too.
    pub suspects: Option<usize>,
    /// Per side: the window that it tells. None: neither tells one.
    pub told: Option<[usize; 2]>,
}

impl Setup {
    /// A packet, of which no two have the same bytes.
    pub fn packet(&self, from: usize, index: usize) -> Option<Vec<u8>> {
        let bytes = *self.packets[from].get(index)?;
        let first = from * 101 + index * 29;
        Some(
            (0..bytes)
                .map(|offset| (first + offset * 7 + (offset >> 8) * 3) as u8)
                .collect(),
        )
    }

    /// Bytes of the first packets with their lengths.
    fn stream_bytes(&self, from: usize, packets: usize) -> usize {
        self.packets[from][..packets]
            .iter()
            .map(|bytes| LENGTH_BYTES + bytes)
            .sum()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    pub sides: [Side; 2],
    pub flights: Vec<Flight>,
    pub queue: Option<QueuePair>,
    pub queue_pairs: u64,
    /// Losses of connections, dials and queue pairs.
    pub losses: u8,
    suspects: Option<usize>,
}

impl World {
    pub fn new(setup: &Setup) -> World {
        let mut world = World {
            sides: [0, 1].map(|side| Side::new(side, setup)),
            flights: Vec::new(),
            queue: None,
            queue_pairs: 0,
            losses: 0,
            suspects: setup.suspects,
        };
        if setup.begins_on_queue {
            world.settle(setup);
            for side in 0..2 {
                world.add_path(setup, side);
                world.sides[side].session.begin_on_queue();
            }
        }
        world
    }

    /// Does it. Ok(false): it is not possible now.
    pub fn step(&mut self, setup: &Setup, action: Action) -> Result<bool, Broken> {
        let done = match action {
            Action::Append { side } => self.append(setup, side),
            Action::Pass { side, whole } => self.pass(setup, side, whole),
            Action::Transmit { side, portion } => self.transmit(setup, side, portion),
            Action::Deliver { from, portion } => self.deliver(setup, from, portion)?,
            Action::Queue { side, portion } => self.give_queue(side, portion),
            Action::ReadQueue { side } => self.read_queue(setup, side)?,
            Action::HearRead { side } => self.hear_read(side),
            Action::Settle => self.settle(setup),
            Action::AddPath { side } => self.add_path(setup, side),
            Action::Move { side } => self.hold(side) == Some(Hold::Had) && self.sides[side].session.move_to_queue(),
            Action::Return { side } => self.sides[side].session.return_to_tcp(),
            Action::CloseQueue { side } => self.close_queue(side)?,
            Action::LoseQueue { side } => {
                // One that lives as long as the peer is given up by a side that has not moved to it.
                let may = setup.can_be_lost || !self.sides[side].session.is_sent_by_queue();
                let lost = may && self.lose_queue(side);
                self.losses += u8::from(lost);
                lost
            }
            Action::NoticeQueue { side } => self.hold(1 - side) == Some(Hold::Gone) && self.lose_queue(side),
            Action::LoseTcp { side } => {
                let lost = self.lose_tcp(side);
                self.losses += u8::from(lost);
                lost
            }
            Action::NoticeTcp { side } => self.is_dead(side) && self.lose_tcp(side),
            Action::Dial { side } => self.dial(side),
            Action::Ask { side } => self.ask(side)?,
            Action::LoseDial { side } => {
                self.losses += 1;
                self.sides[side].dial.take().is_some()
            }
            Action::NoticeDial { side } => self.notice_dial(side),
            Action::DeliverStanding { from, connection } => self.deliver_standing(from, connection)?,
            Action::LoseStanding { from, connection } => {
                self.losses += 1;
                self.take_standing(from, connection).is_some()
            }
            Action::Tick { side } => {
                self.sides[side].session.tick();
                self.sides[side].ticks += 1;
                true
            }
            Action::Control { side } => {
                let side = &mut self.sides[side];
                side.controls += 1;
                side.session
                    .control(vec![side.controls; usize::from(side.controls) - 1])
            }
            Action::SetWindow { side, bytes } => {
                self.sides[side].session.set_window(bytes);
                true
            }
            Action::End { side } => {
                self.sides[side].session.end();
                !std::mem::replace(&mut self.sides[side].has_ended, true)
            }
        };
        self.forget_unreadable();
        self.check(setup)?;
        Ok(done)
    }

    /// The session is over for one side: its caller gives everything up.
    pub fn is_over(&self) -> bool {
        self.sides.iter().any(|side| side.is_over)
    }

    fn append(&mut self, setup: &Setup, side: usize) -> bool {
        let side_state = &mut self.sides[side];
        let Some(packet) = side_state.next_packet(setup, side) else {
            return false;
        };
        let is_held = side_state.appended % 2 == 1;
        side_state.appended += 1;
        side_state.session.append(
            packet.len(),
            |log| if is_held { log.hold(packet) } else { log.copy(&packet) },
        );
        true
    }

    fn pass(&mut self, setup: &Setup, side: usize, whole: bool) -> bool {
        let side_state = &mut self.sides[side];
        let packet = side_state.next_packet(setup, side);
        let (Some(packet), true) = (packet, side_state.session.passes()) else {
            return false;
        };
        let framed = [&(packet.len() as u32).to_be_bytes(), &packet[..]].concat();
        let (taken, rest) = framed.split_at(framed.len() - usize::from(!whole));
        side_state.appended += 1;
        side_state.session.handle_passed(taken.len(), framed.len());
        if !rest.is_empty() {
            side_state.session.append_rest(|log| log.copy(rest));
        }
        self.put_queue(side, taken);
        true
    }

    fn transmit(&mut self, setup: &Setup, side: usize, portion: Portion) -> bool {
        let side_state = &mut self.sides[side];
        let Some(connection) = side_state.connection.filter(|_| side_state.session.poll_transmit()) else {
            return false;
        };
        let mut bytes = transmission(&side_state.session);
        bytes.truncate(match portion {
            Portion::Byte => 1,
            Portion::Part => side_state.writes.part_bytes(setup.piece_bytes),
            Portion::All => usize::MAX,
        });
        assert!(!bytes.is_empty(), "something is to be written, and nothing is there");
        side_state.session.handle_transmitted(bytes.len());
        side_state.writes.handle(&bytes);
        self.flight(connection, side).bytes.extend(bytes);
        true
    }

    fn flight(&mut self, connection: u64, from: usize) -> &mut Flight {
        let known = self.position(connection, from);
        let index = known.unwrap_or_else(|| {
            self.flights.push(Flight {
                connection,
                from,
                standing: None,
                bytes: Vec::new(),
            });
            self.flights.sort_by_key(|flight| (flight.connection, flight.from));
            self.position(connection, from).expect("it has been put there")
        });
        &mut self.flights[index]
    }

    fn position(&self, connection: u64, from: usize) -> Option<usize> {
        self.flights
            .iter()
            .position(|flight| flight.connection == connection && flight.from == from)
    }

    fn deliver(&mut self, setup: &Setup, from: usize, portion: Portion) -> Result<bool, Broken> {
        let side = &mut self.sides[1 - from];
        let flight = self
            .flights
            .iter_mut()
            .find(|flight| Some(flight.connection) == side.connection && flight.from == from);
        let Some(flight) = flight.filter(|flight| flight.standing.is_none()) else {
            return Ok(false);
        };
        let bytes = flight.bytes.len().min(match portion {
            Portion::Byte => 1,
            Portion::Part => side.reads.part_bytes(setup.piece_bytes),
            Portion::All => usize::MAX,
        });
        let bytes: Vec<u8> = flight.bytes.drain(..bytes).collect();
        self.input(setup, 1 - from, &bytes)?;
        Ok(!bytes.is_empty())
    }

    /// Bytes that a connection has brought, some of them straight into their packet's memory.
    fn input(&mut self, setup: &Setup, side: usize, bytes: &[u8]) -> Result<(), Broken> {
        let side_state = &mut self.sides[side];
        side_state.reads.handle(bytes);
        let mut sink = Comparer {
            setup,
            from: 1 - side,
            arrived: &mut side_state.arrived,
            broken: None,
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = match side_state.session.direct() {
                Some(memory) => {
                    let taken = memory.len().min(rest.len());
                    memory[..taken].copy_from_slice(&rest[..taken]);
                    let direct = side_state
                        .session
                        .handle_direct(taken, &mut Turn::unbounded(), &mut sink);
                    direct.map_err(Broken::Accusation)?;
                    taken
                }
                None => {
                    // So that large packets are read directly, whatever comes with their beginning.
                    let taken = rest.len().min(setup.piece_bytes.max(64));
                    let mut turn = Turn {
                        packets: 1,
                        ..Turn::unbounded()
                    };
                    side_state
                        .session
                        .handle_input(&rest[..taken], &mut turn, &mut sink)
                        .map_err(Broken::Accusation)?
                }
            };
            rest = &rest[taken..];
        }
        match sink.broken {
            Some(broken) => Err(broken),
            None => self.take_events(side),
        }
    }

    fn take_events(&mut self, side: usize) -> Result<(), Broken> {
        let [ours, peer] = pair(&mut self.sides, side);
        while let Some(event) = ours.session.poll_event() {
            match event {
                Event::Control(message) => {
                    let number = message.first().copied().unwrap_or(1);
                    if number > peer.controls || message != vec![number; usize::from(number) - 1] {
                        return Err(Broken::Event);
                    }
                }
                Event::Moved => {
                    if !peer.session.is_sent_by_queue() && !peer.session.has_moved() {
                        return Err(Broken::Event);
                    }
                }
                Event::Returned => {
                    if peer.session.is_sent_by_queue() {
                        return Err(Broken::Event);
                    }
                }
                Event::Ended => {
                    if !peer.has_ended || ours.is_over {
                        return Err(Broken::Event);
                    }
                    if ours.arrived != peer.appended {
                        return Err(Broken::EarlyEnd);
                    }
                    ours.is_over = true;
                }
                // The model asks nothing.
                Event::Echoed(_) => return Err(Broken::Event),
            }
        }
        Ok(())
    }
}

fn pair(sides: &mut [Side; 2], first: usize) -> [&mut Side; 2] {
    let [a, b] = sides;
    if first == 0 { [a, b] } else { [b, a] }
}
