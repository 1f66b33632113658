//! Two connections with each other, over any fabric, each with its halves.

#![allow(dead_code, reason = "no test uses all of it")]

#[path = "side.rs"]
mod side;
#[path = "signal.rs"]
pub mod signal;

use std::sync::Arc;

use inet_rdma_assembly::{Framing, Gather, ReadLimit, Received};
use inet_rdma_engine::connection::{Closed, Connection, Notifier, ReadEnd, ReadHalf, WriteHalf, Written};
use inet_rdma_fabric::{Fabric, QueuePair};
use parking_lot::Mutex;
pub use side::*;
use signal::Signal;

/// A connection with its halves, each behind a lock, and its user.
pub struct Conn {
    connection: Arc<Connection>,
    reader: Mutex<ReadHalf<Vec<u8>>>,
    writer: Mutex<WriteHalf>,
    framing: Framing,
    user: Arc<Signal>,
}

impl Conn {
    pub fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    pub fn queue_pair(&self) -> &dyn QueuePair {
        self.connection.queue_pair()
    }

    pub fn notifier(&self) -> &Signal {
        &self.user
    }

    pub fn framing(&self) -> Framing {
        self.framing
    }

    pub fn read(&self, limit: ReadLimit, out: &mut Vec<Received<Vec<u8>>>) -> ReadEnd {
        self.reader.lock().read(limit, out)
    }

    pub fn arm_reader(&self) -> bool {
        self.connection.arm_reader()
    }

    pub fn write(&self, gather: &Gather<'_>, at: usize, max: usize) -> Result<Written, Closed> {
        self.writer.lock().write(gather, at, max)
    }

    pub fn arm_writer(&self) -> bool {
        self.connection.arm_writer()
    }

    pub fn finish(&self) -> Result<(), Closed> {
        self.writer.lock().finish()
    }

    pub fn close(&self) {
        self.writer.lock().close();
    }
}

impl Side {
    pub fn connection(&self, qp: Box<dyn QueuePair>) -> Arc<Conn> {
        let user = Arc::new(Signal::default());
        let notifier = Arc::clone(&user) as Arc<dyn Notifier>;
        let halves = self.halves(qp, notifier);
        Arc::new(Conn {
            connection: halves.connection,
            reader: Mutex::new(halves.reader),
            writer: Mutex::new(halves.writer),
            framing: self.framing,
            user,
        })
    }
}

/// Two connected connections.
pub fn connect(fabric: &dyn Fabric, client: &Side, server: &Side) -> (Arc<Conn>, Arc<Conn>) {
    let (connecting, accepting) = queue_pairs(fabric, client, server);
    (client.connection(connecting), server.connection(accepting))
}
