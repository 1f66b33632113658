//! Arriving packets and events.

use std::os::fd::RawFd;
use std::time::Instant;

use inet_rdma_engine::connection::{Closed, ReadEnd};
use inet_rdma_link::{Fault, QueueEnd};
use inet_rdma_path_tcp::{ReceiveError, Received};
use inet_rdma_paths::Path;

use super::timer::Timer;
use super::{Fate, Link};
use crate::notices::loss_of;
use crate::port::Port;
use crate::queue::Queue;

/// What an error of a read means for the link.
pub(super) fn fault(error: &ReceiveError) -> Fault<'_> {
    match error {
        ReceiveError::Lost(lost) => Fault::Lost(loss_of(*lost)),
        ReceiveError::Violation(violation) => Fault::Violation(*violation),
        error if error.is_damage() => Fault::Damaged(error),
        error => Fault::Misbehaved(error),
    }
}

impl Link {
    /// One of the descriptors is readable.
    pub fn handle_event(&mut self, port: Port, fd: RawFd) -> Fate {
        if let Some(tcp) = self.tcp.as_ref().filter(|tcp| tcp.fd == fd) {
            if !(tcp.is_paced() && self.is_tcp_due(tcp)) {
                self.receive(port);
            }
        } else if let Some(queue) = self.queue.as_mut().filter(|queue| queue.has_fd(fd)) {
            queue.handle_event(fd);
            if self.state.is_held(Path::QueuePair) {
                // Its descriptors may stay readable.
                queue.unwatch(port);
            } else if queue.has_ended_unread() {
                // Its descriptors stay readable.
                self.state.handle_unread_queue_end(Instant::now());
            } else {
                self.poll_queue(port);
            }
        }
        self.settle(port);
        self.fate()
    }

    /// The TCP socket is writable.
    pub fn handle_writable(&mut self, port: Port, fd: RawFd) {
        if self.tcp.as_ref().is_some_and(|tcp| tcp.fd == fd) {
            self.state.handle_writable();
        }
        self.settle(port);
    }

    /// The timer that the last callback set is over.
    pub fn handle_timeout(&mut self, port: Port) -> Fate {
        self.timer = Timer::Unset;
        self.state.handle_timeout(Instant::now());
        self.work(port);
        if self.state.is_over() {
            return Fate::Ends;
        }
        if self.state.is_started() {
            self.handle_due(port);
        }
        match &mut self.queue {
            Some(queue) if queue.skips_poll() => queue.wait(0, self.state.is_ending()),
            Some(queue) if !queue.is_idle_poll() => {
                if queue.is_time() {
                    self.poll_queue(port);
                } else {
                    port.end_time_slice();
                }
            }
            _ => {}
        }
        self.settle(port);
        self.fate()
    }

    /// The last turn has left bytes, or a write or a tick has found the end of a path.
    fn handle_due(&mut self, port: Port) {
        let is_due = self.tcp.as_ref().is_some_and(|tcp| self.is_tcp_due(tcp));
        if let Some(tcp) = self.tcp.as_mut().filter(|_| is_due) {
            if tcp.is_time() {
                self.receive(port);
            } else {
                port.end_time_slice();
            }
        }
        if self.queue.as_ref().is_some_and(Queue::has_ended_unread) {
            self.state.handle_unread_queue_end(Instant::now());
            self.work(port);
        }
    }

    /// Reads the TCP connection. If the turn has left bytes a process runs before the next turn, such as their
    /// receiver; the peer gets its pace by TCP.
    fn receive(&mut self, port: Port) {
        let Some(tcp) = &mut self.tcp else { return };
        let before = self.tally.received;
        let received = tcp.receive(port, self.state.session_mut(), &mut self.tally);
        if matches!(received, Ok(Received::More)) {
            port.end_time_slice();
        }
        let is_all = !matches!(received, Ok(Received::More));
        let received = received.as_ref().map(|_received| ()).map_err(fault);
        let now = Instant::now();
        if self.tally.received > before {
            self.state.handle_packets(now);
        }
        self.state.handle_received(now, is_all, received);
        if let Some(trip) = self.state.take_round_trip() {
            self.round_trips.add(now, trip);
        }
        self.work(port);
    }

    /// Gives packets that arrived over the queue pair to the VM, and decides when to poll again.
    fn poll_queue(&mut self, port: Port) {
        // A poll writes credit.
        let is_held = self.state.is_held(Path::QueuePair);
        let Some(queue) = self.queue.as_mut().filter(|_| !is_held && !self.state.is_over()) else {
            return;
        };
        let (packets, end) = queue.read(port, self.state.session_mut(), &mut self.tally);
        let has_room = queue.take_writable();
        if self.state.wants_queue_read() {
            self.state.handle_queue_read(queue.read_by_peer());
        }
        self.state.handle_queue_packets(Instant::now(), packets, has_room);
        self.work(port);
        let Some(queue) = self.queue.as_mut().filter(|_| !self.state.is_over()) else {
            return;
        };
        match end {
            ReadEnd::Closed(reason) => self.state.handle_queue_end(Instant::now(), queue_end(&reason)),
            ReadEnd::More => {
                port.end_time_slice();
                queue.poll_soon();
            }
            ReadEnd::Empty => queue.wait(packets, self.state.must_poll_queue()),
        }
    }
}

fn queue_end(reason: &Closed) -> QueueEnd {
    match reason {
        Closed::PeerGone | Closed::Fabric(_) => QueueEnd::Lost,
        _ => QueueEnd::Closed,
    }
}
