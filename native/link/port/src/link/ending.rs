//! The end of a link.

use std::time::{Duration, Instant};

use inet_rdma_paths::Path;

use super::Link;
use crate::ended;
use crate::port::Port;

/// How long a port that is being closed waits for a peer that does not read the queued bytes.
const FLUSH: Duration = Duration::from_secs(5);

impl Link {
    /// Called when a process or the VM closes the port while bytes wait: the peer gets them if it reads in time.
    pub fn flush(&mut self, port: Port) {
        self.keep_attribution();
        self.state.request_transmission();
        self.work(port);
        let has_tcp = self.state.is_started() && self.state.has_writable_tcp();
        if !has_tcp && !self.state.has_writable_queue() {
            // No path takes the bytes. Do not mark the port, so that the VM closes it after this call.
            self.unmark(port);
            return;
        }
        self.state.end_at(Instant::now() + FLUSH);
        if let Some(queue) = &mut self.queue {
            queue.poll_soon();
        }
        self.schedule(port);
    }

    /// Keeps the counts of senders and targets for the link's guard; once.
    fn keep_attribution(&mut self) {
        if self.guard.take().is_some() {
            ended::keep(self.secret.name(), self.attribution().unwrap_or_default());
        }
    }

    /// Ends the link in order. The peer reads the sent bytes, then the end.
    pub fn close(&mut self, port: Port) {
        self.keep_attribution();
        // Write as far as there is room, as packets may wait for the timer.
        let writes = self.state.is_sent_by_queue() && !self.state.is_held(Path::QueuePair);
        if let Some(queue) = self.queue.as_mut().filter(|_| writes) {
            let _all_or_no_room = queue.transmit(self.state.session_mut());
        }
        if let Some(tcp) = self.tcp.take_if(|_| self.state.is_held(Path::Tcp)) {
            tcp.path.reset();
            tcp.close(port);
        }
        if let Some(mut tcp) = self.tcp.take() {
            self.state.session_mut().end();
            // Without the last frame the peer learns of the end by its next attempt.
            let has_failed = if self.state.has_tcp_room() {
                tcp.write_last(self.state.session_mut())
            } else {
                self.state.has_failed_tcp()
            };
            tcp.finish(port, has_failed);
        }
        for queue in [self.queue.take(), self.retired.take()].into_iter().flatten() {
            queue.close(port);
        }
    }
}
