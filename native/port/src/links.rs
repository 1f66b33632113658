//! Connections on their way from the native function that made them to the port that carries them, and descriptors on their
//! way out of the VM's poll set.

use std::any::Any;
use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::{Arc, LazyLock};

use inet_rdma_engine::connection::Connection;
use parking_lot::Mutex;

use crate::noted::Noted;

/// A connection on its way to its port.
pub struct Carried {
    /// The stream.
    pub connection: Arc<Connection<Noted>>,
    /// Never look for packets without having been woken.
    pub never_looks: bool,
    /// Lives as long as the port has the connection.
    pub listed: Arc<dyn Any + Send + Sync>,
}

static OFFERED: LazyLock<Mutex<HashMap<u64, Carried>>> = LazyLock::new(Mutex::default);

/// Leaves a connection for the port that asks for it by this number.
pub fn offer(id: u64, carried: Carried) {
    OFFERED.lock().insert(id, carried);
}

/// Takes the connection with this number, for the port or to give it up.
pub fn take(id: u64) -> Option<Carried> {
    OFFERED.lock().remove(&id)
}

/// Connections whose descriptors the VM may still have in its poll set: they stay open until it says otherwise.
static WATCHED: LazyLock<Mutex<HashMap<RawFd, Arc<Connection<Noted>>>>> = LazyLock::new(Mutex::default);

/// Keeps the connection, whose descriptor this is, until [`forget`].
pub fn keep(fd: RawFd, connection: &Arc<Connection<Noted>>) {
    WATCHED.lock().insert(fd, Arc::clone(connection));
}

/// The VM has let go of the descriptor.
pub fn forget(fd: RawFd) {
    let connection = WATCHED.lock().remove(&fd);
    // Without the lock: the last reference takes the connection apart.
    drop(connection);
}
