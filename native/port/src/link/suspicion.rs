//! Suspects paths whose peer's host owes an answer for too long.

use std::time::{Duration, Instant};

use inet_rdma_ways::{Look, Notice, Way};

use super::Link;
use super::notices::{SUSPECTED, TRUSTED};
use crate::port::Port;
use crate::queue::Queue;
use crate::tcp::Tcp;

impl Link {
    /// Suspects a path that owes an answer for this time. None: no path.
    pub fn set_patience(&mut self, port: Port, time: Option<Duration>) {
        self.ways.set_patience(time);
        self.schedule(port);
    }

    /// The node did not run for a while: suspects all paths. Writes nothing: what a virtual machine wrote before it was
    /// restored from a snapshot must not be followed by other bytes.
    pub fn suspect(&mut self, port: Port) {
        if self.is_watching() {
            let now = Instant::now();
            self.ways.suspect(now);
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
        if self.ways.at().is_none() || !self.is_watching() {
            return;
        }
        let now = Instant::now();
        for way in [Way::Tcp, Way::QueuePair] {
            if self.ways.is_due(way, now) {
                self.look_at_peer(way);
            }
        }
        self.tell_suspicion(port);
    }

    /// Looks at a path, if it is suspected: bytes have come over it.
    pub(super) fn look_if_suspected(&mut self, port: Port, way: Way) {
        if self.ways.is_suspected(way) {
            self.look_at_peer(way);
            self.tell_suspicion(port);
        }
    }

    /// Looks at a path before the next write, if only ticks or answers have gone over it since the last look.
    pub(super) fn look_first(&mut self, port: Port, way: Way) {
        if self.ways.must_look_first(way) && self.is_watching() {
            self.look_at_peer(way);
            self.tell_suspicion(port);
        }
    }

    /// Notes that bytes of packets were written over the path.
    pub(super) fn heed_write(&mut self, way: Way) {
        if !self.ways.heeds_loud(way) {
            return;
        }
        let now = Instant::now();
        if let (Way::QueuePair, Some(queue)) = (way, &mut self.queue) {
            queue.ask(now);
        }
        self.ways.handle_loud(way, now);
    }

    fn look_at_peer(&mut self, way: Way) {
        // Before the facts: an answer that comes in between is not taken for an older one.
        let now = Instant::now();
        let patience = self.ways.patience().unwrap_or_default();
        let look = match way {
            Way::Tcp => self.tcp.as_ref().map(Tcp::look_at_peer),
            Way::QueuePair => self
                .queue
                .as_mut()
                .map(|queue| Queue::look_at_peer(queue, now, patience)),
        };
        self.ways.handle_look(way, now, look.unwrap_or(Look::UNKNOWN));
    }

    fn tell_suspicion(&mut self, port: Port) {
        match self.ways.poll_notice() {
            None => {}
            Some(Notice::Suspected) => self.tell(port, SUSPECTED),
            Some(Notice::Trusted) => self.tell(port, TRUSTED),
        }
    }
}
