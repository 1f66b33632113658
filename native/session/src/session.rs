//! The session: both directions, and the paths that carry them.

use std::collections::VecDeque;

use crate::Violation;
use crate::frame::{CONTROL_BYTES_MAX, DATA_BYTES_MAX, Header, Kind, MOVE_BYTES};
use crate::inbound::{Inbound, LENGTH_BYTES, Said, Sink};
use crate::log::{Cursor, Log};
use crate::position::Position;

/// Bytes that may arrive before they are acknowledged: a quarter of the smallest window that is set. Each frame for the
/// acknowledgement alone is two system calls and a wake-up: half of this cost bulk 13 % of its CPU.
const ACKNOWLEDGED_BYTES: usize = DATA_BYTES_MAX;

/// The window that a session begins with: what a TCP connection has under way before its first acknowledgement.
const WINDOW_BYTES: usize = 4 << 20;

/// Names a queue pair to both sides: the token by which they found each other. Never 0.
pub type PathId = u64;

/// In the place of a queue pair's name: the TCP connection itself.
const TCP: PathId = 0;

/// Which side of the session this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// It made the first TCP connection. Of two attempts at once its own wins.
    Initiator,
    /// It accepted the first TCP connection.
    Acceptor,
}

/// What one side tells the other when it resumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Standing {
    /// All before this has been received.
    pub received: Position,
    /// The queue pair that it still has.
    pub path: Option<PathId>,
}

/// An attempt with this number or a greater one has come before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("attempt {0} has come before")]
pub struct Superseded(pub u64);

/// Something that input has brought about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// A message of the peer's guard.
    Control(Vec<u8>),
    /// What follows comes over the queue pair.
    Moved,
    /// What follows comes over the TCP connection again; nothing comes over the queue pair any more.
    Returned,
    /// The peer has ended the session.
    Ended,
    /// The peer has answered [`Session::echo`] with this number.
    Echoed(u64),
}

/// Which path takes outgoing bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Route {
    Tcp,
    /// TCP up to the mark, then the queue pair.
    Queue {
        path: PathId,
        mark: Position,
    },
}

/// Which path brings incoming bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Source {
    Tcp,
    Queue(PathId),
}

/// Frames that wait for the frame under way to end.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Pending {
    tick: bool,
    /// Numbers of the frame of this kind.
    echo: Option<u64>,
    echoed: Option<u64>,
    controls: VecDeque<Vec<u8>>,
    acknowledgement: bool,
    begin_on_tcp: bool,
    move_to_queue: bool,
    end: bool,
}

/// What is being written to the TCP connection: small frames and the header of a data frame, then bytes of the log.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Unit {
    head: Vec<u8>,
    head_sent: usize,
    data_left: usize,
}

/// What has passed, since the session began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Counts {
    /// Packets and ticks that came over TCP.
    pub packets_received: u64,
    /// Bytes of the stream that came over TCP.
    pub bytes_received: u64,
    /// Packets appended, and ticks sent over TCP.
    pub packets_sent: u64,
    /// Bytes appended.
    pub bytes_sent: u64,
}

/// One end of a session. `H`: outgoing bytes that stay where they are. `L`: memory of a large incoming packet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Session<H, L> {
    role: Role,
    /// The greatest number of an attempt to resume.
    attempt: u64,
    /// What this side has said in that attempt, until it resumes.
    standing: Option<Standing>,
    log: Log<H>,
    route: Route,
    /// The next byte for the TCP connection.
    tcp: Cursor,
    /// The next byte for the queue pair.
    queue: Cursor,
    /// All before this has been sent at least once.
    sent: Position,
    /// The TCP connection takes no more while the peer has not acknowledged this many bytes.
    window: usize,
    /// Ends of packets that the queue pair has, as far as the log keeps them.
    packet_ends: VecDeque<Position>,
    pending: Pending,
    unit: Unit,
    source: Source,
    /// What came over queue pairs.
    received_by_queue: u64,
    /// What the peer knows to have arrived.
    told: Position,
    /// What the peer has said to have received.
    heard: Position,
    inbound: Inbound<L>,
    /// The queue pair that this side has.
    path: Option<Path>,
    /// This side ends the session.
    ends: bool,
    /// Where the peer ends the session.
    peer_end: Option<Position>,
    has_ended: bool,
    events: VecDeque<Event>,
    counts: Counts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Path {
    id: PathId,
    /// It may be lost while the peer lives: what it takes stays in the log until it is acknowledged.
    is_mortal: bool,
    /// Outgoing bytes go over it, or did. It does not carry a second time.
    has_carried: bool,
    /// The peer has sent over it, and has gone back to the TCP connection.
    peer_has_left: bool,
}

impl<H: AsRef<[u8]>, L: AsMut<[u8]>> Session<H, L> {
    /// A session that TCP carries, from position 0 on. A packet above `packet_max_bytes` is a violation.
    pub fn new(role: Role, packet_max_bytes: usize) -> Self {
        Session {
            role,
            attempt: 0,
            standing: None,
            log: Log::default(),
            route: Route::Tcp,
            tcp: Cursor::default(),
            queue: Cursor::default(),
            sent: Position::default(),
            window: WINDOW_BYTES,
            packet_ends: VecDeque::new(),
            pending: Pending::default(),
            unit: Unit::default(),
            source: Source::Tcp,
            received_by_queue: 0,
            told: Position::default(),
            heard: Position::default(),
            inbound: Inbound::new(packet_max_bytes),
            path: None,
            ends: false,
            peer_end: None,
            has_ended: false,
            events: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// Which side of the session this is.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Bounds what the TCP connection has under way, at least what the peer receives before it acknowledges. The rest waits in
    /// the log, ready to be written when an acknowledgement comes.
    pub fn set_window(&mut self, bytes: usize) {
        self.window = bytes.max(ACKNOWLEDGED_BYTES);
    }

    /// All before this has been received.
    pub fn received(&self) -> Position {
        Position(self.inbound.bytes + self.received_by_queue)
    }

    /// Bytes that no path has taken yet.
    pub fn unsent_bytes(&self) -> usize {
        match self.route {
            Route::Tcp => self.log.end() - self.tcp.position(),
            Route::Queue { mark, .. } => (self.log.end() - self.queue.position()) + (mark - self.tcp.position()),
        }
    }

    /// Bytes that the log keeps.
    pub fn logged_bytes(&self) -> usize {
        self.log.end() - self.log.start()
    }

    /// Memory of copies in the log.
    pub fn allocated_bytes(&self) -> usize {
        self.log.allocated_bytes()
    }

    /// What has passed.
    pub fn counts(&self) -> Counts {
        Counts {
            packets_received: self.counts.packets_received + self.inbound.packets,
            bytes_received: self.inbound.bytes,
            ..self.counts
        }
    }

    /// Whether this side moved to the queue pair that it has.
    #[cfg(test)]
    pub(crate) fn has_moved(&self) -> bool {
        self.path.is_some_and(|path| path.has_carried)
    }

    /// Clears the counts: states of a model that differ in nothing else are one.
    #[cfg(test)]
    pub(crate) fn forget_counts(&mut self) {
        self.counts = Counts::default();
        self.inbound.packets = 0;
    }

    /// Frees memory that an idle session does not need.
    pub fn shrink(&mut self) {
        self.log.shrink();
        self.inbound.shrink();
        if self.unit.head_sent == self.unit.head.len() {
            self.unit.head = Vec::new();
            self.unit.head_sent = 0;
        }
    }
}

/// Outgoing packets.
impl<H: AsRef<[u8]>, L: AsMut<[u8]>> Session<H, L> {
    /// Whether a packet may go to the queue pair without the log: it carries, all before has left, and it lives as long as the
    /// peer does.
    pub fn passes(&self) -> bool {
        self.log.is_empty() && self.keeps_nothing()
    }

    /// The queue pair has taken the first `bytes` bytes of a packet of `packet_bytes` bytes with its length, past the log. The
    /// rest goes by [`Self::append_rest`].
    pub fn handle_passed(&mut self, bytes: usize, packet_bytes: usize) {
        self.counts.packets_sent += 1;
        self.counts.bytes_sent += packet_bytes as u64;
        self.log.pass(bytes);
        self.sent = self.log.end();
        self.queue = self.log.seek(self.log.end()).unwrap_or_default();
    }

    /// A packet of `bytes` bytes: its length, then its pieces by the two functions of `add`.
    pub fn append(&mut self, bytes: usize, add: impl FnOnce(&mut Log<H>)) {
        let length = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.counts.packets_sent += 1;
        self.counts.bytes_sent += (LENGTH_BYTES + bytes) as u64;
        self.log.copy(&length.to_be_bytes());
        self.append_rest(add);
    }

    /// The rest of a packet, behind [`Self::handle_passed`].
    pub fn append_rest(&mut self, add: impl FnOnce(&mut Log<H>)) {
        add(&mut self.log);
        if matches!(self.route, Route::Queue { .. }) {
            self.packet_ends.push_back(self.log.end());
        }
    }

    /// Slices of up to `bytes` bytes for the queue pair, to `take` as long as that answers true.
    pub fn queue_slices<'a>(&'a self, bytes: usize, take: impl FnMut(&'a [u8]) -> bool) {
        if matches!(self.route, Route::Queue { .. }) {
            self.log.slices(&self.queue, bytes, take);
        }
    }

    /// The queue pair has taken this many bytes of them.
    pub fn handle_queued(&mut self, bytes: usize) {
        self.log.advance(&mut self.queue, bytes);
        self.sent = self.sent.max(self.queue.position());
        if self.keeps_nothing() {
            self.release(self.queue.position());
        }
    }

    /// The queue pair's peer has read the first `bytes` bytes that went over it.
    pub fn handle_queue_read(&mut self, bytes: u64) {
        if let Route::Queue { mark, .. } = self.route {
            if self.log.start() < mark {
                return;
            }
            let read = Position(mark.0 + bytes).min(self.queue.position());
            // The peer gives up a packet of which it has a part when it loses the queue pair.
            let whole = self.packet_ends.iter().take_while(|&&end| end <= read).last().copied();
            if let Some(end) = whole {
                self.release(end);
            }
        }
    }

    /// Whether what the queue pair takes need not be kept: it is lost only with the peer, the peer has it, too (it has moved
    /// there), the attempt under way does not give it up, and all that went over TCP before has arrived.
    fn keeps_nothing(&self) -> bool {
        match (self.route, self.path) {
            (Route::Queue { path: id, mark }, Some(path)) => {
                path.id == id
                    && !path.is_mortal
                    && self.source == Source::Queue(id)
                    && self.standing.is_none_or(|ours| ours.path == Some(id))
                    && self.log.start() >= mark
            }
            _ => false,
        }
    }

    fn release(&mut self, position: Position) {
        self.log.acknowledge(position);
        while self.packet_ends.front().is_some_and(|&end| end <= position) {
            self.packet_ends.pop_front();
        }
    }
}

/// The TCP connection, outgoing.
impl<H: AsRef<[u8]>, L: AsMut<[u8]>> Session<H, L> {
    /// Asks for a sign of life, ahead of the bytes that wait.
    pub fn tick(&mut self) {
        if !self.pending.tick {
            self.counts.packets_sent += 1;
            self.pending.tick = true;
        }
    }

    /// Asks the peer to answer with this number, ahead of the bytes that wait. Lost with the connection.
    pub fn echo(&mut self, number: u64) {
        self.pending.echo = Some(number);
    }

    /// A message for the peer's guard, ahead of the bytes that wait. False: it is too large.
    pub fn control(&mut self, message: Vec<u8>) -> bool {
        let fits = message.len() <= CONTROL_BYTES_MAX;
        if fits {
            self.pending.controls.push_back(message);
        }
        fits
    }

    /// Nothing follows what has been appended: the peer's session ends, too, when that has arrived.
    pub fn end(&mut self) {
        self.ends = true;
        self.pending.end = true;
    }

    /// Bytes of the stream that are for the TCP connection and wait for it.
    fn tcp_bytes(&self) -> usize {
        let limit = match self.route {
            Route::Tcp => self.log.end(),
            Route::Queue { mark, .. } => mark,
        };
        limit - self.tcp.position()
    }

    /// Bytes of the stream that the window leaves to the TCP connection.
    fn window_left(&self) -> usize {
        self.window.saturating_sub(self.tcp.position() - self.log.start())
    }

    /// Whether there is anything for the TCP connection that it may take.
    pub fn is_transmission_due(&self) -> bool {
        let pending = &self.pending;
        self.tcp_bytes().min(self.window_left()) > 0
            || self.unit.head_sent < self.unit.head.len()
            || pending.tick
            || pending.echo.is_some()
            || pending.echoed.is_some()
            || pending.acknowledgement
            || pending.begin_on_tcp
            || pending.move_to_queue
            || pending.end
            || !pending.controls.is_empty()
    }

    /// Prepares what is to be written next. False: nothing is.
    pub fn poll_transmit(&mut self) -> bool {
        if self.unit.head_sent < self.unit.head.len() || self.unit.data_left > 0 {
            return true;
        }
        self.unit.head.clear();
        self.unit.head_sent = 0;
        if std::mem::take(&mut self.pending.tick) {
            self.frame(Kind::Tick, &[]);
        }
        // One answer, however many questions have come since the last one.
        for (number, kind) in [
            (self.pending.echoed.take(), Kind::Echoed),
            (self.pending.echo.take(), Kind::Echo),
        ] {
            if let Some(number) = number {
                self.frame(kind, &number.to_be_bytes());
            }
        }
        while let Some(message) = self.pending.controls.pop_front() {
            self.frame(Kind::Control, &message);
        }
        if std::mem::take(&mut self.pending.begin_on_tcp) {
            self.move_frame(TCP, self.tcp.position());
        }
        let wanted = self.tcp_bytes();
        let bytes = wanted.min(self.window_left()).min(DATA_BYTES_MAX);
        if bytes > 0 {
            self.header(Kind::Data, bytes);
            self.unit.data_left = bytes;
        } else {
            let moves = self.pending.move_to_queue && wanted == 0;
            if let (true, Route::Queue { path, mark }, Some(_)) = (moves, self.route, self.path) {
                self.move_frame(path, mark);
                self.pending.move_to_queue = false;
            }
            if self.pending.end && self.unsent_bytes() == 0 {
                self.frame(Kind::End, &self.log.end().0.to_be_bytes());
                self.pending.end = false;
            }
            if self.pending.acknowledgement {
                self.frame(Kind::Data, &[]);
            }
        }
        !self.unit.head.is_empty()
    }

    fn move_frame(&mut self, path: PathId, mark: Position) {
        let mut place = [0; MOVE_BYTES];
        place[..8].copy_from_slice(&path.to_be_bytes());
        place[8..].copy_from_slice(&mark.0.to_be_bytes());
        self.frame(Kind::Move, &place);
    }

    fn frame(&mut self, kind: Kind, message: &[u8]) {
        self.header(kind, message.len());
        self.unit.head.extend_from_slice(message);
    }

    fn header(&mut self, kind: Kind, bytes: usize) {
        let received = self.received();
        self.told = received;
        self.pending.acknowledgement = false;
        let header = Header { kind, bytes, received };
        self.unit.head.extend_from_slice(&header.encode());
    }

    /// The slices to write, after [`Self::poll_transmit`], to `take` as long as that answers true.
    pub fn transmission<'a>(&'a self, mut take: impl FnMut(&'a [u8]) -> bool) {
        let head = &self.unit.head[self.unit.head_sent..];
        if head.is_empty() || take(head) {
            self.log.slices(&self.tcp, self.unit.data_left, take);
        }
    }

    /// The connection has taken this many bytes of them.
    pub fn handle_transmitted(&mut self, bytes: usize) {
        let head = bytes.min(self.unit.head.len() - self.unit.head_sent);
        self.unit.head_sent += head;
        let data = (bytes - head).min(self.unit.data_left);
        self.unit.data_left -= data;
        self.log.advance(&mut self.tcp, data);
        self.sent = self.sent.max(self.tcp.position());
    }
}

/// What comes in.
impl<H: AsRef<[u8]>, L: AsMut<[u8]>> Session<H, L> {
    /// Memory that the connection's next bytes belong to, if it pays to read them there.
    pub fn direct(&mut self) -> Option<&mut [u8]> {
        self.inbound.direct()
    }

    /// The connection has written `bytes` bytes into [`Self::direct`].
    pub fn handle_direct<S: Sink<Large = L>>(&mut self, bytes: usize, sink: &mut S) {
        self.inbound.handle_direct(bytes, sink);
        self.note_received();
    }

    /// Takes bytes that the TCP connection has brought. Packets go to `sink`. After an error the session is over.
    pub fn handle_input<S: Sink<Large = L>>(&mut self, bytes: &[u8], sink: &mut S) -> Result<(), Violation> {
        let mut rest = bytes;
        while !rest.is_empty() && !self.has_ended {
            let (taken, said) = self.inbound.handle(rest, sink)?;
            rest = &rest[taken..];
            match said {
                None => {}
                Some(Said::Header(header)) => self.handle_header(header)?,
                Some(Said::Message(Kind::Move, message)) => self.handle_move(&message)?,
                Some(Said::Message(Kind::End, message)) => self.handle_end(&message)?,
                Some(Said::Message(Kind::Echo, message)) => self.pending.echoed = Some(parse_number(&message)?),
                Some(Said::Message(Kind::Echoed, message)) => {
                    self.events.push_back(Event::Echoed(parse_number(&message)?));
                }
                Some(Said::Message(_, message)) => self.events.push_back(Event::Control(message)),
            }
        }
        self.note_received();
        Ok(())
    }

    fn note_received(&mut self) {
        if self.received() - self.told >= ACKNOWLEDGED_BYTES {
            self.pending.acknowledgement = true;
        }
    }

    fn handle_header(&mut self, header: Header) -> Result<(), Violation> {
        if header.received > self.sent {
            return Err(Violation::Position);
        }
        self.heard = self.heard.max(header.received);
        self.release(header.received.min(self.sent_again()));
        match header.kind {
            Kind::Data if header.bytes > 0 && self.source != Source::Tcp => Err(Violation::Path),
            Kind::Tick => {
                self.counts.packets_received += 1;
                Ok(())
            }
            // Nothing follows such a header.
            Kind::Control if header.bytes == 0 => {
                self.events.push_back(Event::Control(Vec::new()));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// What is before this place is not being sent again. Behind a resume the peer acknowledges bytes that come once more, but
    /// the frames that bring them need them.
    fn sent_again(&self) -> Position {
        match self.route {
            Route::Queue { mark, .. } if self.tcp.position() >= mark => self.log.end(),
            _ => self.tcp.position(),
        }
    }

    fn handle_move(&mut self, message: &[u8]) -> Result<(), Violation> {
        let (path, mark) = parse_move(message).ok_or(Violation::Frame)?;
        let is_between_packets = self.inbound.is_between_packets();
        match self.source {
            // Behind a resume. A queue pair may have brought more since this side told its standing: that comes again.
            Source::Tcp if path == TCP && (mark == self.received() || mark < self.received() && is_between_packets) => {
                self.inbound.skip(self.received() - mark);
                Ok(())
            }
            // The side that returns knows that all it sent before has arrived.
            Source::Queue(left) if path == TCP && mark == self.received() => {
                self.source = Source::Tcp;
                if let Some(path) = self.path.as_mut().filter(|path| path.id == left) {
                    path.peer_has_left = true;
                }
                self.events.push_back(Event::Returned);
                Ok(())
            }
            // Said again behind a resume.
            Source::Queue(known) if known == path && mark <= self.received() => Ok(()),
            Source::Tcp if path != TCP && mark == self.received() && is_between_packets => {
                self.source = Source::Queue(path);
                // The peer keeps what went over TCP until it knows that it has arrived.
                self.pending.acknowledgement = true;
                self.events.push_back(Event::Moved);
                Ok(())
            }
            _ => Err(Violation::Move),
        }
    }

    /// The end may come before what a queue pair has taken before it.
    fn handle_end(&mut self, message: &[u8]) -> Result<(), Violation> {
        let end = Position(parse_number(message)?);
        if end < self.received() {
            return Err(Violation::Position);
        }
        self.peer_end = Some(end);
        self.note_end();
        Ok(())
    }

    fn note_end(&mut self) {
        if self.peer_end.is_some_and(|end| end <= self.received()) && !self.has_ended {
            self.has_ended = true;
            self.events.push_back(Event::Ended);
        }
    }

    /// Whether the peer's bytes come over the queue pair with this name.
    pub fn reads_queue(&self, path: PathId) -> bool {
        self.source == Source::Queue(path)
    }

    /// Whether the peer has moved to a queue pair that this side does not have: nothing comes until the session is resumed.
    pub fn awaits_queue(&self) -> bool {
        matches!(self.source, Source::Queue(carries) if self.path() != Some(carries))
    }

    /// The queue pair has brought packets: their bytes with their lengths.
    pub fn handle_queue_packets(&mut self, bytes: usize) {
        self.received_by_queue += bytes as u64;
        self.note_end();
    }

    /// Takes the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

fn parse_number(message: &[u8]) -> Result<u64, Violation> {
    Ok(u64::from_be_bytes(message.try_into().map_err(|_| Violation::Frame)?))
}

fn parse_move(message: &[u8]) -> Option<(PathId, Position)> {
    let (path, mark) = message.split_at_checked(8)?;
    Some((
        u64::from_be_bytes(path.try_into().ok()?),
        Position(u64::from_be_bytes(mark.try_into().ok()?)),
    ))
}

/// Paths.
impl<H: AsRef<[u8]>, L: AsMut<[u8]>> Session<H, L> {
    /// This side has a queue pair, which both know by this name; nothing goes over it yet. `is_mortal`: it may be lost while
    /// the peer lives. An attempt whose standings were told before gives it up.
    pub fn add_path(&mut self, id: PathId, is_mortal: bool) {
        self.path = Some(Path {
            id,
            is_mortal,
            has_carried: false,
            peer_has_left: false,
        });
    }

    /// The queue pair that this side has.
    pub fn path(&self) -> Option<PathId> {
        self.path.map(|path| path.id)
    }

    /// Both sides begin on the queue pair of [`Self::add_path`], before the first byte.
    pub fn begin_on_queue(&mut self) {
        if let Some(path) = &mut self.path {
            path.has_carried = true;
            self.route = Route::Queue {
                path: path.id,
                mark: Position::default(),
            };
            self.source = Source::Queue(path.id);
        }
    }

    /// What is appended from here on goes over the queue pair of [`Self::add_path`]. False: it carries or has carried, or there
    /// is none.
    pub fn move_to_queue(&mut self) -> bool {
        let (Route::Tcp, Some(path)) = (self.route, self.path.as_mut().filter(|path| !path.has_carried)) else {
            return false;
        };
        path.has_carried = true;
        let mark = self.log.end();
        self.route = Route::Queue { path: path.id, mark };
        self.queue = self.log.seek(mark).unwrap_or_default();
        self.pending.move_to_queue = true;
        true
    }

    /// What is appended from here on goes over the TCP connection again. The initiator begins: it returns while both sides send
    /// over the queue pair, the acceptor when the initiator has returned. False: it is not this side's turn, or the peer has not
    /// said yet that all has arrived, which its next frame over TCP does.
    pub fn return_to_tcp(&mut self) -> bool {
        let Route::Queue { mark, .. } = self.route else {
            return false;
        };
        let is_turn = match self.role {
            Role::Initiator => self.source != Source::Tcp,
            Role::Acceptor => self.path.is_some_and(|path| path.peer_has_left),
        };
        let has_arrived = self.heard >= self.log.end() && self.tcp.position() >= mark;
        if !is_turn || !has_arrived || self.standing.is_some() || self.pending.move_to_queue {
            return false;
        }
        self.release(self.log.end());
        self.route = Route::Tcp;
        self.tcp = self.log.seek(self.log.end()).unwrap_or_default();
        self.pending.begin_on_tcp = true;
        true
    }

    /// Whether both sides have gone back to the TCP connection from the queue pair that this side has.
    pub fn has_left_queue(&self) -> bool {
        self.route == Route::Tcp && self.path.is_some_and(|path| path.peer_has_left)
    }

    /// The next frame for the TCP connection tells the peer what has arrived.
    pub fn acknowledge(&mut self) {
        self.pending.acknowledgement = true;
    }

    /// Whether outgoing packets go over the queue pair.
    pub fn is_sent_by_queue(&self) -> bool {
        matches!(self.route, Route::Queue { .. })
    }

    /// The queue pair is lost: [`Self::suspend`] says so to the peer. Nothing is sent or received over it any more. If an
    /// attempt is under way, its standing may have named the queue pair: another attempt has to follow.
    pub fn lose_path(&mut self) {
        self.path = None;
    }

    /// The TCP connection is lost, and the frames under way with it.
    pub fn lose_tcp(&mut self) {
        self.unit = Unit::default();
        self.inbound.reset_frame();
        self.peer_end = None;
        self.pending = Pending {
            end: self.ends,
            move_to_queue: self.pending.move_to_queue,
            ..Pending::default()
        };
    }

    /// The number of the next attempt of this side.
    pub fn next_attempt(&self) -> u64 {
        let role = match self.role {
            Role::Initiator => 1,
            Role::Acceptor => 0,
        };
        ((self.attempt >> 1) + 1) << 1 | role
    }

    /// Whether an attempt with this number may still succeed.
    pub fn is_newer(&self, attempt: u64) -> bool {
        attempt > self.attempt
    }

    /// An attempt to resume begins, for which the peer has proved the session's secret. The TCP connection is given up if
    /// there is one. Returns what to tell the peer.
    pub fn suspend(&mut self, attempt: u64) -> Result<Standing, Superseded> {
        if !self.is_newer(attempt) {
            return Err(Superseded(self.attempt));
        }
        self.attempt = attempt;
        self.lose_tcp();
        let standing = Standing {
            received: self.received(),
            path: self.path().filter(|&path| self.is_free_for(path)),
        };
        self.standing = Some(standing);
        Ok(standing)
    }

    /// Whether neither direction needs a queue pair that was there before this one.
    fn is_free_for(&self, path: PathId) -> bool {
        let sends = match self.route {
            Route::Tcp => true,
            Route::Queue { path: carries, .. } => carries == path,
        };
        let receives = match self.source {
            Source::Tcp => true,
            Source::Queue(carries) => carries == path,
        };
        sends && receives
    }

    /// The attempt has led to another TCP connection, on which the peer has said this. True: the queue pair carries on. False:
    /// there is none, or it is given up. Err: the attempt is an older one or has led to a resume before (None), or the session
    /// is over.
    pub fn resume(&mut self, attempt: u64, theirs: Standing) -> Result<bool, Option<Violation>> {
        let Some(ours) = self.standing.filter(|_| attempt == self.attempt) else {
            return Err(None);
        };
        // Over a queue pair the peer may have read on since, and what lives as long as the peer is not kept.
        let acknowledged = match self.route {
            Route::Tcp => self.log.start(),
            Route::Queue { mark, .. } => self.log.start().min(mark),
        };
        if theirs.received < acknowledged || theirs.received > self.sent {
            return Err(Some(Violation::Position));
        }
        self.standing = None;
        self.heard = self.heard.max(theirs.received);
        // Whatever the caller did without a connection, the next one begins with a frame.
        self.unit = Unit::default();
        self.inbound.reset_frame();
        self.release(theirs.received);
        // By what both have said: whatever has become of the queue pair since, the peer decides the same.
        let keeps_path = ours.path.is_some() && ours.path == theirs.path;
        if !keeps_path {
            self.path = None;
            self.route = Route::Tcp;
            self.source = Source::Tcp;
            self.packet_ends.clear();
            self.pending.move_to_queue = false;
        }
        let from = match self.route {
            Route::Tcp => theirs.received,
            Route::Queue { mark, .. } => {
                self.pending.move_to_queue = true;
                theirs.received.min(mark)
            }
        };
        self.tcp = self
            .log
            .seek(from.max(self.log.start()))
            .ok_or(Some(Violation::Position))?;
        self.pending.begin_on_tcp = self.route == Route::Tcp;
        // The peer's frame with the acknowledgement may be lost.
        self.pending.acknowledgement = self.received() != self.told;
        Ok(keeps_path)
    }
}
