//! All connections of this node, for `inet_rdma:info/0`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use inet_rdma_engine::connection::Connection;
use parking_lot::Mutex;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

static ALL: Mutex<BTreeMap<u64, Weak<Registered>>> = Mutex::new(BTreeMap::new());

/// A connection of a link or of a stream, and its peer.
pub struct Registered {
    /// Names the connection on this node.
    pub id: u64,
    pub connection: Arc<Connection>,
    /// The reason for the choice of its fabric, in words.
    pub why: String,
    /// The node at the other end of a distribution link; empty for a stream.
    pub node: String,
}

impl Drop for Registered {
    fn drop(&mut self) {
        ALL.lock().remove(&self.id);
    }
}

/// The next connection's name on this node.
pub fn next_id() -> u64 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

pub fn add(id: u64, connection: Arc<Connection>, why: String, node: String) -> Arc<Registered> {
    let registered = Arc::new(Registered {
        id,
        connection,
        why,
        node,
    });
    ALL.lock().insert(id, Arc::downgrade(&registered));
    registered
}

/// All connections that still exist, oldest first.
pub fn all() -> Vec<Arc<Registered>> {
    // Dropping the last reference locks `ALL`: drop references after the lock here is released.
    let known: Vec<_> = ALL.lock().values().cloned().collect();
    known.iter().filter_map(Weak::upgrade).collect()
}
