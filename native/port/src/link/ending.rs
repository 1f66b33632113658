//! The end of a link.

use std::time::{Duration, Instant};

use super::Link;
use crate::port::Port;

/// How long a port that is closed waits for a peer that does not read what is queued.
const FLUSH: Duration = Duration::from_secs(5);

/// How long the port waits for bytes that the peer has sent, once the peer has ended the link.
const LAST_WORDS: Duration = Duration::from_secs(2);

impl Link {
    /// The TLS connection on which the link began has ended. Packets that the peer has sent before may still be under
    /// way.
    pub fn handle_peer_gone(&mut self, port: Port) {
        self.end_within(LAST_WORDS);
        self.schedule(port);
    }

    /// The port is closed, by a process or with the VM, and bytes wait: the peer gets them if it reads in time.
    pub fn flush(&mut self, port: Port) {
        self.transmit(port);
        if self.tcp.is_none() && self.queue.is_none() {
            // No path takes them. The VM closes a port whose queue is empty behind this call, so it must not be marked
            // again.
            self.unmark(port);
            return;
        }
        self.end_within(FLUSH);
        self.schedule(port);
    }

    pub(super) fn end_within(&mut self, time: Duration) {
        let deadline = Instant::now() + time;
        self.deadline = Some(self.deadline.map_or(deadline, |earlier| earlier.min(deadline)));
        if let Some(queue) = &mut self.queue {
            queue.look_soon();
        }
    }

    /// Ends the link in order. The peer reads what was sent, then the end.
    pub fn close(&mut self, port: Port) {
        // Write as far as there is room, as packets may wait for the timer.
        if let Some(queue) = self.queue.as_mut().filter(|_| self.session.is_sent_by_queue()) {
            let _more = queue.transmit(&mut self.session);
        }
        if let Some(mut tcp) = self.tcp.take() {
            self.session.end();
            // Without the last frame the peer learns of the end by its next attempt.
            tcp.transmit(port, &mut self.session);
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
}
