//! Two stream sockets with each other, over any fabric.

#![allow(dead_code, reason = "no test uses all of it")]

#[path = "../../../../core/engine/tests/support/side.rs"]
mod side;
#[path = "signal.rs"]
pub mod signal;

use std::sync::Arc;

use inet_rdma_fabric::{Fabric, QueuePair};
use inet_rdma_socket::stream_socket::{Bounds, StreamSocket};
pub use side::*;
use signal::Signal;

/// What the tests use.
pub type Conn = StreamSocket<Signal>;

/// For a test that does not depend on them.
const BOUNDS: Bounds = Bounds {
    call_bytes: 131_072,
    sends: 64,
    receives: 64,
};

impl Side {
    pub fn connection(&self, qp: Box<dyn QueuePair>) -> Arc<Conn> {
        self.bounded(qp, BOUNDS)
    }

    pub fn bounded(&self, qp: Box<dyn QueuePair>, bounds: Bounds) -> Arc<Conn> {
        let protection = self.keys.map(|keys| keys.protection());
        let (parameters, settings) = (self.parameters(), self.settings());
        let user = Signal::default();
        StreamSocket::new(
            qp,
            &parameters,
            settings,
            bounds,
            self.framing,
            protection.as_ref(),
            user,
        )
        .expect("a stream")
    }
}

/// Two connected sockets.
pub fn connect(fabric: &dyn Fabric, client: &Side, server: &Side) -> (Arc<Conn>, Arc<Conn>) {
    let (connecting, accepting) = queue_pairs(fabric, client, server);
    (client.connection(connecting), server.connection(accepting))
}

/// Two connected sockets of equal sides.
pub fn connect_bounded(fabric: &dyn Fabric, side: &Side, bounds: Bounds) -> (Arc<Conn>, Arc<Conn>) {
    let (connecting, accepting) = queue_pairs(fabric, side, side);
    (side.bounded(connecting, bounds), side.bounded(accepting, bounds))
}
