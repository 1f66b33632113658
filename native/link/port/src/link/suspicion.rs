//! Suspects paths whose peer's host owes an answer for too long.

use std::time::{Duration, Instant};

use inet_rdma_paths::{Look, Notice, Path};

use super::Link;
use super::loss::Loss;
use crate::port::Port;
use crate::queue::Queue;
use crate::tcp::Tcp;

impl Link {
    /// Suspects a path that owes an answer for this time. None: no path.
    pub fn set_patience(&mut self, port: Port, time: Option<Duration>) {
        self.paths.set_patience(time);
        self.schedule(port);
    }

    /// The node did not run for a while: suspects all paths, and writes nothing over them.
    ///
    /// The machine may have been restored from a snapshot, and the peer may have received bytes after it was taken.
    /// Then the peer's kernel drops what this side writes at the same places of the stream and takes what follows, and
    /// sealed records would have keys and nonces that have served before. So an answer, which the peer's kernel gives
    /// to no such connection, releases the path; a sealed one is made anew in spite of an answer, as a record may have
    /// been lost on its way to the peer. A queue pair stays held until an attempt to resume gives it up.
    pub fn suspect(&mut self, port: Port) {
        if self.is_watching() {
            let now = Instant::now();
            self.paths.suspect(now);
            self.tell_suspicion(port);
            self.schedule(port);
        }
    }

    /// Before the start the paths belong to the settlement; a link that is about to end has its own deadline.
    pub(super) fn is_watching(&self) -> bool {
        self.is_started && self.deadline.is_none()
    }

    /// Looks at the paths whose time has come.
    pub(super) fn look_if_due(&mut self, port: Port) {
        if self.paths.at().is_none() || !self.is_watching() {
            return;
        }
        let now = Instant::now();
        for path in [Path::Tcp, Path::QueuePair] {
            if self.paths.is_due(path, now) {
                self.look_at_peer(port, path);
            }
        }
        self.tell_suspicion(port);
    }

    /// Looks at a path, if it is suspected: bytes have come over it.
    pub(super) fn look_if_suspected(&mut self, port: Port, path: Path) {
        if self.paths.is_suspected(path) {
            self.look_at_peer(port, path);
            self.tell_suspicion(port);
        }
    }

    /// Looks at a path before the next write, if only ticks or answers have gone over it since the last look.
    pub(super) fn look_first(&mut self, port: Port, path: Path) {
        if self.paths.must_look_first(path) && self.is_watching() {
            self.look_at_peer(port, path);
            self.tell_suspicion(port);
        }
    }

    /// Notes that bytes of packets were written over the path.
    pub(super) fn watch_write(&mut self, path: Path) {
        if !self.paths.wants_loud(path) {
            return;
        }
        let now = Instant::now();
        if let (Path::QueuePair, Some(queue)) = (path, &mut self.queue) {
            queue.ask(now);
        }
        self.paths.handle_loud(path, now);
    }

    fn look_at_peer(&mut self, port: Port, path: Path) {
        let was_held = self.paths.is_held(path);
        // Before the facts: an answer that comes in between is not taken for an older one.
        let now = Instant::now();
        let patience = self.paths.patience().unwrap_or_default();
        let look = match path {
            Path::Tcp => self.tcp.as_ref().map(Tcp::look_at_peer),
            Path::QueuePair if was_held => None,
            Path::QueuePair => self
                .queue
                .as_mut()
                .map(|queue| Queue::look_at_peer(queue, now, patience)),
        };
        self.paths.handle_look(path, now, look.unwrap_or(Look::UNKNOWN));
        // Senders wait for room in the peer's ring. The peer's word of it may be lost, this side's device owes nothing,
        // and neither a packet nor a tick follows.
        if path == Path::QueuePair && self.session.is_sent_by_queue() && self.session.unsent_bytes() > 0 {
            self.watch_write(path);
        }
        if was_held && !self.paths.is_held(path) {
            self.handle_released(port);
        }
    }

    /// The TCP connection, which was held, has answered.
    fn handle_released(&mut self, port: Port) {
        if self.tcp.as_ref().is_some_and(|tcp| tcp.path.sealing().is_some()) {
            // Told as a loss alone.
            let _notice = self.paths.poll_notice();
            self.lose_tcp(port, Loss::WOKE);
        } else {
            self.tell_suspicion(port);
            self.transmit(port);
        }
    }

    fn tell_suspicion(&mut self, port: Port) {
        match self.paths.poll_notice() {
            None => {}
            Some(Notice::Suspected) => self.tell(port, c"suspected"),
            Some(Notice::Trusted) => self.tell(port, c"trusted"),
        }
    }
}
