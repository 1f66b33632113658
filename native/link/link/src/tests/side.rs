//! One node: its link, what the port keeps for it, and what its guard knows.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use bytes::buf::UninitSlice;
use inet_rdma_paths::State;
use inet_rdma_session::Standing as Told;
use inet_rdma_session::{Memory, Role, Sink};

use crate::{Link, Notice, Standing};

/// Memory of a large packet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Large(pub Vec<u8>);

impl Memory for Large {
    fn memory(&mut self) -> &mut UninitSlice {
        UninitSlice::new(&mut self.0)
    }
}

/// The user's packet with this number.
pub fn packet(from: usize, number: usize, sizes: &[usize]) -> Vec<u8> {
    let bytes = sizes[number % sizes.len()];
    let first = from * 101 + number * 29;
    (0..bytes).map(|offset| (first + offset * 7) as u8).collect()
}

/// Takes the packets of a side, which must be those of its peer, each once and in order.
pub struct Receiver<'a> {
    pub from: usize,
    pub sizes: &'a [usize],
    pub arrived: &'a mut usize,
    pub is_wrong: bool,
}

impl Receiver<'_> {
    fn take(&mut self, bytes: &[u8]) {
        self.is_wrong |= bytes != packet(self.from, *self.arrived, self.sizes);
        *self.arrived += 1;
    }
}

impl Sink for Receiver<'_> {
    type Large = Large;

    fn allocate(&mut self, bytes: usize) -> Option<Large> {
        Some(Large(vec![0; bytes]))
    }

    fn small(&mut self, packet: &[u8]) {
        self.take(packet);
    }

    fn large(&mut self, packet: Large) {
        self.take(&packet.0);
    }
}

/// An attempt of this side to resume, in the steps of inet_rdma_resume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dial {
    /// The connection is there, and the number taken.
    Connected { number: u64, connection: u64 },
    /// This side has given up the old connection and told its standing.
    Asked { number: u64, connection: u64, ours: Told },
    /// The peer has told its standing, and resumed.
    Answered { number: u64, connection: u64, theirs: Told },
}

impl Dial {
    pub fn connection(self) -> u64 {
        match self {
            Dial::Connected { connection, .. } | Dial::Asked { connection, .. } | Dial::Answered { connection, .. } => {
                connection
            }
        }
    }
}

/// What the guard knows, by notices alone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Guard {
    /// It has another TCP connection made.
    pub dials: bool,
    /// It has been told that a path is suspected, and of no end of that.
    pub is_suspicious: bool,
    pub ending: Option<Ending>,
}

/// Why the port ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    /// The node's user.
    Closed,
    PeerClosed,
    Misbehaved,
    RolledBack,
    /// The guard has found the peer dead.
    Dead,
    /// The port says nothing: the queue pair of a peer that has ended.
    Queue,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Side {
    pub link: Link<Vec<u8>, Large>,
    /// The connections and the queue pairs that the port keeps.
    pub tcp: Option<u64>,
    pub superseded: Option<u64>,
    pub queue: Option<u64>,
    pub retired: Option<u64>,
    /// The port reads the queue pair.
    pub reads: bool,
    pub is_busy: bool,
    pub guard: Guard,
    pub dial: Option<Dial>,
    /// Packets of this side's users, and packets of the peer's that have arrived.
    pub sent: usize,
    pub arrived: usize,
    /// Bytes that this side has written, by connection: what its sealer takes for the next nonce.
    pub written: Vec<(u64, u64)>,
    pub is_dead: bool,
    pub is_stopped: bool,
    /// The mover is at work: it has not moved the link yet.
    pub is_settling: bool,
}

impl Side {
    pub fn new(side: usize, patience: Duration) -> Side {
        let role = [Role::Initiator, Role::Acceptor][side];
        let mut link = Link::new(role, 1 << 20);
        link.set_patience(Some(patience));
        Side {
            link,
            tcp: None,
            superseded: None,
            queue: None,
            retired: None,
            reads: false,
            is_busy: false,
            guard: Guard::default(),
            dial: None,
            sent: 0,
            arrived: 0,
            written: Vec::new(),
            is_dead: false,
            is_stopped: false,
            is_settling: false,
        }
    }

    /// Whether it takes part: neither ended, nor stopped.
    pub fn runs(&self) -> bool {
        !self.is_dead && !self.is_stopped && !self.is_over()
    }

    /// Nothing is under way: no attempt, no way back from a queue pair, and nothing is kept for one.
    pub fn is_at_rest(&self) -> bool {
        !self.guard.dials && self.superseded.is_none() && self.retired.is_none() && !self.link.follows()
    }

    /// Bytes wait for a path, and no timer does.
    pub fn waits_for_nothing(&self) -> bool {
        self.runs() && self.link.unsent_bytes() > 0 && self.link.poll_timeout().is_none()
    }

    pub fn is_over(&self) -> bool {
        self.guard.ending.is_some()
    }

    pub fn written_to(&mut self, connection: u64) -> &mut u64 {
        let index = match self.written.iter().position(|(id, _)| *id == connection) {
            Some(index) => index,
            None => {
                self.written.push((connection, 0));
                self.written.len() - 1
            }
        };
        &mut self.written[index].1
    }

    /// The guard handles a notice. True: it stops its attempt.
    pub fn handle_notice(&mut self, notice: &Notice, standing: Standing) -> bool {
        match notice {
            Notice::Lost(_) => {
                self.guard.dials = true;
                self.guard.is_suspicious = false;
            }
            Notice::Suspected => {
                self.guard.dials = true;
                self.guard.is_suspicious = true;
            }
            Notice::Restored | Notice::Trusted => {
                // An attempt may have given the connection up behind the notice: inet_rdma_session_loss asks.
                self.guard.is_suspicious = *notice == Notice::Restored && standing.link.state == State::Suspected;
                self.guard.dials = !self.link.has_tcp();
                return true;
            }
            Notice::PeerClosed => self.guard.ending = Some(Ending::PeerClosed),
            Notice::PeerMisbehaved(_) => self.guard.ending = Some(Ending::Misbehaved),
            Notice::RolledBack(_) => self.guard.ending = Some(Ending::RolledBack),
            Notice::Message(_)
            | Notice::Changed
            | Notice::Moved
            | Notice::Returned
            | Notice::Earned
            | Notice::Stalled
            | Notice::StallEnded
            | Notice::Busy
            | Notice::Full
            | Notice::Unread(_) => {}
        }
        false
    }
}

/// States of which each is looked at once.
pub type Known = HashSet<u64>;

/// The time of a world's begin; the same in all worlds, so that states are equal.
pub fn start() -> Instant {
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    *START
}
