//! A distribution link: a port, and the paths that carry it.
//!
//! [`inet_rdma_link`] decides; here are its socket, its queue pair and the VM. Packets leave in the VM's callback
//! `outputv`, without a process in between, by the path that the link names: a TCP connection ([`Tcp`]) or a queue pair
//! ([`Queue`]). Bytes for which there is no room wait in the session's log, which keeps the VM's large binaries without
//! a copy; from some size on the port is busy, and the VM keeps its packets.
//! Where a write is costly the packets of one turn of the port share it: they wait for a timeout of 0 ms, which the VM
//! calls after the port task that is under way.
//!
//! Packets arrive in `ready_input`: the VM's poll set watches the descriptors. After an arrival over a queue pair the
//! port polls on by itself for a while (see [`crate::poll_policy`]) before it arms the connection, so that a peer that
//! answers at once need not make a system call.

mod coding;
mod counts;
mod ending;
mod guard;
mod paths;
mod receiving;
mod sending;
mod timer;
mod work;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use inet_rdma_link::{self as link, Notice};
use inet_rdma_path_tcp::descriptors::Lent;
use inet_rdma_path_tcp::{Codec, Compression};
use inet_rdma_paths::Path;
use inet_rdma_session::Role;
use inet_rdma_session::proof::Secret;

pub(crate) use self::coding::{COMPRESSION, SEALING};
pub(crate) use self::counts::COUNTS;
use self::timer::Timer;
use crate::block::{Block, Held};
use crate::port::{Port, Process};
use crate::queue::Queue;
use crate::round_trips::RoundTrips;
use crate::tally::{QueueCounts, Tally};
use crate::tcp::{Superseded, Tcp};
use crate::windows::{Share, WINDOWS};

/// The state of the port after a callback.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Lives,
    Ends,
}

/// # Invariants
/// Between two callbacks `tcp` and `queue` are there if the state machine has them.
pub struct Link {
    state: link::Link<Held, Block>,
    secret: Secret,
    tcp: Option<Tcp>,
    /// TCP connections of this link are sealed: they begin with a TLS handshake.
    is_sealed: bool,
    /// The place of the spare descriptor, while such a link has no TCP connection.
    lent: Option<Lent>,
    /// The TCP connection that the attempt under way has given up.
    superseded: Option<Superseded>,
    queue: Option<Queue>,
    /// The queue pair that this side has given up in an attempt to resume, and that the peer may still have.
    retired: Option<Queue>,
    /// The addresses of the first TCP connection, which the VM has noted for its node, too. None: there was none yet.
    ends: Option<(SocketAddr, SocketAddr)>,
    /// The contexts of compression while there is no TCP connection.
    codec: Codec,
    /// The port's queue has a byte, so that the VM calls `flush` before it closes the port.
    is_marked: bool,
    timer: Timer,
    /// The window beyond the first one.
    window: Share,
    /// The process that gets the notices.
    guard: Option<Process>,
    /// The counts of queue pairs that are gone.
    past: QueueCounts,
    /// Compression over TCP connections that are gone, of sent and of received bytes. None: neither side compressed.
    past_compression: Option<[Compression; 2]>,
    tally: Tally,
    round_trips: RoundTrips,
}

impl Link {
    /// A link with a session that no path carries yet.
    pub fn new(role: Role, packet_max_bytes: usize, secret: Secret) -> Link {
        Link {
            state: link::Link::new(role, packet_max_bytes),
            secret,
            tcp: None,
            is_sealed: false,
            lent: None,
            superseded: None,
            queue: None,
            retired: None,
            ends: None,
            codec: Codec::default(),
            is_marked: false,
            timer: Timer::Unset,
            window: WINDOWS.share(),
            guard: None,
            past: QueueCounts::default(),
            past_compression: None,
            tally: Tally::default(),
            round_trips: RoundTrips::default(),
        }
    }

    /// Both sides tell windows; this link's is at most `bytes`, those of all links of this node beyond the first
    /// windows at most `node_bytes` together.
    pub fn tell_window(&mut self, bytes: usize, node_bytes: u64) {
        WINDOWS.set_max(node_bytes);
        self.state.tell_window(bytes);
    }

    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Called when the VM knows the port as the link to its node: from now on the port gives packets to the VM, which
    /// would have lost them before, and takes packets from it. False: the VM cannot watch the descriptors.
    pub fn start(&mut self, port: Port) -> bool {
        self.state.start();
        let is_watched = self.tcp.as_mut().is_none_or(|tcp| tcp.watch(port))
            && self.queue.as_mut().is_none_or(|queue| queue.watch(port));
        self.settle(port);
        is_watched
    }

    /// Suspects a path that owes an answer for this time. None: no path.
    pub fn set_patience(&mut self, port: Port, time: Option<Duration>) {
        self.state.set_patience(time);
        self.settle(port);
    }

    /// The node did not run for a while: see [`link::Link::hold_writes`].
    pub fn hold_writes(&mut self, port: Port) {
        self.state.hold_writes(Instant::now());
        self.settle(port);
    }

    /// Whether the peer's answers to questions decide, as a party between the nodes ends the TCP connection, until
    /// there is another connection.
    pub fn let_questions_decide(&mut self, decide: bool) {
        self.state.let_questions_decide(decide);
    }

    /// The end of each callback: does what there is to do, and sets the timer to the next time.
    fn settle(&mut self, port: Port) {
        if let Some(why) = self.tally.take_unread() {
            self.state.tell(Notice::Unread(why));
        }
        self.work(port);
        self.schedule(port);
    }

    fn fate(&self) -> Fate {
        if self.state.is_over() { Fate::Ends } else { Fate::Lives }
    }

    /// Sets the timer to the next time at which there is something to do, and tells the VM whether bytes wait.
    fn schedule(&mut self, port: Port) {
        // Gathered packets go with the timer. Before the port closes, the VM must be told to wait for them, too.
        let waits = self.state.unsent_bytes() > 0 && (!self.state.is_gathering() || self.state.is_ending());
        if waits && !self.is_marked {
            port.enqueue(&[0]);
            self.is_marked = true;
        } else if !waits && self.is_marked {
            self.unmark(port);
        }
        if let Some(tcp) = &mut self.tcp {
            tcp.watch_writable(port, self.state.waits_for_tcp_room());
        }
        if self.state.is_gathering() || self.state.is_started() && self.is_due() {
            self.timer.set_soon(port);
        } else if let Some(at) = self.state.poll_timeout() {
            self.timer.set_at(port, at);
        }
    }

    /// Whether a path has something for the next turn.
    fn is_due(&self) -> bool {
        let reads_queue = !self.state.is_held(Path::QueuePair);
        self.queue.as_ref().is_some_and(|queue| reads_queue && queue.is_due())
            || self.tcp.as_ref().is_some_and(|tcp| self.is_tcp_due(tcp))
    }

    /// True if the TCP connection is read even if nothing is readable: the last turn has left bytes, or nothing more
    /// can be sent.
    fn is_tcp_due(&self, tcp: &Tcp) -> bool {
        tcp.path.holds_input() || self.state.has_failed_tcp()
    }

    fn unmark(&mut self, port: Port) {
        port.clear_queue();
        self.is_marked = false;
    }
}
