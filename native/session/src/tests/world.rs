//! Two sessions, the connections between them, and their queue pair: enough to see every promise kept or broken.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use super::queue_pair::{Hold, QueuePair};
use super::side::{Comparer, Dial, Side};
use super::tcp::{Flight, Portion, dialer};
use crate::{Event, LENGTH_BYTES, PathId, Violation};

/// Turns of a fair end: more means that nothing moves any more.
const FAIR_TURNS: usize = 250;

pub const MIB: usize = 1024 * 1024;

/// What the two sides have to do.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Per side: sizes of its packets.
    pub packets: [Vec<usize>; 2],
    /// Queue pairs that may be set up, one after the other.
    pub queue_pairs: u64,
    /// Whether a queue pair may be lost while both sides live.
    pub is_mortal: bool,
    /// Both sides begin on the first queue pair.
    pub begins_on_queue: bool,
    /// Bytes of the stream that [`Portion::Part`] takes at once.
    pub piece_bytes: usize,
    /// Bytes that a connection has under way.
    pub window: usize,
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

/// Something that one of the parties does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The user sends its next packet.
    Append {
        side: usize,
    },
    /// The queue pair takes the next packet past the log, or all of it but one byte.
    Pass {
        side: usize,
        whole: bool,
    },
    /// The connection takes bytes.
    Transmit {
        side: usize,
        portion: Portion,
    },
    /// Bytes from this side arrive.
    Deliver {
        from: usize,
        portion: Portion,
    },
    /// The queue pair takes bytes.
    Queue {
        side: usize,
        portion: Portion,
    },
    /// A packet that came over the queue pair is read.
    ReadQueue {
        side: usize,
    },
    /// This side hears what the peer has read from the queue pair.
    HearRead {
        side: usize,
    },
    /// The guards agree on another queue pair.
    Settle,
    /// The queue pair is ready on this side.
    AddPath {
        side: usize,
    },
    /// This side moves to the queue pair.
    Move {
        side: usize,
    },
    /// This side goes back to the TCP connection.
    Return {
        side: usize,
    },
    /// This side closes the queue pair that both have left.
    CloseQueue {
        side: usize,
    },
    /// The queue pair fails on this side.
    LoseQueue {
        side: usize,
    },
    /// This side sees that the peer has given the queue pair up.
    NoticeQueue {
        side: usize,
    },
    /// The connection fails on this side.
    LoseTcp {
        side: usize,
    },
    /// This side sees that the peer has given the connection up.
    NoticeTcp {
        side: usize,
    },
    /// This side takes the number of an attempt and connects.
    Dial {
        side: usize,
    },
    /// The secret is proved.
    Ask {
        side: usize,
    },
    /// The dial fails.
    LoseDial {
        side: usize,
    },
    /// This side sees that its dial will not be answered.
    NoticeDial {
        side: usize,
    },
    /// The standing on this connection arrives.
    DeliverStanding {
        from: usize,
        connection: u64,
    },
    /// The standing on this connection is lost.
    LoseStanding {
        from: usize,
        connection: u64,
    },
    Tick {
        side: usize,
    },
    Control {
        side: usize,
    },
    /// The user ends the session.
    End {
        side: usize,
    },
}

/// A promise that was not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Broken {
    /// A packet arrived twice, changed, or out of order.
    Order,
    /// One session accuses the other though both are honest.
    Accusation(Violation),
    /// A newer attempt was refused, or an older one was not.
    Attempt,
    /// The log has let go of bytes that the peer may still need.
    Released,
    /// Counts of bytes that contradict each other.
    Bytes,
    /// The peer's end came before all of its packets.
    EarlyEnd,
    /// A queue pair was closed that the peer still uses.
    EarlyClose,
    /// Events that nothing has caused.
    Event,
    /// Packets that never arrive though nothing is lost any more.
    Stuck,
    /// Bytes in a log though all has been acknowledged.
    LogKept,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    pub sides: [Side; 2],
    pub flights: Vec<Flight>,
    pub queue: Option<QueuePair>,
    pub queue_pairs: u64,
    /// Losses of connections, dials and queue pairs.
    pub losses: u8,
}

impl World {
    pub fn new(setup: &Setup) -> World {
        let mut world = World {
            sides: [0, 1].map(|side| Side::new(side, setup.window)),
            flights: Vec::new(),
            queue: None,
            queue_pairs: 0,
            losses: 0,
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
                let may = setup.is_mortal || !self.sides[side].session.is_sent_by_queue();
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
        let Some(packet) = setup
            .packet(side, side_state.appended)
            .filter(|_| !side_state.has_ended)
        else {
            return false;
        };
        let is_held = side_state.appended % 2 == 1;
        side_state.appended += 1;
        side_state.session.append(packet.len(), |log| match is_held {
            true => log.hold(packet),
            false => log.copy(&packet),
        });
        true
    }

    fn pass(&mut self, setup: &Setup, side: usize, whole: bool) -> bool {
        let side_state = &mut self.sides[side];
        let packet = setup
            .packet(side, side_state.appended)
            .filter(|_| !side_state.has_ended);
        let (Some(packet), true) = (packet, side_state.session.passes()) else {
            return false;
        };
        let mut framed = u32::try_from(packet.len())
            .expect("a small packet")
            .to_be_bytes()
            .to_vec();
        framed.extend(packet);
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
        let mut bytes = Vec::new();
        side_state.session.transmission(|slice| {
            bytes.extend_from_slice(slice);
            true
        });
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
                    side_state.session.handle_direct(taken, &mut sink);
                    taken
                }
                None => {
                    // So that large packets are read directly, whatever comes with their beginning.
                    let taken = rest.len().min(setup.piece_bytes.max(64));
                    side_state
                        .session
                        .handle_input(&rest[..taken], &mut sink)
                        .map_err(Broken::Accusation)?;
                    taken
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

/// The queue pair.
impl World {
    pub fn hold(&self, side: usize) -> Option<Hold> {
        self.queue.as_ref().map(|queue| queue.holds[side])
    }

    fn settle(&mut self, setup: &Setup) -> bool {
        let is_settled = self.queue.is_some() || self.queue_pairs == setup.queue_pairs;
        let [first, second] = &self.sides;
        let is_free = |side: &Side| side.session.path().is_none() && !side.session.is_sent_by_queue();
        let same = first.connection.is_some() && first.connection == second.connection;
        if is_settled || !same || !is_free(first) || !is_free(second) || self.reads_queue(0) || self.reads_queue(1) {
            return false;
        }
        self.queue_pairs += 1;
        self.queue = Some(QueuePair::new(self.queue_pairs));
        true
    }

    /// Whether the peer's bytes come over any of the queue pairs.
    fn reads_queue(&self, side: usize) -> bool {
        (1..=self.queue_pairs).any(|id| self.sides[side].session.reads_queue(id))
    }

    fn add_path(&mut self, setup: &Setup, side: usize) -> bool {
        match &mut self.queue {
            Some(queue) if queue.holds[side] == Hold::Awaited => {
                if queue.holds[1 - side] == Hold::Gone {
                    queue.leave(side);
                } else {
                    queue.holds[side] = Hold::Had;
                    self.sides[side].session.add_path(queue.id, setup.is_mortal);
                }
                true
            }
            _ => false,
        }
    }

    fn give_queue(&mut self, side: usize, portion: Portion) -> bool {
        if self.hold(side) != Some(Hold::Had) {
            return false;
        }
        let mut bytes = Vec::new();
        let limit = if portion == Portion::All { usize::MAX } else { 3 };
        self.sides[side].session.queue_slices(limit, |slice| {
            bytes.extend_from_slice(slice);
            true
        });
        self.sides[side].session.handle_queued(bytes.len());
        self.put_queue(side, &bytes);
        !bytes.is_empty()
    }

    fn put_queue(&mut self, side: usize, bytes: &[u8]) {
        if let Some(queue) = self.queue.as_mut().filter(|queue| queue.holds[1 - side] != Hold::Gone) {
            queue.unread[side].extend_from_slice(bytes);
        }
    }

    fn read_queue(&mut self, setup: &Setup, side: usize) -> Result<bool, Broken> {
        let Some(queue) = self.queue.as_mut().filter(|queue| queue.holds[side] == Hold::Had) else {
            return Ok(false);
        };
        let side_state = &mut self.sides[side];
        let Some(bytes) = queue
            .whole_packet(1 - side)
            .filter(|_| side_state.session.reads_queue(queue.id))
        else {
            return Ok(false);
        };
        let packet: Vec<u8> = queue.unread[1 - side].drain(..bytes).collect();
        queue.read[1 - side] += bytes as u64;
        let mut sink = Comparer {
            setup,
            from: 1 - side,
            arrived: &mut side_state.arrived,
            broken: None,
        };
        sink.compare_framed(&packet);
        if let Some(broken) = sink.broken {
            return Err(broken);
        }
        side_state.session.handle_queue_packets(bytes);
        self.take_events(side)?;
        Ok(true)
    }

    fn hear_read(&mut self, side: usize) -> bool {
        let Some(queue) = self.queue.as_ref().filter(|queue| queue.holds[side] == Hold::Had) else {
            return false;
        };
        let reads = self.sides[1 - side].session.reads_queue(queue.id) && queue.holds[1 - side] == Hold::Had;
        let read = if reads {
            queue.read_with_part(side)
        } else {
            queue.read[side]
        };
        let before = self.sides[side].session.logged_bytes();
        self.sides[side].session.handle_queue_read(read);
        self.sides[side].session.logged_bytes() != before
    }

    fn lose_queue(&mut self, side: usize) -> bool {
        match &mut self.queue {
            Some(queue) if queue.holds[side] == Hold::Had => {
                queue.leave(side);
                self.sides[side].session.lose_path();
                true
            }
            _ => false,
        }
    }

    /// The initiator closes the queue pair that it has left. The peer has left it, too: it takes the end for nothing
    /// else.
    fn close_queue(&mut self, side: usize) -> Result<bool, Broken> {
        if side != 0 || !self.sides[side].session.has_left_queue() || self.hold(side) != Some(Hold::Had) {
            return Ok(false);
        }
        if self.hold(1 - side) == Some(Hold::Had) && !self.sides[1 - side].session.has_left_queue() {
            return Err(Broken::EarlyClose);
        }
        Ok(self.lose_queue(side))
    }

    /// A session that has given its path up has its queue pair closed.
    fn after_resume(&mut self, side: usize, keeps_path: bool) -> Result<(), Broken> {
        let path = self.sides[side].session.path();
        if let Some(queue) = self.queue.as_mut().filter(|queue| queue.holds[side] == Hold::Had) {
            if path != Some(queue.id) {
                queue.leave(side);
            }
            if keeps_path != (path == Some(queue.id)) {
                return Err(Broken::Event);
            }
        }
        Ok(())
    }
}

/// Connections and attempts.
impl World {
    fn lose_tcp(&mut self, side: usize) -> bool {
        let lost = self.sides[side].connection.is_some();
        self.sides[side].session.lose_tcp();
        self.sides[side].leave_tcp();
        lost
    }

    /// The peer has given up the connection of this side.
    pub fn is_dead(&self, side: usize) -> bool {
        let Some(connection) = self.sides[side].connection else {
            return false;
        };
        let peer = &self.sides[1 - side];
        peer.connection != Some(connection) && peer.asked() != Some(connection)
    }

    /// Whether this side has a reason to dial.
    pub fn needs_dial(&self, side: usize) -> bool {
        let side_state = &self.sides[side];
        let has_path = |id: PathId| side_state.session.path() == Some(id);
        let reads_lost = (1..=self.queue_pairs)
            .any(|id| side_state.session.reads_queue(id) && !has_path(id) && self.hold(side) != Some(Hold::Awaited));
        let sends_lost = side_state.session.is_sent_by_queue() && side_state.session.path().is_none();
        side_state.connection.is_none() || reads_lost || sends_lost
    }

    fn dial(&mut self, side: usize) -> bool {
        let needs = self.needs_dial(side);
        let side_state = &mut self.sides[side];
        if side_state.dial.is_some() || !needs {
            return false;
        }
        side_state.dial = Some(Dial::Proving(side_state.session.next_attempt()));
        side_state.dials += 1;
        true
    }

    fn ask(&mut self, side: usize) -> Result<bool, Broken> {
        let Some(Dial::Proving(attempt)) = self.sides[side].dial else {
            return Ok(false);
        };
        self.sides[side].dial = None;
        if let Some(standing) = self.suspend(side, attempt)? {
            self.sides[side].dial = Some(Dial::Asked(attempt));
            self.flight(attempt, side).standing = Some(standing);
        }
        Ok(true)
    }

    fn suspend(&mut self, side: usize, attempt: u64) -> Result<Option<crate::Standing>, Broken> {
        let side_state = &mut self.sides[side];
        let suspended = side_state.session.suspend(attempt).ok();
        if suspended.is_some() != (attempt > side_state.attempt) {
            return Err(Broken::Attempt);
        }
        if suspended.is_some() {
            side_state.attempt = attempt;
            side_state.leave_tcp();
            if side_state.asked().is_some() {
                side_state.dial = None;
            }
        }
        Ok(suspended)
    }

    fn notice_dial(&mut self, side: usize) -> bool {
        let Some(attempt) = self.sides[side].asked() else {
            return false;
        };
        let is_dead = self.position(attempt, 0).is_none()
            && self.position(attempt, 1).is_none()
            && self.sides[1 - side].connection != Some(attempt);
        if is_dead {
            self.sides[side].dial = None;
        }
        is_dead
    }

    /// Whether such a standing is under way. The loss of an answer is that of the dial.
    pub fn may_lose_standing(&self, from: usize, connection: u64) -> bool {
        let index = self.position(connection, from);
        from == dialer(connection) && index.is_some_and(|index| self.flights[index].standing.is_some())
    }

    fn take_standing(&mut self, from: usize, connection: u64) -> Option<crate::Standing> {
        let index = self.position(connection, from)?;
        self.flights[index].standing?;
        if from == dialer(connection) {
            self.flights.remove(index).standing
        } else {
            self.flights[index].standing.take()
        }
    }

    fn deliver_standing(&mut self, from: usize, connection: u64) -> Result<bool, Broken> {
        let Some(theirs) = self.take_standing(from, connection) else {
            return Ok(false);
        };
        let side = 1 - from;
        if from == dialer(connection) {
            let Some(standing) = self.suspend(side, connection)? else {
                return Ok(true);
            };
            self.flight(connection, side).standing = Some(standing);
        } else if self.sides[side].asked() != Some(connection) {
            return Ok(true);
        } else {
            self.sides[side].dial = None;
        }
        match self.sides[side].session.resume(connection, theirs) {
            Ok(keeps_path) => {
                self.sides[side].connection = Some(connection);
                self.after_resume(side, keeps_path)?;
                Ok(true)
            }
            Err(None) => Err(Broken::Attempt),
            Err(Some(violation)) => Err(Broken::Accusation(violation)),
        }
    }

    /// Drops what nothing will ever read.
    fn forget_unreadable(&mut self) {
        let sides = &self.sides;
        self.flights.retain(|flight| {
            let reader = &sides[1 - flight.from];
            let is_read = reader.connection == Some(flight.connection) || reader.asked() == Some(flight.connection);
            let is_asked = flight.from == dialer(flight.connection) && flight.standing.is_some();
            (is_read || is_asked) && (flight.standing.is_some() || !flight.bytes.is_empty())
        });
        let queue = &mut self.queue;
        if let Some(pair) = queue.as_mut() {
            for side in 0..2 {
                if pair.holds == [Hold::Gone, Hold::Awaited] || pair.holds == [Hold::Awaited, Hold::Gone] {
                    pair.holds[side] = Hold::Gone;
                }
            }
            if pair.holds == [Hold::Gone; 2] {
                *queue = None;
            }
        }
        for side in &mut self.sides {
            side.session.forget_counts();
        }
    }
}

/// Promises.
impl World {
    fn check(&self, setup: &Setup) -> Result<(), Broken> {
        if self.is_over() {
            return Ok(());
        }
        for side in 0..2 {
            let (ours, peer) = (&self.sides[side], &self.sides[1 - side]);
            let appended = setup.stream_bytes(side, ours.appended);
            let received = usize::try_from(peer.session.received().0).expect("few bytes");
            if ours.session.logged_bytes() > appended || ours.session.unsent_bytes() > appended || received > appended {
                return Err(Broken::Bytes);
            }
            let safe = match &self.queue {
                Some(queue) if !setup.is_mortal => queue.unread[side].len(),
                _ => 0,
            };
            if appended - ours.session.logged_bytes() > received + safe {
                return Err(Broken::Released);
            }
        }
        Ok(())
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// Everybody does what there is to do, in turn, until all has arrived. `is_known` answers whether an earlier fair
    /// end has come through this state; the states of this one.
    pub fn end_fairly(&self, setup: &Setup, is_known: impl Fn(u64) -> bool) -> Result<Vec<u64>, Broken> {
        let mut world = self.clone();
        let mut states = Vec::new();
        for _ in 0..FAIR_TURNS {
            let fingerprint = world.fingerprint();
            if is_known(fingerprint) {
                return Ok(states);
            }
            states.push(fingerprint);
            if world.is_over() {
                return Ok(states);
            }
            if world.is_done(setup) {
                world.check_idle(setup)?;
                return Ok(states);
            }
            for side in 0..2 {
                world.fair_turn(setup, side)?;
            }
        }
        Err(Broken::Stuck)
    }

    fn fair_turn(&mut self, setup: &Setup, side: usize) -> Result<(), Broken> {
        use Action::*;
        let portion = Portion::All;
        while self.step(setup, Append { side })? {}
        for action in [
            NoticeTcp { side },
            NoticeQueue { side },
            NoticeDial { side },
            AddPath { side },
            Dial { side },
            Ask { side },
        ] {
            self.step(setup, action)?;
        }
        self.fair_standings(setup)?;
        while self.step(setup, Transmit { side, portion })? {}
        while self.step(
            setup,
            Deliver {
                from: 1 - side,
                portion,
            },
        )? && !self.is_over()
        {}
        while self.step(setup, Queue { side, portion })? {}
        while self.step(setup, ReadQueue { side })? && !self.is_over() {}
        self.step(setup, HearRead { side })?;
        Ok(())
    }

    fn fair_standings(&mut self, setup: &Setup) -> Result<(), Broken> {
        while let Some(flight) = self.flights.iter().find(|flight| flight.standing.is_some()) {
            let action = Action::DeliverStanding {
                from: flight.from,
                connection: flight.connection,
            };
            self.step(setup, action)?;
        }
        Ok(())
    }

    fn is_done(&self, setup: &Setup) -> bool {
        let [first, second] = &self.sides;
        first.connection == second.connection
            && self.flights.is_empty()
            && (0..2).all(|side| {
                let (ours, peer) = (&self.sides[side], &self.sides[1 - side]);
                ours.connection.is_some()
                    && !self.needs_dial(side)
                    && !ours.has_ended
                    && ours.appended == setup.packets[side].len()
                    && peer.arrived == ours.appended
                    && !ours.session.clone().poll_transmit()
            })
    }

    /// All has arrived: a tick of each side brings the last acknowledgement, and the logs are empty.
    fn check_idle(mut self, setup: &Setup) -> Result<(), Broken> {
        if self.sides[0].attempt != self.sides[1].attempt {
            return Err(Broken::Attempt);
        }
        for side in [0, 1] {
            self.step(setup, Action::Tick { side })?;
            self.fair_turn(setup, side)?;
            self.fair_turn(setup, 1 - side)?;
        }
        for side in &mut self.sides {
            side.session.shrink();
            if side.session.logged_bytes() > 0 || side.session.allocated_bytes() > 0 {
                return Err(Broken::LogKept);
            }
            if side.session.unsent_bytes() > 0 {
                return Err(Broken::Bytes);
            }
        }
        Ok(())
    }
}

fn pair(sides: &mut [Side; 2], first: usize) -> [&mut Side; 2] {
    let [a, b] = sides;
    if first == 0 { [a, b] } else { [b, a] }
}
