//! Outgoing packets.

use std::time::{Duration, Instant};

use inet_rdma_paths::Path;
use inet_rdma_session::LENGTH_BYTES;

use super::Link;
use crate::port::{Packet, Port};
use crate::queue::GATHERED_BYTES;
use crate::tcp::Tcp;

/// The port is busy, and the VM keeps its packets, from this number of bytes on that no path has taken. One packet may
/// be larger.
const QUEUE_HIGH_BYTES: usize = 64 * 1024;
/// Below this number of bytes the port is no longer busy.
const QUEUE_LOW_BYTES: usize = 16 * 1024;
/// As [`QUEUE_HIGH_BYTES`], over TCP, where a write takes more. When 256 KiB are acknowledged as many bytes wait to be
/// written at once: to wake the senders first would leave the peer without work, and cost bulk of 1 MB a fifth.
const TCP_HIGH_BYTES: usize = 256 * 1024;
/// See [`TCP_HIGH_BYTES`].
const TCP_LOW_BYTES: usize = 64 * 1024;
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

impl Link {
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

    pub(super) fn send_by_tcp(&mut self, port: Port, packet: &Packet<'_>) {
        self.session.append(packet.bytes(), |log| packet.append_to(log, 0));
        self.look_whether_earned(port);
        if self.tcp.as_ref().is_none_or(Tcp::is_blocked) || self.paths.is_held(Path::Tcp) {
            return;
        }
        if packet.bytes() > TCP_GATHERED_BYTES || self.session.unsent_bytes() > TCP_GATHERED_BYTES_MAX {
            self.ask_round_trip(Instant::now());
            self.transmit(port);
        } else if !self.gathers {
            let now = Instant::now();
            self.ask_round_trip(now);
            let is_alone = self.sent_at.is_none_or(|before| now.duration_since(before) > PAUSE);
            self.sent_at = Some(now);
            if is_alone {
                self.transmit(port);
            } else {
                self.gathers = true;
            }
        }
    }

    fn ask_round_trip(&mut self, now: Instant) {
        if let Some(number) = self.round_trips.ask(now) {
            self.session.echo(number);
        }
    }

    pub(super) fn send_by_queue(&mut self, port: Port, packet: &Packet<'_>) {
        let is_held = self.paths.is_held(Path::QueuePair);
        let Some(queue) = self.queue.as_mut().filter(|_| !is_held) else {
            // The queue pair is lost or held, and the session is not resumed yet.
            self.session.append(packet.bytes(), |log| packet.append_to(log, 0));
            return;
        };
        let shares = queue.shares_next() || self.gathers;
        let may_gather = shares && packet.bytes() <= GATHERED_BYTES;
        if !may_gather && !self.gathers && !queue.is_blocked() && self.session.passes() {
            let length = u32::try_from(packet.bytes()).unwrap_or(u32::MAX).to_be_bytes();
            let total = LENGTH_BYTES + packet.bytes();
            let Some(sent) = queue.write(packet, &length) else {
                return;
            };
            self.session.handle_passed(sent, total);
            if sent == total {
                self.watch_write(Path::QueuePair);
                self.tell_key_due(port);
                return;
            }
            self.session.append_rest(|log| {
                log.copy(&length[sent.min(LENGTH_BYTES)..]);
                packet.append_to(log, sent.saturating_sub(LENGTH_BYTES));
            });
        } else {
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
        self.watch_write(Path::QueuePair);
    }

    /// Writes the waiting bytes, as far as the paths have room.
    pub(super) fn transmit(&mut self, port: Port) {
        self.gathers = false;
        let before = self.session.unsent_bytes();
        // Before the start the last message of the handshake may be still to come, over the caller's descriptor.
        if self.is_started {
            self.transmit_by_tcp(port);
        }
        let is_held = self.paths.is_held(Path::QueuePair);
        if let Some(queue) = self.queue.as_mut().filter(|_| !is_held) {
            if self.session.is_sent_by_queue() {
                if queue.can_be_lost() || self.is_returning {
                    self.session.handle_queue_read(queue.read_by_peer());
                }
                // The write has reached its bound: other ports have their turn before the rest.
                let queued = self.session.unsent_bytes();
                self.gathers = queue.transmit(&mut self.session);
                if self.gathers {
                    port.end_time_slice();
                }
                if self.session.unsent_bytes() < queued {
                    self.watch_write(Path::QueuePair);
                }
            }
        }
        self.tell_key_due(port);
        if self.session.unsent_bytes() < before && self.stall.wants_moved() {
            let change = self.stall.handle_moved(Instant::now());
            self.tell_stall(port, change);
        }
        self.update_busy(port);
    }

    fn transmit_by_tcp(&mut self, port: Port) {
        if self.paths.is_held(Path::Tcp) {
            if let Some(tcp) = &mut self.tcp {
                tcp.update_watch(port);
            }
            return;
        }
        if self
            .tcp
            .as_ref()
            .is_some_and(|tcp| !tcp.is_blocked() && self.tcp_takes(tcp))
        {
            self.look_first(port, Path::Tcp);
        }
        let Some(tcp) = &mut self.tcp else { return };
        let before = self.session.tcp_bytes() + tcp.held_bytes();
        tcp.transmit(port, &mut self.session);
        match self.session.tcp_bytes() + tcp.held_bytes() < before {
            true => self.watch_write(Path::Tcp),
            false => self.paths.handle_quiet(Path::Tcp),
        }
    }

    /// Whether bytes of packets wait that the connection may take.
    fn tcp_takes(&self, tcp: &Tcp) -> bool {
        self.session.has_tcp_bytes_due() || tcp.held_bytes() > 0
    }

    pub(super) fn update_busy(&mut self, port: Port) {
        let is_sent_by_queue = self.session.is_sent_by_queue();
        let (high, low) = match is_sent_by_queue {
            true => (QUEUE_HIGH_BYTES, QUEUE_LOW_BYTES),
            false => (TCP_HIGH_BYTES, TCP_LOW_BYTES),
        };
        let (unsent, logged) = match self.stall.is_busy() {
            true => (low, LOG_HIGH_BYTES - LOG_STEP_BYTES),
            false => (high, LOG_HIGH_BYTES),
        };
        let is_busy =
            self.session.unsent_bytes() > unsent || (is_sent_by_queue && self.session.logged_bytes() > logged);
        if is_busy != self.stall.is_busy() {
            port.set_busy(is_busy);
            let change = self.stall.set_busy(is_busy, Instant::now());
            self.tell_stall(port, change);
        }
    }

    /// Tells the peer that this node lives, before all waiting bytes.
    pub fn tick(&mut self, port: Port) {
        self.session.shrink();
        for path in [Path::Tcp, Path::QueuePair] {
            self.look_first(port, path);
        }
        match &mut self.queue {
            Some(_) if self.session.is_sent_by_queue() && self.paths.is_held(Path::QueuePair) => {}
            Some(queue) if self.session.is_sent_by_queue() => {
                queue.tick();
                self.paths.handle_quiet(Path::QueuePair);
                // Acknowledge over TCP, so that both sides notice if the TCP connection that stands by is dead. Before
                // the start the connection belongs to the settlement.
                if self.is_started && self.tcp.is_some() {
                    self.session.acknowledge();
                    self.transmit(port);
                    self.follow(port);
                } else if queue.is_blocked() {
                    // The tick may have found the room that the writer waits for.
                    self.transmit(port);
                }
            }
            _ if self.tcp.is_some() => {
                self.session.tick();
                self.ask_round_trip(Instant::now());
                self.transmit(port);
            }
            // No path carries the link, so no sign of life is sent: the peer's net_kernel counts from the last one.
            _ => {}
        }
        self.schedule(port);
    }

    /// A message to the peer's guard, lost with the TCP connection. False: it is too large, or nothing carries it.
    pub fn control(&mut self, port: Port, message: &[u8]) -> bool {
        let is_taken = self.tcp.is_some() && self.session.control(message.to_vec());
        self.transmit(port);
        if is_taken {
            self.watch_write(Path::Tcp);
        }
        self.schedule(port);
        is_taken
    }
}
