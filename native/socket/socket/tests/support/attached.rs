//! Users of connections that polling threads look after: each waits on a condition until it is woken.

#![allow(dead_code, reason = "no test uses all of it")]

use std::sync::Arc;

use inet_rdma_assembly::{Gather, ReadLimit, Received};
use inet_rdma_engine::connection::{Closed, ReadEnd};
use inet_rdma_socket::endpoint::{Attachment, Pollers};

use crate::pair::Conn;

/// A connection in a polling thread's hands.
pub struct Attached {
    pub socket: Arc<Conn>,
    pub attachment: Attachment,
}

impl Attached {
    pub fn new(pollers: &Arc<Pollers>, socket: Arc<Conn>) -> Self {
        let attachment = pollers.attach(Arc::clone(socket.connection())).expect("an attachment");
        Self { socket, attachment }
    }

    /// Writes all of it.
    pub fn write(&self, gather: &Gather<'_>, max: usize) -> Result<(), Closed> {
        let mut at = 0;
        while at < gather.total() {
            let written = self.socket.write(gather, at, max)?;
            at = written.at;
            if written.blocked && self.socket.arm_writer() {
                self.socket.notifier().wait(|wakes| &mut wakes.writer, "writer");
            }
        }
        Ok(())
    }

    /// The next packets; Err: the end.
    pub fn read(&self, limit: ReadLimit) -> Result<Vec<Received<Vec<u8>>>, Closed> {
        loop {
            let mut out = Vec::new();
            let end = self.socket.read(limit, &mut out);
            if !out.is_empty() {
                return Ok(out);
            }
            match end {
                ReadEnd::More => {}
                ReadEnd::Closed(closed) => return Err(closed),
                ReadEnd::Empty => {
                    if self.socket.arm_reader() {
                        self.socket.notifier().wait(|wakes| &mut wakes.reader, "reader");
                    }
                }
            }
        }
    }

    /// Ends the outgoing direction.
    pub fn finish(&self) -> Result<(), Closed> {
        self.socket.finish()
    }
}
