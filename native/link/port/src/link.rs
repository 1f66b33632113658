//! A distribution link: a port, its session, and the paths that carry it.
//!
//! Packets leave in the VM's callback `outputv`, without a process in between, by the path that the session names: a
//! TCP connection ([`Tcp`]) or a queue pair ([`Queue`]). Bytes for which there is no room wait in the session's log,
//! which keeps the VM's large binaries without a copy; from some size on the port is busy, and the VM keeps its
//! packets.
//! Where a write is costly the packets of one turn of the port share it: they wait for a timeout of 0 ms, which the VM
//! calls after the port task that is under way.
//!
//! Packets arrive in `ready_input`: the VM's poll set watches the descriptors. After an arrival over a queue pair the
//! port looks on by itself for a while (see [`crate::looking`]) before it arms the connection, so that a peer that
//! answers at once need not make a system call.

mod coding;
mod counts;
mod ending;
mod guard;
mod loss;
mod paths;
mod receiving;
mod sending;
mod suspicion;
mod timer;

use std::net::SocketAddr;
use std::time::Instant;

use inet_rdma_path_tcp::{Codec, Compression};
use inet_rdma_paths::{Earning, Outage, Path, Paths, Stall};
use inet_rdma_session::proof::Secret;
use inet_rdma_session::{Role, Session};

pub(crate) use self::coding::{COMPRESSION, SEALING};
pub(crate) use self::counts::COUNTS;
use self::loss::Loss;
use self::timer::Timer;
use crate::block::{Block, Held};
use crate::port::{Port, Process};
use crate::queue::Queue;
use crate::round_trips::RoundTrips;
use crate::tally::{QueueCounts, Tally};
use crate::tcp::{Superseded, Tcp};

/// The state of the port after a callback.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Lives,
    Ends,
}

pub struct Link {
    session: Session<Held, Block>,
    secret: Secret,
    tcp: Option<Tcp>,
    /// The addresses of the first TCP connection, which the VM has noted for its node, too. None: there was none yet.
    ends: Option<(SocketAddr, SocketAddr)>,
    /// The contexts of compression while there is no TCP connection.
    codec: Codec,
    /// The TCP connection that the attempt under way has given up. The peer may not know of the attempt yet: a reset
    /// would reach it as a loss, and it would make an attempt of its own.
    superseded: Option<Superseded>,
    queue: Option<Queue>,
    /// The queue pair that this side has given up in an attempt to resume, and that the peer may still have.
    retired: Option<Queue>,
    paths: Paths,
    /// The VM takes packets.
    is_started: bool,
    /// True while packets wait for the timer of 0 ms: others may share a write with them.
    gathers: bool,
    /// The last packet over TCP that did not wait.
    sent_at: Option<Instant>,
    /// The port's queue has a byte, so that the VM calls `flush` before it closes the port.
    is_marked: bool,
    timer: Timer,
    /// The port ends at this time at the latest: the connection has ended, or the port is closed with bytes queued.
    deadline: Option<Instant>,
    /// Whether the port is busy, and the peer takes bytes.
    stall: Stall,
    /// The process that gets notices of [`guard`], and the messages of the peer's guard.
    guard: Option<Process>,
    /// The counts of queue pairs that are gone.
    past: QueueCounts,
    /// Compression over TCP connections that are gone, of sent and of received bytes. None: neither side compressed.
    past_compression: Option<[Compression; 2]>,
    changes: Changes,
    /// Deadline of the attempt to resume that has given up the TCP connection.
    attempt_until: Option<Instant>,
    /// The reason of the last loss of a TCP connection. None: none was lost.
    loss: Option<Loss>,
    tally: Tally,
    round_trips: RoundTrips,
    outage: Outage,
    earning: Earning,
    /// The peer has gone back to TCP: this side follows when all bytes that it sent over the queue pair have arrived.
    is_returning: bool,
}

/// The changes of paths, for [`COUNTS`].
#[derive(Clone, Copy, Default)]
struct Changes {
    losses: u64,
    resumes: u64,
    moves: u64,
}

impl Link {
    /// A link with a session that no path carries yet.
    pub fn new(role: Role, packet_max_bytes: usize, secret: Secret) -> Link {
        Link {
            session: Session::new(role, packet_max_bytes),
            secret,
            tcp: None,
            ends: None,
            codec: Codec::default(),
            superseded: None,
            queue: None,
            retired: None,
            paths: Paths::default(),
            is_started: false,
            gathers: false,
            sent_at: None,
            is_marked: false,
            timer: Timer::Unset,
            deadline: None,
            stall: Stall::default(),
            guard: None,
            past: QueueCounts::default(),
            past_compression: None,
            changes: Changes::default(),
            attempt_until: None,
            loss: None,
            tally: Tally::default(),
            round_trips: RoundTrips::default(),
            outage: Outage::default(),
            earning: Earning::default(),
            is_returning: false,
        }
    }

    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Called when the VM knows the port as the link to its node: from now on the port gives packets to the VM, which
    /// would have lost them before, and takes packets from it. False: the VM cannot watch the descriptors.
    pub fn start(&mut self, port: Port) -> bool {
        self.is_started = true;
        let is_watched = self.tcp.as_mut().is_none_or(|tcp| tcp.watch(port))
            && self.queue.as_mut().is_none_or(|queue| queue.watch(port));
        self.begin_queue();
        self.transmit(port);
        self.schedule(port);
        is_watched
    }

    /// Reads from the queue pair if the peer sends over it. Not while an attempt to resume gives it up: the peer closes
    /// it, which is no end of the link.
    fn begin_queue(&mut self) {
        if let Some(queue) = self.queue.as_mut().filter(|_| self.is_started) {
            if self.session.reads_queue(queue.id()) && !self.session.is_given_up(queue.id()) {
                queue.begin();
            }
        }
    }

    /// Sets the timer to the next time at which there is something to do, and tells the VM whether bytes wait.
    fn schedule(&mut self, port: Port) {
        // Gathered packets go with the timer. Before the port closes, the VM must be told to wait for them, too.
        let waits = self.unsent_bytes() > 0 && (!self.gathers || self.deadline.is_some());
        if waits && !self.is_marked {
            port.enqueue(&[0]);
            self.is_marked = true;
        } else if !waits && self.is_marked {
            self.unmark(port);
        }
        let reads_queue = !self.paths.is_held(Path::QueuePair);
        let is_due = self.queue.as_ref().is_some_and(|queue| reads_queue && queue.is_due())
            || self.tcp.as_ref().is_some_and(Tcp::is_due);
        if self.gathers || self.is_started && is_due {
            self.timer.set_soon(port);
            return;
        }
        let again_at = self.tcp.as_ref().and_then(Tcp::again_at);
        let look_at = self.paths.at().filter(|_| self.is_watching());
        let times = [self.deadline, self.stall.at(), self.attempt_until, again_at, look_at];
        if let Some(at) = times.into_iter().flatten().min() {
            self.timer.set_at(port, at);
        }
    }

    fn unmark(&mut self, port: Port) {
        port.clear_queue();
        self.is_marked = false;
    }
}
