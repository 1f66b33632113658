//! Connections on their way from the native function that made them to the port that carries them, descriptors on
//! their way out of the VM's poll set, and descriptors that are lent to inet's functions.

use std::any::Any;
use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use inet_rdma_engine::connection::{Connection, ReadHalf, WriteHalf};
use parking_lot::Mutex;

use crate::block::Block;
use crate::notifications::Notifications;

/// Set once the VM has opened a port of this copy's driver.
static HAS_DRIVER: AtomicBool = AtomicBool::new(false);

/// Notes that a port is open, and the driver is locked in memory.
pub(crate) fn note_driver() {
    HAS_DRIVER.store(true, Ordering::Relaxed);
}

/// True if the VM's driver is of this copy of the library. False if the VM has refused the driver, or has the driver of
/// a copy that was loaded earlier from another path: ports of that copy never find a connection that is left here.
pub fn has_driver() -> bool {
    HAS_DRIVER.load(Ordering::Relaxed)
}

/// A connection on its way to its port.
pub struct Carried {
    /// The connection.
    pub connection: Arc<Connection>,
    /// The reading half.
    pub reader: ReadHalf<Block>,
    /// The writing half.
    pub writer: WriteHalf,
    /// The flags by which the connection tells the port.
    pub noted: Arc<Notifications>,
    /// True: the port polls for packets only after an event.
    pub never_polls: bool,
    /// The connection's place in the list of connections, dropped together with the port's connection.
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

/// Owners of descriptors that the VM may have in its poll set: they stay open until the VM calls `stop_select`.
static WATCHED: LazyLock<Mutex<HashMap<RawFd, Owner>>> = LazyLock::new(Mutex::default);

/// Owns a descriptor: a connection, or a socket.
pub type Owner = Arc<dyn Any + Send + Sync>;

/// Keeps the owner of this descriptor until [`forget`].
pub fn keep(fd: RawFd, owner: Owner) {
    WATCHED.lock().insert(fd, owner);
}

/// Drops the owner of a descriptor that the VM has released.
pub fn forget(fd: RawFd) {
    let owner = WATCHED.lock().remove(&fd);
    // Dropped without the lock held: the last reference takes a connection apart.
    drop(owner);
}

/// Descriptors of TCP connections that processes use. A link that ends does not close them: inet may still have them in
/// the VM's poll set, and would take the next socket with the same number out of it.
static LENT: LazyLock<Mutex<HashMap<RawFd, OwnedFd>>> = LazyLock::new(Mutex::default);

/// Lends a descriptor until [`take_back`].
pub(crate) fn lend(socket: OwnedFd) -> RawFd {
    let fd = socket.as_raw_fd();
    LENT.lock().insert(fd, socket);
    fd
}

/// Closes a descriptor that was lent, and no other.
pub fn take_back(fd: RawFd) {
    let socket = LENT.lock().remove(&fd);
    drop(socket);
}
