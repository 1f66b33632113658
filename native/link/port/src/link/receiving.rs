//! Arriving packets and events.

use std::os::fd::RawFd;
use std::time::Instant;

use inet_rdma_engine::connection::ReadEnd;
use inet_rdma_path_tcp::ReceiveError;
use inet_rdma_paths::Path;
use inet_rdma_session::Event;

use super::timer::Timer;
use super::{Fate, Link};
use crate::port::Port;
use crate::queue::Queue;
use crate::tcp::Tcp;

impl Link {
    /// One of the descriptors is readable.
    pub fn handle_event(&mut self, port: Port, fd: RawFd) -> Fate {
        let fate = if self.tcp.as_ref().is_some_and(|tcp| tcp.fd == fd) {
            self.receive(port)
        } else if let Some(queue) = self.queue.as_mut().filter(|queue| queue.has_fd(fd)) {
            queue.handle_event(fd);
            if self.paths.is_held(Path::QueuePair) {
                // Its descriptors may stay readable.
                queue.unwatch(port);
                Fate::Lives
            } else if queue.has_ended_unread() {
                // Its descriptors stay readable.
                self.lose_unread_queue(port);
                Fate::Lives
            } else {
                self.look(port)
            }
        } else {
            Fate::Lives
        };
        self.schedule(port);
        fate
    }

    /// The TCP socket is writable.
    pub fn handle_writable(&mut self, port: Port, fd: RawFd) {
        if let Some(tcp) = self.tcp.as_mut().filter(|tcp| tcp.fd == fd) {
            tcp.handle_writable();
            self.transmit(port);
        }
        self.schedule(port);
    }

    /// The timer that the last callback set is over.
    pub fn handle_timeout(&mut self, port: Port) -> Fate {
        self.timer = Timer::Unset;
        if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Fate::Ends;
        }
        if self.stall.at().is_some() {
            let change = self.stall.look(Instant::now());
            self.tell_stall(port, change);
        }
        self.look_if_due(port);
        if self.attempt_until.is_some_and(|until| until <= Instant::now()) {
            self.fail_attempt(port);
        }
        let is_time = self.tcp.as_mut().is_some_and(|tcp| tcp.try_again(Instant::now()));
        if self.gathers || is_time {
            self.transmit(port);
        }
        // The last turn has left bytes, or a write has failed.
        if self.is_started && self.tcp.as_ref().is_some_and(Tcp::is_due) && self.receive(port) == Fate::Ends {
            return Fate::Ends;
        }
        // A write or a tick has found the end.
        if self.is_started && self.queue.as_ref().is_some_and(Queue::has_ended_unread) {
            self.lose_unread_queue(port);
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

    pub(super) fn receive(&mut self, port: Port) -> Fate {
        let Some(tcp) = &mut self.tcp else {
            return Fate::Lives;
        };
        let received = tcp.receive(port, &mut self.session, &mut self.tally);
        if self.handle_events(port) == Fate::Ends {
            return Fate::Ends;
        }
        match received {
            Ok(()) => {
                self.drop_retired(port);
                self.look_if_suspected(port, Path::Tcp);
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
            Err(error) => {
                self.tell_receive_error(port, &error);
                Fate::Ends
            }
        }
    }

    pub(super) fn transmit_unless_gathering(&mut self, port: Port) {
        if !self.gathers && self.session.is_transmission_due() {
            self.transmit(port);
        }
    }

    pub(super) fn handle_events(&mut self, port: Port) -> Fate {
        while let Some(event) = self.session.poll_event() {
            match event {
                Event::Control(message) => self.tell_bytes(port, &message),
                Event::Moved => {
                    self.changes.moves += 1;
                    self.begin_queue();
                    self.tell(port, c"moved");
                }
                Event::Returned => {
                    if self.session.has_left_queue() {
                        self.leave_queue(port);
                    } else {
                        self.is_returning = true;
                    }
                }
                Event::Echoed(number) => self.round_trips.handle_answer(number, Instant::now()),
                // All its packets have come.
                Event::Ended => {
                    self.tell(port, c"peer_closed");
                    return Fate::Ends;
                }
            }
        }
        Fate::Lives
    }

    /// Gives packets that arrived over the queue pair to the VM, and decides when to look again.
    pub(super) fn look(&mut self, port: Port) -> Fate {
        // A look writes credit.
        let is_held = self.paths.is_held(Path::QueuePair);
        let Some(queue) = self.queue.as_mut().filter(|_| !is_held) else {
            return Fate::Lives;
        };
        let (packets, end) = queue.read(port, &mut self.session, &mut self.tally);
        // The end that the peer has said lies behind packets of the queue pair.
        if self.handle_events(port) == Fate::Ends {
            return Fate::Ends;
        }
        if packets > 0 {
            self.look_if_suspected(port, Path::QueuePair);
        }
        let Some(queue) = &mut self.queue else {
            return Fate::Lives;
        };
        let is_writable = queue.take_writable();
        if (queue.can_be_lost() || self.is_returning) && self.session.is_sent_by_queue() {
            self.session.handle_queue_read(queue.read_by_peer());
            self.update_busy(port);
        }
        let Some(queue) = &mut self.queue else {
            return Fate::Lives;
        };
        if is_writable || queue.is_blocked() || self.gathers {
            self.transmit(port);
        }
        let must_look = self.deadline.is_some() || self.session.unsent_bytes() > 0;
        let Some(queue) = &mut self.queue else {
            return Fate::Lives;
        };
        match end {
            ReadEnd::Closed(reason) => return self.handle_queue_end(port, &reason),
            ReadEnd::More => {
                port.end_time_slice();
                queue.look_soon();
            }
            ReadEnd::Empty => queue.wait(packets, must_look),
        }
        Fate::Lives
    }
}
