//! Outgoing packets.

use std::time::Instant;

use inet_rdma_link::QueueStep;
use inet_rdma_paths::Path;
use inet_rdma_session::LENGTH_BYTES;

use super::Link;
use crate::port::{Packet, Port};

impl Link {
    pub fn send(&mut self, port: Port, packet: &Packet<'_>) {
        self.tally.count_sent(packet);
        if self.state.is_sent_by_queue() {
            self.send_by_queue(packet);
        } else if self
            .state
            .append_for_tcp(packet.bytes(), |log| packet.append_to(log, 0))
        {
            self.state.handle_appended_for_tcp(Instant::now(), packet.bytes());
        }
        self.settle(port);
    }

    fn send_by_queue(&mut self, packet: &Packet<'_>) {
        let is_held = self.state.is_held(Path::QueuePair);
        let Some(queue) = self.queue.as_mut().filter(|_| !is_held) else {
            // The queue pair is lost or held, and the session is not resumed yet.
            self.state.append(packet.bytes(), |log| packet.append_to(log, 0));
            return;
        };
        match self.state.queue_step(packet.bytes(), queue.shares_next()) {
            QueueStep::Pass => {
                let length = u32::try_from(packet.bytes()).unwrap_or(u32::MAX).to_be_bytes();
                let Some(sent) = queue.write(packet, &length) else {
                    return;
                };
                self.state.handle_passed(sent, LENGTH_BYTES + packet.bytes(), |log| {
                    log.copy(&length[sent.min(LENGTH_BYTES)..]);
                    packet.append_to(log, sent.saturating_sub(LENGTH_BYTES));
                });
            }
            QueueStep::Append { may_gather } => {
                self.state.append(packet.bytes(), |log| packet.append_to(log, 0));
                self.state.handle_appended_for_queue(may_gather);
            }
        }
        if self.state.wants_data_written(Path::QueuePair) {
            self.state.handle_data_written(Path::QueuePair, Instant::now());
        }
    }

    /// Tells the peer that this node lives, before all waiting bytes.
    pub fn tick(&mut self, port: Port) {
        self.state.look_before_tick();
        self.work(port);
        self.state.tick(Instant::now());
        self.settle(port);
    }

    /// A message to the peer's guard, lost with the TCP connection. False: it is too large, or nothing carries it.
    pub fn control(&mut self, port: Port, message: &[u8]) -> bool {
        let is_taken = self.state.control(Instant::now(), message);
        self.settle(port);
        is_taken
    }
}
