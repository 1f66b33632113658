//! The end of a link.

use std::time::{Duration, Instant};

use inet_rdma_paths::Path;

use super::Link;
use crate::port::Port;

/// How long a port that is being closed waits for a peer that does not read the queued bytes.
const FLUSH: Duration = Duration::from_secs(5);

impl Link {
    /// Called when a process or the VM closes the port while bytes wait: the peer gets them if it reads in time.
    pub fn flush(&mut self, port: Port) {
        self.transmit(port);
        let has_tcp = self.tcp.is_some() && self.is_started && !self.paths.is_held(Path::Tcp);
        if !has_tcp && (self.queue.is_none() || self.paths.is_held(Path::QueuePair)) {
            // No path takes the bytes. Do not mark the port, so that the VM closes it after this call.
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

    /// Ends the link in order. The peer reads the sent bytes, then the end.
    pub fn close(&mut self, port: Port) {
        // Write as far as there is room, as packets may wait for the timer.
        let writes = self.session.is_sent_by_queue() && !self.paths.is_held(Path::QueuePair);
        if let Some(queue) = self.queue.as_mut().filter(|_| writes) {
            let _more = queue.transmit(&mut self.session);
        }
        if let Some(tcp) = self.tcp.take_if(|_| self.paths.is_held(Path::Tcp)) {
            tcp.path.reset();
            tcp.close(port);
        }
        if let Some(mut tcp) = self.tcp.take() {
            self.session.end();
            // Without the last frame the peer learns of the end by its next attempt.
            tcp.transmit(port, &mut self.session);
            tcp.finish(port);
        }
        for queue in [self.queue.take(), self.retired.take()].into_iter().flatten() {
            queue.close(port);
        }
    }
}
