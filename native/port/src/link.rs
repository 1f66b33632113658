//! A distribution link: a port and its connection.
//!
//! Packets leave in the VM's callback `outputv`, each as one transfer, without a process in between. Bytes for which
//! the peer has no room wait in the port's own queue, which keeps the VM's binaries and copies nothing; from
//! [`QUEUE_HIGH_BYTES`] on the port is busy, and the VM keeps its packets. Where a post is costly
//! (`post_is_costly` of the fabric's `Capabilities`) the packets of one turn of the port share a transfer: they wait in
//! the queue for a timeout of 0 ms, which the VM calls after the port task that is under way.
//!
//! Packets arrive in `ready_input`: the VM's poll set watches the connection's descriptors. After an arrival the port looks on
//! by itself for a while (see [`inet_rdma_engine::looking`]) before it arms the connection, so that a peer that answers at once
//! need not make a system call.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use inet_rdma_assembly::{Gather, ReadLimit, Received};
use inet_rdma_engine::connection::ReadEnd;
use inet_rdma_engine::looking::{Looking, Next};

use crate::block::Block;
use crate::links::{self, Carried};
use crate::port::{Packet, Port, Process};
use crate::stall::{Change, Stall};

/// From this size of the port's queue on the VM keeps its packets. One packet may be larger: it is queued as a whole.
const QUEUE_HIGH_BYTES: usize = 64 * 1024;
/// Below this size it gives packets again.
const QUEUE_LOW_BYTES: usize = 16 * 1024;

/// Above this size packets do not wait for others to share a transfer with: their post costs less than their bytes do.
const GATHERED_BYTES: usize = 16 * 1024;

/// How much one callback gives to the VM at most; then other ports and processes have their turn.
const TURN: ReadLimit = ReadLimit {
    bytes: 128 * 1024,
    packets: 256,
    exact: 0,
};

/// How long a port that is closed waits for a peer that does not read what is queued.
const FLUSH: Duration = Duration::from_secs(5);

/// How long the port waits for bytes that the peer has sent, once the link's TCP connection has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What the process that watches the link is told: its sending key nears its limit.
const KEY_DUE: &CStr = c"key_due";
/// The port is busy, and the peer takes nothing.
const STALLED: &CStr = c"stalled";
/// The peer takes bytes again.
const RESUMED: &CStr = c"resumed";

/// Bytes of the length that goes before each packet.
const HEADER_BYTES: usize = 4;

/// The connection has ended; [`inet_rdma_engine::connection::Connection::closed`] gives the reason.
struct Closed;

/// Whether the port lives on after a callback.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It goes on.
    Lives,
    /// It ends.
    Ends,
}

/// What the port waits for before it looks for packets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Input {
    /// [`Link::start`].
    Held,
    /// An event: the connection is armed.
    Armed,
    /// The timer, set for a look and for nothing else: without an arrival there is nothing to do.
    Looking,
    /// The timer: there is something to read, or to find out.
    Due,
}

/// What the packets in the port's queue wait for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Output {
    /// None are there.
    Empty,
    /// The timer: others may share a transfer with them.
    Gathers,
    /// Room at the peer, of which the connection tells. To try for each packet would cost as much as to write it. From
    /// `tries_from_bytes` in the queue on the port tries all the same, as one port task of the VM may send many
    /// packets.
    Blocked { tries_from_bytes: usize },
}

/// One distribution link.
pub struct Link {
    carried: Carried,
    event_fd: RawFd,
    liveness_fd: RawFd,
    looking: Looking,
    input: Input,
    output: Output,
    /// Whether small packets wait for others ([`Output::Gathers`]).
    post_is_costly: bool,
    is_busy: bool,
    /// The end of the connection has shown, or the port is closed with bytes queued: past this the port ends, whatever is
    /// still to come.
    deadline: Option<Instant>,
    received: Vec<Received<Block>>,
    stall: Stall,
    /// The process that brings the next key, and tells of stalls.
    watcher: Option<Process>,
}

impl Link {
    /// The link of a connection that nothing was read from yet. Packets are taken from [`Self::start`] on.
    pub fn new(carried: Carried) -> Link {
        let queue_pair = carried.connection.queue_pair();
        carried.connection.set_self_polling();
        Link {
            event_fd: queue_pair.event_fd().as_raw_fd(),
            liveness_fd: queue_pair.liveness_fd().as_raw_fd(),
            looking: Looking::new(Instant::now(), carried.never_looks),
            input: Input::Held,
            output: Output::Empty,
            post_is_costly: queue_pair.capabilities().post_is_costly,
            is_busy: false,
            deadline: None,
            received: Vec::new(),
            stall: Stall::default(),
            watcher: None,
            carried,
        }
    }

    /// The event fd, and the liveness fd where it is another.
    fn watched_fds(&self) -> impl Iterator<Item = RawFd> + use<> {
        let liveness_fd = (self.liveness_fd != self.event_fd).then_some(self.liveness_fd);
        std::iter::once(self.event_fd).chain(liveness_fd)
    }

    /// The VM knows the port as the link to its node: packets may be given to it. Before that they would be lost.
    pub fn start(&mut self, port: Port) -> bool {
        for fd in self.watched_fds() {
            links::keep(fd, &self.carried.connection);
            if !port.watch(fd) {
                links::forget(fd);
                return false;
            }
        }
        // Packets may have come before the descriptors were watched.
        self.input = Input::Due;
        port.set_timer(0);
        true
    }

    /// The VM has a packet for the peer.
    pub fn send(&mut self, port: Port, packet: &Packet<'_>) {
        let header = u32::try_from(packet.bytes()).unwrap_or(u32::MAX).to_be_bytes();
        let may_gather = self.post_is_costly && packet.bytes() <= GATHERED_BYTES;
        let sent = match self.output {
            Output::Empty if !may_gather => match self.write(port, packet, &header) {
                Ok(None) => return,
                Ok(Some(sent)) => sent,
                Err(Closed) => {
                    // The packets that arrived before the end are given to the VM first.
                    self.look_soon(port);
                    return;
                }
            },
            _ => 0,
        };
        // The rest of it goes out of the queue, where packets have no borders: counted here.
        self.carried.connection.count_packet_sent();
        if sent < HEADER_BYTES {
            port.enqueue(&header[sent..]);
        }
        port.enqueue_packet(packet, sent.saturating_sub(HEADER_BYTES));
        match self.output {
            Output::Blocked { tries_from_bytes } if port.queued_bytes() < tries_from_bytes => self.update_busy(port),
            Output::Blocked { .. } => self.send_queued(port),
            Output::Empty | Output::Gathers if !may_gather || port.queued_bytes() > GATHERED_BYTES => {
                self.send_queued(port);
            }
            Output::Gathers => {}
            Output::Empty => {
                self.output = Output::Gathers;
                port.set_timer(0);
            }
        }
    }

    /// Writes a packet; None: all of it, else how many bytes the peer had room for.
    fn write(&mut self, port: Port, packet: &Packet<'_>, header: &[u8; HEADER_BYTES]) -> Result<Option<usize>, Closed> {
        let mut gather = Gather::with_capacity(4, 1);
        gather.push(header);
        packet.pieces().for_each(|piece| gather.push(piece));
        gather.end_packet();
        let written = self
            .carried
            .connection
            .write(&gather, 0, usize::MAX)
            .map_err(|_| Closed)?;
        let sent = (written.at < gather.total()).then_some(written.at);
        self.heed(port);
        Ok(sent)
    }

    /// Sends what is queued, as far as the peer has room; then its next room is an event.
    fn send_queued(&mut self, port: Port) {
        self.output = loop {
            if port.queued_bytes() == 0 {
                break Output::Empty;
            }
            let connection = &*self.carried.connection;
            let written = port.with_queue(|pieces| {
                let mut gather = Gather::with_capacity(pieces.len(), 0);
                pieces.iter().for_each(|piece| gather.push(piece));
                connection.write(&gather, 0, usize::MAX)
            });
            let Ok(written) = written else {
                // The connection takes no more; the next look finds its end.
                port.dequeue(port.queued_bytes());
                self.look_soon(port);
                break Output::Empty;
            };
            port.dequeue(written.at);
            if written.at > 0 {
                let change = self.stall.handle_moved();
                self.tell_stall(port, change);
            }
            let connection = &*self.carried.connection;
            let is_armed = written.blocked && connection.arm_writer();
            self.heed(port);
            if is_armed {
                let tries_from_bytes = port.queued_bytes() + GATHERED_BYTES;
                break Output::Blocked { tries_from_bytes };
            }
        };
        self.update_busy(port);
    }

    /// A write that looked for room may have found packets: no event will tell of them.
    fn heed(&mut self, port: Port) {
        if self.carried.connection.notifier().take_readable() {
            self.look_soon(port);
        }
        self.heed_key(port);
    }

    fn heed_key(&self, port: Port) {
        let Some(watcher) = self.watcher else { return };
        if self.carried.connection.notifier().take_key_due() {
            port.tell(watcher, KEY_DUE);
        }
    }

    /// The caller is told of stalls, and when the sending key nears its limit.
    pub fn watch(&mut self, port: Port) {
        self.watcher = Some(port.caller());
        self.heed_key(port);
    }

    fn tell_stall(&self, port: Port, change: Option<Change>) {
        let (Some(watcher), Some(change)) = (self.watcher, change) else {
            return;
        };
        let what = match change {
            Change::Stalled => STALLED,
            Change::Resumed => RESUMED,
        };
        port.tell(watcher, what);
    }

    fn update_busy(&mut self, port: Port) {
        let limit = if self.is_busy {
            QUEUE_LOW_BYTES
        } else {
            QUEUE_HIGH_BYTES
        };
        let is_busy = port.queued_bytes() > limit;
        if is_busy != self.is_busy {
            self.is_busy = is_busy;
            port.set_busy(is_busy);
            let change = self.stall.set_busy(is_busy);
            self.tell_stall(port, change);
            if self.input == Input::Armed {
                self.set_timer(port);
            }
        }
    }

    /// One of the descriptors is readable.
    pub fn handle_event(&mut self, port: Port, fd: RawFd) -> Fate {
        let is_event = fd == self.event_fd && self.carried.connection.drain_event();
        if !is_event {
            self.carried.connection.handle_liveness();
        }
        self.look(port)
    }

    /// The timer that the last callback set is over.
    pub fn handle_timeout(&mut self, port: Port) -> Fate {
        if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Fate::Ends;
        }
        if self.stall.at().is_some() {
            let change = self.stall.look(Instant::now());
            self.tell_stall(port, change);
        }
        if self.output == Output::Gathers {
            self.send_queued(port);
        }
        match self.input {
            Input::Held => Fate::Lives,
            Input::Armed => {
                self.set_timer(port);
                Fate::Lives
            }
            Input::Looking if self.carried.connection.is_quiet() => {
                self.wait(port, 0);
                Fate::Lives
            }
            Input::Looking | Input::Due => self.look(port),
        }
    }

    /// Gives arrived packets to the VM, and decides when to look again.
    fn look(&mut self, port: Port) -> Fate {
        let connection = &self.carried.connection;
        let end = connection.read(TURN, &mut self.received);
        // `read` has taken the packets of which the connection told before.
        connection.notifier().take_readable();
        let is_writable = connection.notifier().take_writable();
        let packets = self.deliver(port);
        if is_writable || self.output != Output::Empty {
            self.send_queued(port);
        }
        match end {
            ReadEnd::Closed(_) => return Fate::Ends,
            ReadEnd::More => self.look_soon(port),
            ReadEnd::Empty => self.wait(port, packets),
        }
        Fate::Lives
    }

    /// Looks in the next turn, also without an arrival.
    fn look_soon(&mut self, port: Port) {
        if self.input != Input::Held {
            self.input = Input::Due;
            port.set_timer(0);
        }
    }

    fn wait(&mut self, port: Port, packets: usize) {
        match self.looking.next(Instant::now(), packets) {
            next @ (Next::Look | Next::YieldAndLook) => {
                if next == Next::YieldAndLook {
                    std::thread::yield_now();
                }
                let is_idle = self.deadline.is_none() && self.output == Output::Empty;
                self.input = if is_idle { Input::Looking } else { Input::Due };
                port.set_timer(0);
            }
            Next::Arm => {
                let connection = &self.carried.connection;
                if !connection.arm() || connection.notifier().take_writable() {
                    self.look_soon(port);
                    return;
                }
                self.input = Input::Armed;
                if self.output != Output::Gathers {
                    self.set_timer(port);
                }
            }
        }
    }

    /// For an armed link: until its deadline, or the next look at a stall.
    fn set_timer(&self, port: Port) {
        if let Some(next) = self.deadline.into_iter().chain(self.stall.at()).min() {
            port.set_timer(milliseconds_until(next));
        }
    }

    fn deliver(&mut self, port: Port) -> usize {
        let mut packets = 0;
        for received in self.received.drain(..) {
            packets += received.packets();
            let taken = match &received {
                Received::Whole(block) => port.deliver(block, 0..block.len()),
                Received::Batch { bytes, packets } => packets.iter().all(|packet| port.deliver(bytes, packet.clone())),
                // Links advertise no landing buffers.
                Received::Landed(..) => false,
            };
            if !taken {
                // The VM has found the peer's bytes to be wrong and is about to end the port.
                break;
            }
        }
        packets
    }

    /// Tells the peer that this node lives, ahead of everything that waits. False: the connection is over.
    pub fn tick(&mut self, port: Port) -> bool {
        let is_up = self.carried.connection.tick().is_ok();
        let noted = self.carried.connection.notifier();
        // Both are taken.
        if noted.take_readable() | noted.take_writable() | !is_up {
            self.look_soon(port);
        }
        is_up
    }

    /// Packets received and sent, ticks included.
    pub fn packets(&self) -> (u64, u64) {
        self.carried.connection.packets()
    }

    /// The link's TCP connection has ended. Packets that the peer has sent before may still be under way.
    pub fn handle_peer_gone(&mut self, port: Port) {
        self.end_within(port, LAST_WORDS);
    }

    /// The port is closed, by a process or with the VM, and bytes are queued: the peer gets them if it reads in time.
    pub fn flush(&mut self, port: Port) {
        self.end_within(port, FLUSH);
    }

    fn end_within(&mut self, port: Port, time: Duration) {
        let deadline = Instant::now() + time;
        self.deadline = Some(self.deadline.map_or(deadline, |earlier| earlier.min(deadline)));
        // The next look sets the timer to the deadline.
        self.look_soon(port);
    }

    /// Ends the connection in order. The peer reads what was sent, then the end.
    pub fn close(&mut self, port: Port) {
        self.carried.connection.close();
        for fd in self.watched_fds() {
            port.unwatch(fd);
        }
    }
}

fn milliseconds_until(deadline: Instant) -> u32 {
    let left = deadline.saturating_duration_since(Instant::now()).as_millis();
    // At least 1: the timer may be a little early.
    u32::try_from(left).unwrap_or(u32::MAX).saturating_add(1)
}
