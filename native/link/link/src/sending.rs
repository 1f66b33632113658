//! Outgoing packets: which wait for others, and when what is written.

use std::time::{Duration, Instant};

use inet_rdma_paths::{Path, StallChange};
use inet_rdma_session::{Log, Memory};

use crate::echo;
use crate::link::Link;
use crate::notice::Notice;
use crate::queue_pair::{QueueWritten, Room};
use crate::tcp::{Output, Present, TcpWritten};
use crate::transmission::{Begun, Transmission};
use crate::work::Work;

/// The port is busy, and the VM keeps its packets, from this number of bytes on that a queue pair has not taken. One
/// packet may be larger. Over TCP see [`Backlog`](crate::backlog).
const QUEUE_HIGH_BYTES: usize = 64 * 1024;
/// Below this number of bytes the port is no longer busy.
const QUEUE_LOW_BYTES: usize = 16 * 1024;
/// The port is busy, too, from this number of bytes on that a queue pair has taken and the peer has not acknowledged:
/// it bounds the memory of a link's log. Over TCP the session's window bounds it.
const LOG_HIGH_BYTES: usize = 4 << 20;
/// The port is no longer busy once the log is smaller by these bytes. A smaller step gives senders a turn earlier.
const LOG_STEP_BYTES: usize = 192 * 1024;

/// Over TCP, packets above this size do not wait for others.
const TCP_GATHERED_BYTES: usize = 4096;
/// Over TCP, this number of gathered bytes does not wait for more.
const TCP_GATHERED_BYTES_MAX: usize = 48 * 1024;
/// Over TCP, the first packet after a pause of this length is sent at once, as its sender may wait for an answer;
/// packets that follow it closely share a write. 0 and 100 us cost an rpc of 100 processes a tenth.
const PAUSE: Duration = Duration::from_micros(20);

/// Over a queue pair, packets above this size do not wait to share a transfer: their post costs less than the copy of
/// their bytes.
pub const GATHERED_BYTES: usize = 16 * 1024;

/// The time after which the port writes again where the kernel had no memory for the bytes, as no event tells of
/// memory. Short beside what a lost segment costs, Linux's TCP_RTO_MIN of 200 ms.
const AGAIN: Duration = Duration::from_millis(10);

/// What the caller does with a packet for the queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueStep {
    /// Write it past the log: then [`Link::handle_passed`].
    Pass,
    /// [`Link::append`] it, then [`Link::handle_appended_for_queue`].
    Append {
        /// It may wait for others.
        may_gather: bool,
    },
}

impl<H: AsRef<[u8]>, L: Memory> Link<H, L> {
    /// A packet for the TCP connection. True: [`Self::handle_appended_for_tcp`] decides when it is written.
    #[must_use]
    pub fn append_for_tcp(&mut self, bytes: usize, add: impl FnOnce(&mut Log<H>)) -> bool {
        self.session.append(bytes, add);
        self.tell_if_earned();
        let takes = self.tcp.present().is_some_and(|present| !present.is_blocked()) && !self.paths.is_held(Path::Tcp);
        takes && (!self.gathering.waits || self.exceeds_gathering(bytes))
    }

    fn exceeds_gathering(&self, bytes: usize) -> bool {
        bytes > TCP_GATHERED_BYTES || self.session.unsent_bytes() > TCP_GATHERED_BYTES_MAX
    }

    /// Decides when the packet of [`Self::append_for_tcp`] is written.
    pub fn handle_appended_for_tcp(&mut self, now: Instant, bytes: usize) {
        self.ask_round_trip(now, echo::WITH_PACKETS);
        if self.exceeds_gathering(bytes) {
            self.request_transmission();
            return;
        }
        let is_alone = self
            .gathering
            .sent_at
            .is_none_or(|before| now.saturating_duration_since(before) > PAUSE);
        self.gathering.sent_at = Some(now);
        if is_alone {
            self.request_transmission()
        } else {
            self.gathering.waits = true
        }
    }

    pub(crate) fn ask_round_trip(&mut self, now: Instant, interval: Duration) {
        if let Some(number) = self.echo.ask(now, interval) {
            self.session.echo(number);
        }
    }

    /// What becomes of a packet for the queue pair, which [has room or may get it](Self::has_writable_queue). `shares`:
    /// it waits for others if it is small.
    #[must_use]
    pub fn queue_step(&self, bytes: usize, shares: bool) -> QueueStep {
        let may_gather = (shares || self.gathering.waits) && bytes <= GATHERED_BYTES;
        let is_blocked = self.queue.is_some_and(|queue| queue.is_blocked());
        if !may_gather && !self.gathering.waits && !is_blocked && self.session.passes() {
            QueueStep::Pass
        } else {
            QueueStep::Append { may_gather }
        }
    }

    /// The queue pair has taken the first `bytes` bytes of a packet of `packet_bytes` bytes with its length. `add` puts
    /// the rest into the log, if there is one.
    pub fn handle_passed(&mut self, bytes: usize, packet_bytes: usize, add: impl FnOnce(&mut Log<H>)) {
        self.session.handle_passed(bytes, packet_bytes);
        if bytes < packet_bytes {
            self.session.append_rest(add);
            self.handle_appended_for_queue(false);
        }
    }

    /// Decides when the packet that was appended for the queue pair is written.
    pub fn handle_appended_for_queue(&mut self, may_gather: bool) {
        let waiting = self.session.unsent_bytes();
        match self.queue.map(|queue| queue.room) {
            Some(Room::None { tries_from_bytes }) if waiting < tries_from_bytes => {}
            Some(Room::Free) if may_gather && waiting <= GATHERED_BYTES => self.gathering.waits = true,
            _ => self.request_transmission(),
        }
    }

    /// True if the caller must report a write of packets over this path: [`Self::handle_data_written`].
    pub fn wants_data_written(&self, path: Path) -> bool {
        self.paths.wants_data_written(path)
    }

    /// Bytes of packets were written over the path.
    pub fn handle_data_written(&mut self, path: Path, now: Instant) {
        if self.paths.wants_data_written(path) {
            self.asks |= path == Path::QueuePair;
            self.paths.handle_data_written(path, now);
        }
    }

    /// The bytes that wait are written, as far as the paths have room.
    pub fn request_transmission(&mut self) {
        self.gathering.waits = false;
        let begun = match self.transmission {
            Transmission::None => Begun {
                unsent_bytes: self.session.unsent_bytes(),
                is_awaited: false,
                has_looked: false,
            },
            Transmission::Tcp(begun) | Transmission::QueuePair(begun) | Transmission::Done(begun) => begun,
        };
        self.transmission = Transmission::Tcp(begun);
    }

    /// As [`Self::request_transmission`]; somebody waits for what goes over TCP.
    pub(crate) fn request_awaited_transmission(&mut self) {
        self.request_transmission();
        if let Transmission::Tcp(begun) = &mut self.transmission {
            begun.is_awaited = true;
        }
    }

    pub(crate) fn request_transmission_unless_gathering(&mut self) {
        if !self.gathering.waits && self.session.is_transmission_due() {
            self.request_transmission();
        }
    }

    /// The next path to write to.
    pub(crate) fn next_transmission(&mut self, now: Instant) -> Option<Path> {
        if let Transmission::Tcp(begun) = self.transmission {
            if self.must_look_before_write() && !begun.has_looked {
                self.looks[Path::Tcp as usize] = true;
                self.transmission = Transmission::Tcp(Begun {
                    has_looked: true,
                    ..begun
                });
                return None;
            }
            self.transmission = Transmission::QueuePair(begun);
            if self.takes_tcp() {
                if self.tcp_bytes_due() {
                    self.ask_for_window(now);
                    self.ask_with_write(now);
                }
                return Some(Path::Tcp);
            }
            if begun.is_awaited {
                self.handle_data_written(Path::Tcp, now);
            }
        }
        if let Transmission::QueuePair(begun) = self.transmission {
            self.transmission = Transmission::Done(begun);
            if self.has_writable_queue() && self.session.is_sent_by_queue() {
                return Some(Path::QueuePair);
            }
        }
        if let Transmission::Done(begun) = std::mem::take(&mut self.transmission) {
            if self.session.unsent_bytes() < begun.unsent_bytes && self.stall.wants_moved() {
                let change = self.stall.handle_moved(now);
                self.tell_stall(change);
            }
        }
        None
    }

    /// Whether the TCP connection takes bytes. Before the start the last message of the handshake may be still to come,
    /// over the caller's descriptor.
    fn takes_tcp(&self) -> bool {
        self.is_started() && self.has_tcp_room() && !self.paths.is_held(Path::Tcp)
    }

    /// Whether bytes of packets wait that the TCP connection may take.
    fn tcp_bytes_due(&self) -> bool {
        self.session.has_tcp_bytes_due() || self.tcp.present().is_some_and(|present| present.held_bytes > 0)
    }

    /// Only ticks or answers have gone over the TCP connection since the last look at it.
    fn must_look_before_write(&self) -> bool {
        self.takes_tcp() && self.tcp_bytes_due() && self.is_watching() && self.paths.must_look_first(Path::Tcp)
    }

    /// The caller has written the session's bytes to the TCP connection. `before`: the session's
    /// [`tcp_bytes`](inet_rdma_session::Session::tcp_bytes) before. `held_bytes`: those that the session has
    /// transmitted and the socket has not taken.
    pub fn handle_tcp_written(&mut self, now: Instant, before: usize, held_bytes: usize, written: TcpWritten) {
        let is_awaited = match self.transmission {
            Transmission::QueuePair(begun) => begun.is_awaited,
            Transmission::None | Transmission::Tcp(_) | Transmission::Done(_) => false,
        };
        let Some(present) = self.present_tcp() else { return };
        let held_before = std::mem::replace(&mut present.held_bytes, held_bytes);
        present.output = match written {
            TcpWritten::All => Output::Free,
            TcpWritten::Blocked => Output::Blocked,
            TcpWritten::NoMemory => Output::Again(now + AGAIN),
            TcpWritten::Failed(loss) => Output::Failed(loss),
        };
        if is_awaited || self.session.tcp_bytes() + held_bytes < before + held_before {
            self.handle_data_written(Path::Tcp, now)
        } else {
            self.paths.handle_tick_written(Path::Tcp)
        }
    }

    /// The TCP socket is writable.
    pub fn handle_writable(&mut self) {
        if let Some(present) = self.present_tcp().filter(|present| present.is_blocked()) {
            present.output = Output::Free;
        }
        self.request_transmission();
    }

    /// The caller has written the session's bytes to the queue pair. `before`: the session's
    /// [`unsent_bytes`](inet_rdma_session::Session::unsent_bytes) before.
    pub fn handle_queue_written(&mut self, now: Instant, before: usize, written: QueueWritten) {
        let unsent = self.session.unsent_bytes();
        if let Some(queue) = &mut self.queue {
            queue.room = match written {
                QueueWritten::Blocked => Room::None {
                    tries_from_bytes: unsent + GATHERED_BYTES,
                },
                QueueWritten::All | QueueWritten::More => Room::Free,
            };
        }
        // The write has reached its bound: other ports have their turn before the rest.
        self.gathering.waits |= written == QueueWritten::More;
        if unsent < before {
            self.handle_data_written(Path::QueuePair, now);
        }
    }

    /// Whether the caller must tell what the queue pair's peer has read: [`Self::handle_queue_read`].
    pub fn wants_queue_read(&self) -> bool {
        let keeps_taken = self.queue.is_some_and(|queue| queue.can_be_lost) || self.session.peer_has_left_queue();
        keeps_taken && self.session.is_sent_by_queue()
    }

    /// The queue pair's peer has read the first `bytes` bytes that went over it.
    pub fn handle_queue_read(&mut self, bytes: u64) {
        self.session.handle_queue_read(bytes);
    }

    fn wants_busy(&self) -> bool {
        let is_sent_by_queue = self.session.is_sent_by_queue();
        let (high, low) = if is_sent_by_queue {
            (QUEUE_HIGH_BYTES, QUEUE_LOW_BYTES)
        } else {
            (self.backlog.high_bytes(), self.backlog.low_bytes())
        };
        let (unsent, logged) = if self.stall.is_busy() {
            (low, LOG_HIGH_BYTES - LOG_STEP_BYTES)
        } else {
            (high, LOG_HIGH_BYTES)
        };
        self.session.unsent_bytes() > unsent || (is_sent_by_queue && self.session.logged_bytes() > logged)
    }

    pub(crate) fn is_busy_due(&self) -> bool {
        self.wants_busy() != self.stall.is_busy()
    }

    /// Whether the port is busy from now on, if that has changed.
    pub(crate) fn busy_change(&mut self, now: Instant) -> Option<bool> {
        let is_busy = self.wants_busy();
        if is_busy == self.stall.is_busy() {
            return None;
        }
        if !self.session.is_sent_by_queue() {
            self.backlog.handle_busy(is_busy, now);
        }
        let change = self.stall.set_busy(is_busy, now);
        self.tell_stall(change);
        if let Some(notice) = self.fullness.handle_busy(is_busy, now) {
            self.tell(notice);
        }
        Some(is_busy)
    }

    pub(crate) fn tell_stall(&mut self, change: Option<StallChange>) {
        if change.is_some() {
            self.fullness.restart();
        }
        match change {
            None => {}
            Some(StallChange::Stalled) => self.tell(Notice::Stalled),
            Some(StallChange::Ended) => self.tell(Notice::StallEnded),
        }
    }

    /// Prepares a sign of life: [`Self::tick`] follows behind the looks of [`Self::poll_work`].
    pub fn look_before_tick(&mut self) {
        self.session.shrink();
        self.rest_window();
        for path in [Path::Tcp, Path::QueuePair] {
            self.looks[path as usize] |= self.paths.must_look_first(path) && self.is_watching();
        }
    }

    /// Tells the peer that this node lives, before all waiting bytes. While no path carries the link no sign of life is
    /// sent: the peer's net_kernel counts from the last one.
    pub fn tick(&mut self, now: Instant) {
        if self.queue.is_some() && self.session.is_sent_by_queue() {
            if !self.paths.is_held(Path::QueuePair) {
                self.tick_by_queue();
            }
        } else if self.tcp.is_present() {
            self.session.tick();
            self.ask_round_trip(now, echo::WITH_TICKS);
            // A side that only reads learns by its own questions that nothing of the peer comes.
            self.ask_with_write(now);
            match self.present_tcp() {
                Some(Present { questions: Some(_), .. }) => self.request_awaited_transmission(),
                _ => self.request_transmission(),
            }
        }
    }

    fn tick_by_queue(&mut self) {
        self.order(Work::TickQueue);
        self.paths.handle_tick_written(Path::QueuePair);
        // Acknowledge over TCP, so that both sides notice if the TCP connection that stands by is dead. Before the
        // start the connection belongs to the settlement.
        if self.is_started() && self.tcp.is_present() {
            self.session.acknowledge();
            self.request_transmission();
        } else if self.queue.is_some_and(|queue| queue.is_blocked()) {
            // The tick may have found the room that the writer waits for.
            self.request_transmission();
        }
    }

    /// A message to the peer's guard, lost with the TCP connection. False: it is too large, or nothing carries it.
    pub fn control(&mut self, now: Instant, message: &[u8]) -> bool {
        let is_taken = self.tcp.is_present() && self.session.control(message.to_vec());
        self.ask_with_write(now);
        if is_taken {
            self.request_awaited_transmission()
        } else {
            self.request_transmission()
        }
        is_taken
    }
}
