//! A distribution link: a port, its session, and the paths that carry it.
//!
//! Packets leave in the VM's callback `outputv`, without a process in between, by the path that the session names: a TCP
//! connection ([`Tcp`]) or a queue pair ([`Queue`]). Bytes for which there is no room wait in the session's log, which keeps the
//! VM's large binaries as they lie; from some size on the port is busy, and the VM keeps its packets. Where a write is costly
//! the packets of one turn of the port share it: they wait for a timeout of 0 ms, which the VM calls after the port task that is
//! under way.
//!
//! Packets arrive in `ready_input`: the VM's poll set watches the descriptors. After an arrival over a queue pair the port looks
//! on by itself for a while (see [`inet_rdma_engine::looking`]) before it arms the connection, so that a peer that answers at
//! once need not make a system call.
//!
//! A link without a session to resume (one that began inside TLS) has a queue pair alone, and ends with it.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use inet_rdma_engine::connection::{Closed, ReadEnd};
use inet_rdma_path_tcp::{Lost, ReceiveError};
use inet_rdma_session::proof::Secret;
use inet_rdma_session::{Event, LENGTH_BYTES, PathId, Role, Session, Standing};

use crate::block::{Block, Held};
use crate::links::Carried;
use crate::port::{Packet, Port, Process, errno_atom};
use crate::queue::{GATHERED_BYTES, Queue};
use crate::stall::{Change, Stall};
use crate::tally::Tally;
use crate::tcp::Tcp;

/// From this many bytes that no path has taken on the VM keeps its packets. One packet may be larger.
const QUEUE_HIGH_BYTES: usize = 64 * 1024;
/// Below this size it gives packets again.
const QUEUE_LOW_BYTES: usize = 16 * 1024;
/// The same over TCP, where a write takes more at a time.
const TCP_HIGH_BYTES: usize = 256 * 1024;
/// See [`TCP_HIGH_BYTES`].
const TCP_LOW_BYTES: usize = 64 * 1024;
/// From this many bytes that the peer has not acknowledged on the VM keeps its packets: the memory of a link's log.
const LOG_HIGH_BYTES: usize = 4 << 20;
/// The same over TCP within one host, where more under way gives no throughput and lets small packets wait behind it.
const LOG_HIGH_BYTES_LOCAL: usize = 1 << 20;
/// The VM gives packets again once the log is smaller by this. A smaller step gives all senders a turn earlier.
const LOG_STEP_BYTES: usize = 192 * 1024;

/// Over TCP packets above this size do not wait for others.
const TCP_GATHERED_BYTES: usize = 4096;
/// Over TCP this many bytes do not wait for more.
const TCP_GATHERED_BYTES_MAX: usize = 48 * 1024;
/// Over TCP the first packet after a pause of this length goes at once, as its sender may wait for an answer; those that
/// follow it closely share a write. 0 and 100 us cost an rpc of 100 processes a tenth.
const PAUSE: Duration = Duration::from_micros(20);

/// From this many packets of both directions on a link has earned a queue pair. Set-up, `global` and `pg` of a link without
/// traffic of its users take fewer.
const EARNED_PACKETS: u64 = 64;
/// The same in bytes.
const EARNED_BYTES: u64 = 256 * 1024;

/// How long a port that is closed waits for a peer that does not read what is queued.
const FLUSH: Duration = Duration::from_secs(5);

/// How long the port waits for bytes that the peer has sent, once the peer has ended the link.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What the process that watches the link is told: its sending key nears its limit.
const KEY_DUE: &CStr = c"key_due";
/// The port is busy, and the peer takes nothing.
const STALLED: &CStr = c"stalled";
/// The peer takes bytes again.
const RESUMED: &CStr = c"resumed";
/// The TCP connection is gone, and a queue pair that may be lost with it, too; with the reason, a [`Loss`].
const LOST: &CStr = c"lost";
/// Another TCP connection is there.
const RESTORED: &CStr = c"restored";
/// Packets of the peer come over the queue pair.
const MOVED: &CStr = c"moved";
/// Packets go and come over the TCP connection again, and the queue pair is closed.
const RETURNED: &CStr = c"returned";
/// So much has passed over TCP that a queue pair pays.
const EARNED: &CStr = c"earned";
/// The peer has ended the session in order.
const PEER_CLOSED: &CStr = c"peer_closed";
/// The peer broke the rules of the session.
const PEER_MISBEHAVED: &CStr = c"peer_misbehaved";

/// Whether the port lives on after a callback.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It goes on.
    Lives,
    /// It ends.
    Ends,
}

/// Why the TCP connection is gone: an atom for the watcher.
#[derive(Clone, Copy)]
struct Loss(&'static CStr);

impl Loss {
    /// The queue pair is lost, or the peer uses one that this side has given up: the TCP connection is given up, too.
    const QUEUE_PAIR: Loss = Loss(c"queue_pair");
    /// The VM cannot watch another descriptor.
    const SYSTEM_LIMIT: Loss = Loss(c"system_limit");
    /// An attempt of the peer to resume gives it up.
    const SUPERSEDED: Loss = Loss(c"superseded");
}

impl From<Lost> for Loss {
    fn from(lost: Lost) -> Loss {
        match lost {
            Lost::Eof => Loss(c"closed"),
            Lost::Error(error) => Loss(errno_atom(error.raw_os_error())),
        }
    }
}

impl From<io::Error> for Loss {
    fn from(error: io::Error) -> Loss {
        error
            .raw_os_error()
            .map_or(Loss::SYSTEM_LIMIT, |errno| Loss(errno_atom(errno)))
    }
}

/// What has happened to the paths, for [`Link::statistics`].
#[derive(Clone, Copy, Default)]
struct Changes {
    losses: u64,
    resumes: u64,
    moves: u64,
}

/// One distribution link.
pub struct Link {
    session: Session<Held, Block>,
    /// None: the session cannot be resumed.
    secret: Option<Secret>,
    tcp: Option<Tcp>,
    queue: Option<Queue>,
    /// The VM takes packets.
    is_started: bool,
    /// Packets wait for the timer of 0 ms: others may share a write with them.
    gathers: bool,
    /// The last packet over TCP that did not wait.
    sent_at: Option<Instant>,
    is_busy: bool,
    /// The port's queue has a byte, so that the VM calls `flush` before it closes the port.
    is_marked: bool,
    /// The timer of 0 ms is set.
    is_soon: bool,
    /// The time that the timer is set to.
    alarm: Option<Instant>,
    /// Past this the port ends, whatever is still to come: the end of the connection has shown, or the port is closed with
    /// bytes queued.
    deadline: Option<Instant>,
    stall: Stall,
    /// The process that is told of the events above.
    watcher: Option<Process>,
    /// Packets of queue pairs that are gone: received, and ticks sent.
    past: (u64, u64),
    changes: Changes,
    /// Why the last TCP connection is gone; without meaning before that.
    loss: Loss,
    tally: Tally,
    /// The watcher was told that the link has earned a queue pair.
    has_earned: bool,
    /// Packets and bytes of both directions when the link last came back from a queue pair: it earns the next one by what
    /// follows.
    earned_before: (u64, u64),
    /// The peer has gone back to the TCP connection, and this side follows when all that it has sent has arrived.
    follows: bool,
    /// Descriptors of the TCP connection that processes use.
    lent: Vec<OwnedFd>,
}

impl Link {
    /// A session that this TCP connection carries, by a descriptor of the port's own.
    pub fn over_tcp(socket: BorrowedFd<'_>, role: Role, packet_max_bytes: usize, secret: Secret) -> io::Result<Link> {
        let tcp = Tcp::adopt(socket)?;
        Ok(Link {
            secret: Some(secret),
            tcp: Some(tcp),
            ..Link::new(role, packet_max_bytes)
        })
    }

    /// A link over a queue pair alone, which nothing was read from yet.
    pub fn over_queue(carried: Carried) -> Link {
        let mut link = Link::new(Role::Initiator, usize::MAX);
        let queue = Queue::new(carried, 1);
        link.session.add_path(queue.id(), false);
        link.session.begin_on_queue();
        link.queue = Some(queue);
        link
    }

    fn new(role: Role, packet_max_bytes: usize) -> Link {
        Link {
            session: Session::new(role, packet_max_bytes),
            secret: None,
            tcp: None,
            queue: None,
            is_started: false,
            gathers: false,
            sent_at: None,
            is_busy: false,
            is_marked: false,
            is_soon: false,
            alarm: None,
            deadline: None,
            stall: Stall::default(),
            watcher: None,
            past: (0, 0),
            changes: Changes::default(),
            loss: Loss::SUPERSEDED,
            tally: Tally::default(),
            has_earned: false,
            earned_before: (0, 0),
            follows: false,
            lent: Vec::new(),
        }
    }

    /// Proofs of the session's secret. None: the session cannot be resumed.
    pub fn secret(&self) -> Option<&Secret> {
        self.secret.as_ref()
    }

    /// The VM knows the port as the link to its node: packets may be given to it. Before that they would be lost. Packets are
    /// taken from now on. False: the VM cannot watch the descriptors.
    pub fn start(&mut self, port: Port) -> bool {
        self.is_started = true;
        let is_watched = self.tcp.as_mut().is_none_or(|tcp| tcp.watch(port))
            && self.queue.as_ref().is_none_or(|queue| queue.watch(port));
        self.begin_queue();
        self.transmit(port);
        self.schedule(port);
        is_watched
    }

    fn begin_queue(&mut self) {
        if let Some(queue) = self.queue.as_mut().filter(|_| self.is_started) {
            if self.session.reads_queue(queue.id()) {
                queue.begin();
            }
        }
    }
}

/// Outgoing packets.
impl Link {
    /// The VM has a packet for the peer.
    pub fn send(&mut self, port: Port, packet: &Packet<'_>) {
        self.tally.count_sent(packet.bytes());
        if self.session.is_sent_by_queue() {
            self.send_by_queue(port, packet);
        } else {
            self.send_by_tcp(port, packet);
        }
        self.update_busy(port);
        self.schedule(port);
    }

    fn send_by_tcp(&mut self, port: Port, packet: &Packet<'_>) {
        self.session.append(packet.bytes(), |log| packet.append_to(log, 0));
        self.look_whether_earned(port);
        if self.tcp.as_ref().is_none_or(Tcp::is_blocked) {
            return;
        }
        if packet.bytes() > TCP_GATHERED_BYTES || self.session.unsent_bytes() > TCP_GATHERED_BYTES_MAX {
            self.transmit(port);
        } else if !self.gathers {
            let now = Instant::now();
            let is_alone = self.sent_at.is_none_or(|before| now.duration_since(before) > PAUSE);
            self.sent_at = Some(now);
            if is_alone {
                self.transmit(port);
            } else {
                self.gathers = true;
            }
        }
    }

    fn look_whether_earned(&mut self, port: Port) {
        if self.has_earned || self.watcher.is_none() {
            return;
        }
        let (packets, bytes) = self.passed();
        if packets - self.earned_before.0 >= EARNED_PACKETS || bytes - self.earned_before.1 >= EARNED_BYTES {
            self.has_earned = true;
            self.tell(port, EARNED);
        }
    }

    /// Packets and bytes of both directions over TCP.
    fn passed(&self) -> (u64, u64) {
        let counts = self.session.counts();
        (
            counts.packets_received + counts.packets_sent,
            counts.bytes_received + counts.bytes_sent,
        )
    }

    fn send_by_queue(&mut self, port: Port, packet: &Packet<'_>) {
        let Some(queue) = &mut self.queue else {
            // The queue pair is lost, and the session is not resumed yet.
            self.session.append(packet.bytes(), |log| packet.append_to(log, 0));
            return;
        };
        let may_gather = queue.post_is_costly() && packet.bytes() <= GATHERED_BYTES;
        if !may_gather && !self.gathers && !queue.is_blocked() && self.session.passes() {
            let length = u32::try_from(packet.bytes()).unwrap_or(u32::MAX).to_be_bytes();
            let total = LENGTH_BYTES + packet.bytes();
            let Some(sent) = queue.write(packet, &length) else {
                return;
            };
            self.session.handle_passed(sent, total);
            if sent == total {
                self.heed_key(port);
                return;
            }
            queue.count_packet();
            self.session.append_rest(|log| {
                log.copy(&length[sent.min(LENGTH_BYTES)..]);
                packet.append_to(log, sent.saturating_sub(LENGTH_BYTES));
            });
        } else {
            queue.count_packet();
            self.session.append(packet.bytes(), |log| packet.append_to(log, 0));
        }
        let waiting = self.session.unsent_bytes();
        if queue.is_blocked() {
            if queue.tries(waiting) {
                self.transmit(port);
            }
        } else if may_gather && waiting <= GATHERED_BYTES {
            self.gathers = true;
        } else {
            self.transmit(port);
        }
    }

    /// Writes what waits, as far as the paths have room.
    fn transmit(&mut self, port: Port) {
        self.gathers = false;
        let before = self.session.unsent_bytes();
        if let Some(tcp) = &mut self.tcp {
            if let Err(lost) = tcp.transmit(port, &mut self.session) {
                self.lose_tcp(port, lost.into());
            }
        }
        if let Some(queue) = &mut self.queue {
            if self.session.is_sent_by_queue() {
                if queue.is_mortal() || self.follows {
                    self.session.handle_queue_read(queue.read_by_peer());
                }
                // Behind a bound there is more to write: other ports have their turn first.
                self.gathers = queue.transmit(&mut self.session);
            }
        }
        self.heed_key(port);
        if self.session.unsent_bytes() < before {
            let change = self.stall.handle_moved();
            self.tell_stall(port, change);
        }
    }

    fn heed_key(&self, port: Port) {
        let (Some(watcher), Some(queue)) = (self.watcher, &self.queue) else {
            return;
        };
        if queue.take_key_due() {
            port.tell(watcher, KEY_DUE);
        }
    }

    fn update_busy(&mut self, port: Port) {
        let (high, low) = match self.session.is_sent_by_queue() {
            true => (QUEUE_HIGH_BYTES, QUEUE_LOW_BYTES),
            false => (TCP_HIGH_BYTES, TCP_LOW_BYTES),
        };
        let log_high = match &self.tcp {
            Some(tcp) if tcp.is_local() && !self.session.is_sent_by_queue() => LOG_HIGH_BYTES_LOCAL,
            _ => LOG_HIGH_BYTES,
        };
        let (unsent, logged) = match self.is_busy {
            true => (low, log_high - LOG_STEP_BYTES),
            false => (high, log_high),
        };
        let is_busy = self.session.unsent_bytes() > unsent || self.session.logged_bytes() > logged;
        if is_busy != self.is_busy {
            self.is_busy = is_busy;
            port.set_busy(is_busy);
            let change = self.stall.set_busy(is_busy);
            self.tell_stall(port, change);
        }
    }

    fn tell_stall(&self, port: Port, change: Option<Change>) {
        if let Some(change) = change {
            self.tell(
                port,
                match change {
                    Change::Stalled => STALLED,
                    Change::Resumed => RESUMED,
                },
            );
        }
    }

    fn tell(&self, port: Port, what: &CStr) {
        if let Some(watcher) = self.watcher {
            port.tell(watcher, what);
        }
    }

    /// Tells the peer that this node lives, ahead of everything that waits.
    pub fn tick(&mut self, port: Port) {
        self.session.shrink();
        match &mut self.queue {
            Some(queue) if self.session.is_sent_by_queue() => {
                queue.tick();
                // The peer hears what has arrived, and both notice a TCP connection that stands by and is dead. Before the start
                // the connection belongs to the settlement.
                if self.is_started && self.tcp.is_some() {
                    self.session.acknowledge();
                    self.transmit(port);
                    self.follow(port);
                }
            }
            _ if self.tcp.is_some() => {
                self.session.tick();
                self.transmit(port);
            }
            // Nothing carries, and nothing is made up: the peer's net_kernel counts from the last sign of life.
            _ => {}
        }
        self.schedule(port);
    }

    /// A message to the peer's watcher, lost with the TCP connection. False: it is too large, or nothing carries it.
    pub fn control(&mut self, port: Port, message: &[u8]) -> bool {
        let is_taken = self.tcp.is_some() && self.session.control(message.to_vec());
        self.transmit(port);
        self.schedule(port);
        is_taken
    }
}

/// What comes in.
impl Link {
    /// One of the descriptors is readable.
    pub fn handle_event(&mut self, port: Port, fd: RawFd) -> Fate {
        let fate = if self.tcp.as_ref().is_some_and(|tcp| tcp.fd() == fd) {
            self.receive(port)
        } else if let Some(queue) = self.queue.as_mut().filter(|queue| queue.has_fd(fd)) {
            queue.handle_event(fd);
            self.look(port)
        } else {
            Fate::Lives
        };
        self.schedule(port);
        fate
    }

    /// The TCP socket is writable.
    pub fn handle_writable(&mut self, port: Port, fd: RawFd) {
        if let Some(tcp) = self.tcp.as_mut().filter(|tcp| tcp.fd() == fd) {
            tcp.handle_writable(port);
            self.transmit(port);
            self.update_busy(port);
        }
        self.schedule(port);
    }

    /// The timer that the last callback set is over.
    pub fn handle_timeout(&mut self, port: Port) -> Fate {
        self.is_soon = false;
        self.alarm = None;
        if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Fate::Ends;
        }
        if self.stall.at().is_some() {
            let change = self.stall.look(Instant::now());
            self.tell_stall(port, change);
        }
        if self.gathers {
            self.transmit(port);
            self.update_busy(port);
        }
        let fate = match &mut self.queue {
            Some(queue) if queue.skips_look() => {
                queue.wait(0, self.deadline.is_some());
                Fate::Lives
            }
            Some(queue) if !queue.is_idle_look() => self.look(port),
            _ => Fate::Lives,
        };
        self.schedule(port);
        fate
    }

    /// Takes what has arrived over TCP.
    fn receive(&mut self, port: Port) -> Fate {
        let Some(tcp) = &mut self.tcp else {
            return Fate::Lives;
        };
        let received = tcp.receive(port, &mut self.session, &mut self.tally);
        if self.handle_events(port) == Fate::Ends {
            return Fate::Ends;
        }
        match received {
            Ok(()) => {
                // Acknowledgements that came make room in the log, and one may be due.
                self.transmit_unless_gathering(port);
                self.follow(port);
                self.look_whether_earned(port);
                self.update_busy(port);
                Fate::Lives
            }
            Err(ReceiveError::Lost(lost)) => {
                self.lose_tcp(port, lost.into());
                Fate::Lives
            }
            Err(ReceiveError::Violation(violation)) => {
                self.tell(port, PEER_MISBEHAVED);
                if let Some(watcher) = self.watcher {
                    port.tell_bytes(watcher, violation.to_string().as_bytes());
                }
                Fate::Ends
            }
        }
    }

    fn transmit_unless_gathering(&mut self, port: Port) {
        if !self.gathers && self.session.is_transmission_due() {
            self.transmit(port);
        }
    }

    fn handle_events(&mut self, port: Port) -> Fate {
        while let Some(event) = self.session.poll_event() {
            match event {
                Event::Control(message) => {
                    if let Some(watcher) = self.watcher {
                        port.tell_bytes(watcher, &message);
                    }
                }
                Event::Moved => {
                    self.changes.moves += 1;
                    self.begin_queue();
                    self.tell(port, MOVED);
                }
                Event::Returned => {
                    if self.session.has_left_queue() {
                        self.leave_queue(port);
                    } else {
                        self.follows = true;
                    }
                }
                // All its packets have come.
                Event::Ended => {
                    self.tell(port, PEER_CLOSED);
                    return Fate::Ends;
                }
            }
        }
        Fate::Lives
    }

    /// Gives packets that arrived over the queue pair to the VM, and decides when to look again.
    fn look(&mut self, port: Port) -> Fate {
        let Some(queue) = &mut self.queue else {
            return Fate::Lives;
        };
        let (packets, end) = queue.read(port, &mut self.session, &mut self.tally);
        // The end that the peer has said lies behind packets of the queue pair.
        if self.handle_events(port) == Fate::Ends {
            return Fate::Ends;
        }
        let Some(queue) = &mut self.queue else {
            return Fate::Lives;
        };
        let is_writable = queue.take_writable();
        if (queue.is_mortal() || self.follows) && self.session.is_sent_by_queue() {
            self.session.handle_queue_read(queue.read_by_peer());
            self.update_busy(port);
        }
        let Some(queue) = &mut self.queue else {
            return Fate::Lives;
        };
        if is_writable || queue.is_blocked() || self.gathers {
            self.transmit(port);
            self.update_busy(port);
        }
        let must_look = self.deadline.is_some() || self.session.unsent_bytes() > 0;
        let Some(queue) = &mut self.queue else {
            return Fate::Lives;
        };
        match end {
            ReadEnd::Closed(reason) => return self.handle_queue_end(port, &reason),
            ReadEnd::More => queue.look_soon(),
            ReadEnd::Empty => queue.wait(packets, must_look),
        }
        Fate::Lives
    }
}

/// Paths that come and go.
impl Link {
    /// The queue pair of this connection can carry the session; both sides know it by `id`.
    pub fn add_queue(&mut self, port: Port, carried: Carried, id: PathId) -> bool {
        if let Some(before) = self.queue.take() {
            self.drop_queue(port, before);
        }
        let queue = Queue::new(carried, id);
        self.session.add_path(id, queue.is_mortal());
        let is_watched = !self.is_started || queue.watch(port);
        self.queue = Some(queue);
        self.begin_queue();
        self.schedule(port);
        is_watched
    }

    /// Gives up a queue pair that this side does not send over. A peer that has moved there already comes back by an attempt to resume.
    pub fn drop_unused_queue(&mut self, port: Port) {
        let is_used = self.session.is_sent_by_queue();
        if let Some(queue) = self.queue.take_if(|_| !is_used) {
            self.drop_queue(port, queue);
            self.session.lose_path();
        }
        if self.session.awaits_queue() {
            self.lose_tcp(port, Loss::QUEUE_PAIR);
        }
    }

    /// Packets go over the queue pair from here on; before [`Self::start`] those of both directions. False: they do already, or
    /// there is none.
    pub fn move_to_queue(&mut self, port: Port) -> bool {
        if !self.is_started {
            let moves = !self.session.is_sent_by_queue();
            self.session.begin_on_queue();
            self.changes.moves += u64::from(moves);
            return moves;
        }
        let moves = self.session.move_to_queue();
        self.transmit(port);
        self.schedule(port);
        moves
    }

    /// Begins to go back to the TCP connection. False: not now, as the peer has not said that all has arrived.
    pub fn return_to_tcp(&mut self, port: Port) -> bool {
        let returns = self.tcp.is_some() && self.session.return_to_tcp();
        if returns {
            self.transmit(port);
            self.schedule(port);
        }
        returns
    }

    /// Goes back to the TCP connection behind the peer, which closes the queue pair.
    fn follow(&mut self, port: Port) {
        if self.follows && self.return_to_tcp(port) {
            self.left_queue(port);
        }
    }

    fn leave_queue(&mut self, port: Port) {
        if let Some(queue) = self.queue.take() {
            self.drop_queue(port, queue);
            self.session.lose_path();
        }
        self.left_queue(port);
    }

    fn left_queue(&mut self, port: Port) {
        self.follows = false;
        self.has_earned = false;
        self.earned_before = self.passed();
        self.tell(port, RETURNED);
    }

    fn lose_tcp(&mut self, port: Port, loss: Loss) {
        let Some(tcp) = self.tcp.take() else { return };
        tcp.close(port);
        self.session.lose_tcp();
        self.changes.losses += 1;
        self.tell_lost(port, loss);
    }

    fn tell_lost(&mut self, port: Port, loss: Loss) {
        self.loss = loss;
        if let Some(watcher) = self.watcher {
            port.tell_of(watcher, LOST, loss.0);
        }
    }

    /// The queue pair has ended. The session goes on over TCP if the peer may still live: both sides give the TCP connection up
    /// and resume over another one.
    fn handle_queue_end(&mut self, port: Port, reason: &Closed) -> Fate {
        if self.session.has_left_queue() {
            // The peer closes it in order.
            if let Some(queue) = self.queue.take() {
                self.drop_queue(port, queue);
                self.session.lose_path();
            }
            return Fate::Lives;
        }
        let is_loss = matches!(reason, Closed::PeerGone | Closed::Fabric(_));
        let Some(queue) = self.queue.take_if(|queue| is_loss && queue.is_mortal()) else {
            return Fate::Ends;
        };
        if self.secret.is_none() || self.deadline.is_some() {
            self.queue = Some(queue);
            return Fate::Ends;
        }
        self.drop_queue(port, queue);
        self.session.lose_path();
        if self.tcp.is_some() {
            self.lose_tcp(port, Loss::QUEUE_PAIR);
        } else {
            self.tell_lost(port, Loss::QUEUE_PAIR);
        }
        Fate::Lives
    }

    fn drop_queue(&mut self, port: Port, queue: Queue) {
        let (received, ticks) = queue.counts();
        self.past = (self.past.0 + received, self.past.1 + ticks);
        queue.close(port);
    }

    /// The number of this side's next attempt to resume.
    pub fn next_attempt(&self) -> u64 {
        self.session.next_attempt()
    }

    /// Whether an attempt with this number may still succeed.
    pub fn is_newer(&self, attempt: u64) -> bool {
        self.session.is_newer(attempt)
    }

    /// An attempt to resume begins: the TCP connection is given up. What to tell the peer; None: a newer one has come before.
    pub fn suspend(&mut self, port: Port, attempt: u64) -> Option<Standing> {
        if !self.session.is_newer(attempt) {
            return None;
        }
        if let Some(tcp) = self.tcp.take() {
            // What has arrived need not be sent again.
            let mut tcp = tcp;
            let _lost_anyway = tcp.receive(port, &mut self.session, &mut self.tally);
            tcp.close(port);
            self.changes.losses += 1;
            self.loss = Loss::SUPERSEDED;
        }
        let standing = self.session.suspend(attempt).ok();
        self.schedule(port);
        standing
    }

    /// The attempt has led to this TCP connection, on which the peer has said where it stands. None: a newer attempt has come
    /// before.
    pub fn resume(&mut self, port: Port, attempt: u64, socket: BorrowedFd<'_>, theirs: Standing) -> Option<Fate> {
        let keeps_queue = match self.session.resume(attempt, theirs) {
            Ok(keeps_queue) => keeps_queue,
            Err(None) => return None,
            Err(Some(_violation)) => {
                self.tell(port, PEER_MISBEHAVED);
                return Some(Fate::Ends);
            }
        };
        if let Some(queue) = self.queue.take_if(|_| !keeps_queue) {
            self.drop_queue(port, queue);
            self.follows = false;
        }
        if keeps_queue && self.queue.is_none() {
            // It was lost while the attempt was under way: both go on without it by another attempt.
            self.tell_lost(port, Loss::QUEUE_PAIR);
            return Some(Fate::Lives);
        }
        let mut tcp = match Tcp::adopt(socket) {
            Ok(tcp) => tcp,
            Err(error) => {
                self.tell_lost(port, error.into());
                return Some(Fate::Lives);
            }
        };
        if self.is_started && !tcp.watch(port) {
            tcp.close(port);
            self.tell_lost(port, Loss::SYSTEM_LIMIT);
            return Some(Fate::Lives);
        }
        self.tcp = Some(tcp);
        self.changes.resumes += 1;
        self.tell(port, RESTORED);
        self.transmit(port);
        self.update_busy(port);
        self.schedule(port);
        Some(Fate::Lives)
    }

    /// Lends another descriptor of the TCP connection, until [`Self::take_back`].
    pub fn lend_tcp(&mut self) -> Option<RawFd> {
        let socket = self.tcp.as_ref()?.duplicate().ok()?;
        let fd = socket.as_raw_fd();
        self.lent.push(socket);
        Some(fd)
    }

    /// Closes a descriptor that was lent.
    pub fn take_back(&mut self, fd: RawFd) {
        self.lent.retain(|socket| socket.as_raw_fd() != fd);
    }
}

/// The end, and what is told.
impl Link {
    /// The caller is told of what happens to the link.
    pub fn watch(&mut self, port: Port) {
        self.watcher = Some(port.caller());
        self.heed_key(port);
        if self.secret.is_some() && self.tcp.is_none() {
            self.tell_lost(port, self.loss);
        }
    }

    /// Packets received and sent, ticks included.
    pub fn packets(&self) -> (u64, u64) {
        let counts = self.session.counts();
        let (received, ticks) = self.queue.as_ref().map_or((0, 0), Queue::counts);
        (
            counts.packets_received + self.past.0 + received,
            counts.packets_sent + self.past.1 + ticks,
        )
    }

    /// Bytes that wait for room.
    pub fn unsent_bytes(&self) -> u64 {
        self.session.unsent_bytes() as u64
    }

    /// Packets received and sent, ticks included; bytes that wait for room; of packets received, ticks left out, their
    /// bytes, the size of the largest, and the bits of the standard deviation of the sizes, an f64; the size of the
    /// largest packet sent. Bytes and sizes are with the packets' lengths. All paths are counted together.
    pub fn counts(&self) -> [u64; 7] {
        let (received, sent) = self.packets();
        [
            received,
            sent,
            self.unsent_bytes(),
            self.tally.bytes_received(),
            self.tally.largest_received(),
            self.tally.deviation_received().to_bits(),
            self.tally.largest_sent(),
        ]
    }

    /// Bytes received and bytes sent by all paths, packets' lengths included; bytes that the peer has not acknowledged;
    /// losses, resumes and moves; whether a TCP connection is there, and whether a queue pair carries.
    pub fn statistics(&self) -> [u64; 8] {
        [
            self.session.received().0,
            self.session.counts().bytes_sent,
            self.session.logged_bytes() as u64,
            self.changes.losses,
            self.changes.resumes,
            self.changes.moves,
            self.tcp.is_some().into(),
            (self.queue.is_some() && self.session.is_sent_by_queue()).into(),
        ]
    }

    /// The TLS connection on which the link began has ended. Packets that the peer has sent before may still be under way.
    pub fn handle_peer_gone(&mut self, port: Port) {
        self.end_within(LAST_WORDS);
        self.schedule(port);
    }

    /// The port is closed, by a process or with the VM, and bytes wait: the peer gets them if it reads in time.
    pub fn flush(&mut self, port: Port) {
        self.transmit(port);
        if self.tcp.is_none() && self.queue.is_none() {
            // Nothing takes them. The VM closes a port whose queue is empty behind this call, so it must not be marked again.
            self.unmark(port);
            return;
        }
        self.end_within(FLUSH);
        self.schedule(port);
    }

    fn end_within(&mut self, time: Duration) {
        let deadline = Instant::now() + time;
        self.deadline = Some(self.deadline.map_or(deadline, |earlier| earlier.min(deadline)));
        if let Some(queue) = &mut self.queue {
            queue.look_soon();
        }
    }

    /// Ends the link in order. The peer reads what was sent, then the end.
    pub fn close(&mut self, port: Port) {
        if let Some(mut tcp) = self.tcp.take() {
            self.session.end();
            // As far as there is room; without the last frame the peer learns of the end by its next attempt.
            let _lost_or_blocked = tcp.transmit(port, &mut self.session);
            tcp.finish(port);
        }
        if let Some(queue) = self.queue.take() {
            queue.close(port);
        }
    }

    /// The VM ends at once and writes a crash dump: the peer must not wait for that.
    pub fn shut_down(&mut self) {
        if let Some(tcp) = &self.tcp {
            tcp.shut_down();
        }
    }

    /// Sets the timer to what is to happen next, and tells the VM whether bytes wait.
    fn schedule(&mut self, port: Port) {
        let waits = self.session.unsent_bytes() > 0 && !self.gathers;
        if waits && !self.is_marked {
            port.enqueue(&[0]);
            self.is_marked = true;
        } else if !waits && self.is_marked {
            self.unmark(port);
        }
        if self.gathers || self.queue.as_ref().is_some_and(Queue::is_due) {
            if !self.is_soon {
                self.is_soon = true;
                port.set_timer(0);
            }
            return;
        }
        let next = self.deadline.into_iter().chain(self.stall.at()).min();
        if let Some(at) = next.filter(|_| !self.is_soon && self.alarm != next) {
            self.alarm = Some(at);
            port.set_timer(milliseconds_until(at));
        }
    }

    fn unmark(&mut self, port: Port) {
        port.dequeue(port.queued_bytes());
        self.is_marked = false;
    }
}

fn milliseconds_until(deadline: Instant) -> u32 {
    let left = deadline.saturating_duration_since(Instant::now()).as_millis();
    // At least 1: the timer may be a little early.
    u32::try_from(left).unwrap_or(u32::MAX).saturating_add(1)
}
