//! The queue pair of a link: the engine's connection, and the times at which the port polls it.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use inet_rdma_assembly::{Buffer, Gather, ReadLimit, Received};
use inet_rdma_engine::connection::{Connection, ReadEnd};
use inet_rdma_fabric::Transport;
use inet_rdma_link::QueueWritten;
use inet_rdma_paths::Look;
use inet_rdma_session::{LENGTH_BYTES, Session};

use crate::block::{Block, Held};
use crate::coalescer::Coalescer;
use crate::device_questions::DeviceQuestions;
use crate::handover::{self, Carried};
use crate::pacer::Pacer;
use crate::poll_policy::{PollPolicy, PollStep};
use crate::port::{Packet, Port};
use crate::tally::{QueueCounts, Tally};

/// Maximum that one callback gives to the VM; then other ports and processes have their turn.
const READ_MAX: ReadLimit = ReadLimit {
    bytes: 128 * 1024,
    packets: 256,
    exact: 0,
};

/// Maximum number of writes from the log in one callback. One write fills the peer's room; a peer that makes room a
/// byte at a time waits for the next turn.
const WRITES_MAX: usize = 16;

/// Slices of the log that one transfer gathers.
const SLICES: usize = 256;

/// The condition for which the port waits before it reads packets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Input {
    /// [`Queue::begin`].
    Held,
    /// An event: the connection is armed, by a read or behind it.
    Armed,
    /// The timer, set for a poll alone: without an arrival there is nothing to do.
    Polling,
    /// The timer: there is something to read, or an end to find.
    Due,
}

/// A queue pair that carries a link's session.
pub struct Queue {
    carried: Carried,
    event_fd: RawFd,
    liveness_fd: RawFd,
    poll_policy: PollPolicy,
    input: Input,
    can_be_lost: bool,
    coalescer: Coalescer,
    received: Vec<Received<Block>>,
    pacer: Pacer,
    /// Ticks sent over the queue pair.
    ticks: u64,
    questions: DeviceQuestions,
    /// The VM tells of its events.
    is_watched: bool,
}

impl Queue {
    /// The queue pair of a connection from which nothing was read yet.
    pub fn new(carried: Carried) -> Queue {
        let queue_pair = carried.connection.queue_pair();
        Queue {
            event_fd: queue_pair.event_fd().as_raw_fd(),
            liveness_fd: queue_pair.liveness_fd().as_raw_fd(),
            poll_policy: PollPolicy::new(Instant::now(), carried.never_polls),
            input: Input::Held,
            can_be_lost: queue_pair.capabilities().transport != Transport::SharedMemory,
            coalescer: Coalescer::new(queue_pair.capabilities().post_is_costly),
            received: Vec::new(),
            pacer: Pacer::default(),
            ticks: 0,
            questions: DeviceQuestions::default(),
            is_watched: false,
            carried,
        }
    }

    /// True if the queue pair may be lost while the peer's process lives: over a device, not over shared memory.
    pub fn can_be_lost(&self) -> bool {
        self.can_be_lost
    }

    /// Whether the next packet, if it is small, waits to share a transfer with others. Called once for each packet.
    pub fn shares_next(&mut self) -> bool {
        self.coalescer
            .next(|entries| self.carried.connection.queue_pair().peer_is_behind(entries))
    }

    fn connection(&self) -> &Arc<Connection> {
        &self.carried.connection
    }

    /// The event fd, and the liveness fd if it is another descriptor.
    fn watched_fds(&self) -> impl Iterator<Item = RawFd> + use<> {
        let liveness_fd = (self.liveness_fd != self.event_fd).then_some(self.liveness_fd);
        std::iter::once(self.event_fd).chain(liveness_fd)
    }

    /// True if this is one of the queue pair's descriptors.
    pub fn has_fd(&self, fd: RawFd) -> bool {
        fd == self.event_fd || fd == self.liveness_fd
    }

    /// Asks the VM to tell of its events. False: it cannot.
    pub fn watch(&mut self, port: Port) -> bool {
        self.is_watched = true;
        self.watched_fds().all(|fd| {
            handover::keep(fd, Arc::clone(self.connection()) as _);
            port.watch(fd) || {
                handover::forget(fd);
                false
            }
        })
    }

    /// True until [`Self::begin`].
    pub fn waits_for_begin(&self) -> bool {
        self.input == Input::Held
    }

    /// Starts to read packets. Some may have come before the descriptors were watched. Until then no reader
    /// polls, so room for the writer must make an event.
    pub fn begin(&mut self) {
        if self.input == Input::Held {
            self.connection().set_self_polling();
            self.input = Input::Due;
        }
    }

    /// True if the timer of 0 ms must be set for the queue pair.
    pub fn is_due(&self) -> bool {
        matches!(self.input, Input::Polling | Input::Due) || self.has_ended_unread()
    }

    /// Makes the port poll in the next turn, even without an arrival.
    pub fn poll_soon(&mut self) {
        if self.input != Input::Held {
            self.input = Input::Due;
        }
    }

    /// True if the peer or the device has ended the queue pair before [`Self::begin`].
    pub fn has_ended_unread(&self) -> bool {
        self.input == Input::Held && self.connection().closed().is_some()
    }

    /// Handles the event of a descriptor that is readable.
    pub fn handle_event(&mut self, fd: RawFd) {
        let is_event = fd == self.event_fd && self.connection().drain_event();
        if !is_event {
            self.connection().handle_liveness();
        }
    }

    /// Whether a turn of the port has nothing to poll for.
    pub fn is_idle_poll(&self) -> bool {
        matches!(self.input, Input::Held | Input::Armed)
    }

    /// True if only the timer asked for a poll, and the queue is empty. Takes no lock.
    pub fn skips_poll(&self) -> bool {
        self.input == Input::Polling && self.connection().is_quiet()
    }

    /// Called by the timer, if a poll is due. False: a process runs first.
    pub fn is_time(&mut self) -> bool {
        self.pacer.is_time(Instant::now)
    }

    /// Gives arrived packets to the VM. Returns their number, and whether more can come.
    pub fn read(&mut self, port: Port, session: &mut Session<Held, Block>, tally: &mut Tally) -> (usize, ReadEnd) {
        if self.input == Input::Held {
            return (0, ReadEnd::Empty);
        }
        // The read takes the packets of earlier notifications.
        self.carried.noted.readable.take();
        let limit = ReadLimit {
            packets: self.pacer.packets_max(READ_MAX.packets),
            ..READ_MAX
        };
        let reader = &mut self.carried.reader;
        let (end, is_armed) = if self.poll_policy.sleeps() {
            reader.read_and_arm(limit, &mut self.received)
        } else {
            (reader.read(limit, &mut self.received), false)
        };
        self.input = if is_armed { Input::Armed } else { Input::Due };
        let (packets, bytes) = self.deliver(port, tally);
        self.pacer
            .handle_turn(packets as u64, matches!(end, ReadEnd::More), Instant::now);
        self.coalescer.handle_received(packets);
        session.handle_queue_packets(bytes);
        (packets, end)
    }

    /// Gives arrived packets to the VM. Returns their number, and their bytes with the lengths.
    fn deliver(&mut self, port: Port, tally: &mut Tally) -> (usize, usize) {
        let (mut count, mut total) = (0, 0);
        for received in &self.received {
            count += received.packets();
            let taken = match received {
                Received::Whole(block) => {
                    total += LENGTH_BYTES + block.bytes();
                    tally.count_received(block.bytes(), || block.packet(0..block.bytes()));
                    port.deliver(block, 0..block.bytes())
                }
                Received::Batch { bytes, packets } => packets.iter().all(|packet| {
                    total += LENGTH_BYTES + packet.len();
                    tally.count_received(packet.len(), || bytes.packet(packet.clone()));
                    port.deliver(bytes, packet.clone())
                }),
                // Links advertise no landing buffers.
                Received::Landed(..) => false,
            };
            if !taken {
                // The VM refuses the packet: the peer's bytes are wrong, and it is about to end the port.
                break;
            }
        }
        self.received.clear();
        (count, total)
    }

    /// True if the connection has told of room since the last call.
    pub fn take_writable(&self) -> bool {
        self.carried.noted.writable.take()
    }

    /// Decides when to poll again, after a read that found no more. `must_poll`: in the next turn in any case.
    pub fn wait(&mut self, packets: usize, must_poll: bool) {
        if self.input == Input::Held {
            return;
        }
        let was_armed = self.input == Input::Armed && !self.carried.noted.readable.take();
        match self.poll_policy.next(Instant::now(), packets) {
            next @ (PollStep::Poll | PollStep::YieldAndPoll) => {
                if next == PollStep::YieldAndPoll {
                    std::thread::yield_now();
                }
                self.input = if must_poll { Input::Due } else { Input::Polling };
            }
            PollStep::Arm => {
                let is_armed = (was_armed || self.connection().arm_reader()) && !self.take_writable();
                self.input = if is_armed { Input::Armed } else { Input::Due };
            }
        }
    }

    /// Writes a packet without the log. Returns the bytes sent, with the length. None: the connection has ended.
    pub fn write(&mut self, packet: &Packet<'_>, length: &[u8; LENGTH_BYTES]) -> Option<usize> {
        let mut gather = Gather::small();
        gather.push(length);
        packet.pieces().for_each(|piece| gather.push(piece));
        gather.end_packet();
        let written = self.carried.writer.write(&gather, 0, usize::MAX);
        self.poll_if_readable();
        let Ok(written) = written else {
            // The next poll gives the VM the packets from before the end first.
            self.poll_soon();
            return None;
        };
        Some(written.at)
    }

    /// Sends the bytes that the session has for the queue pair, as far as the peer has room, in up to [`WRITES_MAX`]
    /// writes. If there is no room more makes an event.
    pub fn transmit(&mut self, session: &mut Session<Held, Block>) -> QueueWritten {
        for _ in 0..WRITES_MAX {
            let mut gather = Gather::with_capacity(16, 0);
            let mut slices = 0;
            session.queue_slices(usize::MAX, |slice| {
                gather.push(slice);
                slices += 1;
                slices < SLICES
            });
            if gather.total() == 0 {
                return QueueWritten::All;
            }
            let written = self.carried.writer.write(&gather, 0, usize::MAX);
            drop(gather);
            let Ok(written) = written else {
                // The connection has ended; the next poll finds the end.
                self.poll_soon();
                return QueueWritten::All;
            };
            session.handle_queued(written.at);
            let is_armed = written.blocked && self.connection().arm_writer();
            self.poll_if_readable();
            if is_armed {
                return QueueWritten::Blocked;
            }
        }
        QueueWritten::More
    }

    /// A write that looked for room may have found packets: no event will tell of them.
    fn poll_if_readable(&mut self) {
        if self.carried.noted.readable.take() {
            self.poll_soon();
        }
    }

    /// Tells the peer that this node lives, before all waiting bytes.
    pub fn tick(&mut self) {
        let is_up = self.connection().tick().is_ok();
        self.ticks += u64::from(is_up);
        let noted = &self.carried.noted;
        // Both are taken.
        if noted.readable.take() | noted.writable.take() | !is_up {
            self.poll_soon();
        }
    }

    /// Asks the peer's device for an answer behind all writes.
    pub fn ask(&mut self, now: Instant) {
        self.questions.begin(now, self.carried.connection.ask());
    }

    /// Looks what the peer's device owes, and asks it again. `due`: as of [`DeviceQuestions::handle`].
    pub fn look_at_peer(&mut self, now: Instant, due: Duration) -> Look {
        let retry = self.connection().queue_pair().capabilities().ack_timeout;
        self.questions.handle(now, self.carried.connection.ask(), due, retry)
    }

    /// Packets received, ticks included, and ticks sent. Takes no lock, as `dist_util` asks before each tick.
    pub fn packets(&self) -> (u64, u64) {
        (self.connection().packets().0, self.ticks)
    }

    pub fn counts(&self) -> QueueCounts {
        let all = self.connection().statistics();
        QueueCounts {
            packets_received: all.packets_received,
            ticks_sent: self.ticks,
            credit_stalls: all.stream.credit_stalls,
            wakeups_sent: all.wakeups_sent,
            wakeups_received: all.wakeups_received,
        }
    }

    /// Number of bytes that the peer has read, as it has acknowledged.
    pub fn read_by_peer(&self) -> u64 {
        self.connection().read_by_peer()
    }

    /// Ends the connection in order. The peer reads the sent bytes, then the end.
    pub fn close(mut self, port: Port) {
        self.carried.writer.close();
        self.unwatch(port);
    }

    /// The VM tells of its events no more. The connection stays.
    pub fn unwatch(&mut self, port: Port) {
        if std::mem::take(&mut self.is_watched) {
            self.watched_fds().for_each(|fd| port.unwatch(fd));
        }
    }
}
