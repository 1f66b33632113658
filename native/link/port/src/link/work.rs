//! What the link's state machine has the port do.

use std::time::Instant;

use inet_rdma_link::Work;
use inet_rdma_paths::Path;
use inet_rdma_session::WINDOW_BYTES_FIRST;

use super::Link;
use crate::port::Port;

impl Link {
    /// Does what the state machine says until there is nothing more, and tells the guard.
    pub(super) fn work(&mut self, port: Port) {
        self.begin_queue();
        if !self.state.has_output() {
            return;
        }
        while let Some(work) = self.state.poll_work(Instant::now()) {
            self.execute(port, work);
        }
        self.begin_queue();
        self.tell_notices(port);
        debug_assert_eq!(self.tcp.is_some(), self.state.has_tcp());
    }

    fn execute(&mut self, port: Port, work: Work) {
        match work {
            Work::ResetTcp => self.reset_tcp(port),
            Work::DropSuperseded => self.superseded = None,
            Work::CloseQueue => {
                if let Some(queue) = self.queue.take() {
                    self.drop_queue(port, queue);
                }
            }
            Work::RetireQueue => self.retire(port),
            Work::CloseRetired => {
                if let Some(queue) = self.retired.take() {
                    self.drop_queue(port, queue);
                }
            }
            Work::ResizeWindow(wanted) => {
                let beyond = self.window.resize(wanted.saturating_sub(WINDOW_BYTES_FIRST));
                let granted = wanted.min(WINDOW_BYTES_FIRST) + beyond;
                self.state.handle_window(wanted, granted);
                if let Some(tcp) = &mut self.tcp {
                    tcp.follow_window(granted);
                }
            }
            Work::TickQueue => {
                if let Some(queue) = &mut self.queue {
                    queue.tick();
                }
            }
            Work::Ask => {
                if let Some(queue) = &mut self.queue {
                    queue.ask(Instant::now());
                }
            }
            Work::Look(path) => self.look_at_peer(path),
            Work::Transmit(Path::Tcp) => self.transmit_by_tcp(),
            Work::Transmit(Path::QueuePair) => self.transmit_by_queue(port),
            Work::SetBusy(is_busy) => port.set_busy(is_busy),
        }
    }

    /// Reads from the queue pair from now on, if the peer sends over it.
    fn begin_queue(&mut self) {
        if let Some(queue) = self.queue.as_mut().filter(|queue| queue.waits_for_begin()) {
            if self.state.reads_queue() {
                queue.begin();
            }
        }
    }

    fn reset_tcp(&mut self, port: Port) {
        let Some(tcp) = self.tcp.take() else { return };
        tcp.path.reset();
        self.past_compression = self.compressed(Some(&tcp));
        self.codec = tcp.close(port);
    }

    /// Finds what the peer's host owes. The time is taken before the facts: an answer that comes in between is not
    /// taken for an older one.
    fn look_at_peer(&mut self, path: Path) {
        let now = Instant::now();
        let look = match (path, &mut self.tcp, &mut self.queue) {
            (Path::Tcp, Some(tcp), _) => tcp.look_at_peer(now),
            (Path::QueuePair, _, Some(queue)) => {
                let patience = self.state.paths().patience().unwrap_or_default();
                queue.look_at_peer(now, patience)
            }
            (Path::Tcp, None, _) | (Path::QueuePair, _, None) => return,
        };
        self.state.handle_look(path, now, look);
    }

    fn transmit_by_tcp(&mut self) {
        let Some(tcp) = &mut self.tcp else { return };
        let session = self.state.session_mut();
        let before = session.tcp_bytes();
        let written = tcp.transmit(session);
        self.state
            .handle_tcp_written(Instant::now(), before, tcp.held_bytes(), written);
    }

    fn transmit_by_queue(&mut self, port: Port) {
        let Some(queue) = &mut self.queue else { return };
        if self.state.wants_queue_read() {
            self.state.handle_queue_read(queue.read_by_peer());
        }
        let session = self.state.session_mut();
        let before = session.unsent_bytes();
        let written = queue.transmit(session);
        self.state.handle_queue_written(Instant::now(), before, written);
        if self.state.is_gathering() {
            port.end_time_slice();
        }
    }
}
