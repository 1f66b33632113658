//! The session: both directions, and the paths that carry them.

mod input;
mod outgoing;
mod paths;
mod transmission;
mod window;

use std::collections::VecDeque;

use crate::frame::DATA_BYTES_MAX;
use crate::inbound::{Inbound, Memory};
use crate::log::{Cursor, Log};
use crate::position::Position;

/// Bytes that may arrive before they are acknowledged: a quarter of the smallest window that is set. Each frame for the
/// acknowledgement alone is two system calls and a wake-up: half of this cost bulk 13 % of its CPU.
const ACKNOWLEDGED_BYTES: usize = DATA_BYTES_MAX;

/// The window of each TCP connection until the receiver tells a larger one, and of peers that tell none: the bytes that
/// the connection may have under way without an acknowledgement.
pub const WINDOW_BYTES_FIRST: usize = 4 << 20;

/// Names a queue pair to both sides: the token by which they found each other. Never 0.
pub type QueuePairId = u64;

/// Stands for the TCP connection in place of a queue pair's name.
const TCP: QueuePairId = 0;

/// The side of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The side that made the first TCP connection. If both sides make attempts at once, its own wins.
    Initiator,
    /// The side that accepted the first TCP connection.
    Acceptor,
}

/// The state that one side tells the other when it resumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Standing {
    /// All before this has been received.
    pub received: Position,
    /// The queue pair that the side still has.
    pub path: Option<QueuePairId>,
}

/// An event that input has caused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// A message of the peer's guard.
    Control(Vec<u8>),
    /// The following bytes come over the queue pair.
    Moved,
    /// The following bytes come over the TCP connection again; none follows over the queue pair.
    Returned,
    /// The peer has ended the session.
    Ended,
    /// The peer has answered [`Session::echo`] with this number.
    Echoed(u64),
}

/// The path of outgoing bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Route {
    Tcp,
    /// TCP up to the mark, then the queue pair.
    Queue {
        path: QueuePairId,
        mark: Position,
    },
}

/// The path of incoming bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Source {
    Tcp,
    Queue(QueuePairId),
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
    window: bool,
    end: bool,
}

/// What is being written to the TCP connection: small frames and the header of a data frame, then bytes of the log.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Unit {
    head: Vec<u8>,
    head_sent: usize,
    data_left: usize,
}

/// How much of the window is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct WindowUse {
    /// Bytes have waited for an acknowledgement since [`Session::take_window_full`].
    is_full: bool,
    /// The most bytes that were under way since [`Session::take_window_peak`].
    peak: usize,
}

/// The traffic since the session began.
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
    /// Ticks sent and received over TCP.
    pub ticks: u64,
}

/// One end of a session. `H`: outgoing bytes that stay where they are. `L`: memory of a large incoming packet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Session<H, L> {
    role: Role,
    /// The greatest number of an attempt to resume.
    attempt: u64,
    /// The standing that this side has told in that attempt, until it resumes.
    standing: Option<Standing>,
    log: Log<H>,
    route: Route,
    /// The next byte for the TCP connection.
    tcp: Cursor,
    /// The next byte for the queue pair.
    queue: Cursor,
    /// All bytes before this position have been sent at least once.
    sent: Position,
    /// The TCP connection takes nothing while the peer has not acknowledged this many bytes, or has taken as many as it
    /// said: see [`Session::window_bytes`].
    window: usize,
    /// What this side tells that it takes; it ends a session whose peer sends more. None: the sides tell no windows.
    told_window: Option<usize>,
    /// What the peer takes over the present connection.
    peer_window: usize,
    use_of_window: WindowUse,
    /// Ends of packets that the queue pair has, as far as the log keeps them.
    packet_ends: VecDeque<Position>,
    pending: Pending,
    unit: Unit,
    source: Source,
    /// The traffic that came over queue pairs.
    received_by_queue: u64,
    /// The position up to which this side has acknowledged.
    told: Position,
    /// The position up to which the peer has acknowledged.
    heard: Position,
    inbound: Inbound<L>,
    /// The queue pair that this side has.
    path: Option<Path>,
    /// True if this side ends the session.
    ends: bool,
    /// The position at which the peer ends the session.
    peer_end: Option<Position>,
    has_ended: bool,
    events: VecDeque<Event>,
    counts: Counts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Path {
    id: QueuePairId,
    /// True if it may be lost while the peer lives: its bytes stay in the log until they are acknowledged.
    can_be_lost: bool,
    /// True if outgoing bytes go over it, or did. It does not carry a second time.
    has_carried: bool,
    /// True if the peer has sent over it, and has gone back to the TCP connection.
    peer_has_left: bool,
}

impl<H: AsRef<[u8]>, L: Memory> Session<H, L> {
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
            window: WINDOW_BYTES_FIRST,
            told_window: None,
            peer_window: WINDOW_BYTES_FIRST,
            use_of_window: WindowUse::default(),
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

    /// All before this has been received.
    pub fn received(&self) -> Position {
        Position(self.inbound.bytes + self.received_by_queue)
    }

    /// The peer has acknowledged all before this.
    pub fn acknowledged(&self) -> Position {
        self.log.start()
    }

    /// Bytes that no path has taken yet.
    pub fn unsent_bytes(&self) -> usize {
        match self.route {
            Route::Tcp => self.tcp_bytes(),
            Route::Queue { .. } => (self.log.end() - self.queue.position()) + self.tcp_bytes(),
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

    /// The traffic so far.
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

    /// Clears the counts, so that states of a model are equal that differ in nothing else.
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
