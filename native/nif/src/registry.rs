//! All connections of this node, for `inet_rdma:info/0`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use inet_rdma_engine::connection::Connection;
use parking_lot::Mutex;

use crate::packets::Block;

static ALL: Mutex<BTreeMap<u64, Weak<Registered>>> = Mutex::new(BTreeMap::new());
/// How many of them are distribution connections: asked for in every turn of a controller, so no lock.
static LINKS: AtomicUsize = AtomicUsize::new(0);

/// A connection, and what it is for.
pub struct Registered {
    id: u64,
    connection: Arc<Connection<Block>>,
    /// Why it is over its fabric.
    why: String,
    /// Set: the distribution connection to this node.
    node: OnceLock<String>,
}

impl Registered {
    /// Names it on this node.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The stream.
    pub fn connection(&self) -> &Connection<Block> {
        &self.connection
    }

    /// Why it is over its fabric, in words.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// It is the distribution connection to this node, for good.
    pub fn label(&self, node: String) {
        if self.node.set(node).is_ok() {
            LINKS.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The node at the other end, or nothing.
    pub fn node(&self) -> &str {
        self.node.get().map_or("", String::as_str)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        ALL.lock().remove(&self.id);
        if self.node.get().is_some() {
            LINKS.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Keeps an eye on a new connection.
pub fn add(id: u64, connection: Arc<Connection<Block>>, why: String) -> Arc<Registered> {
    let registered = Arc::new(Registered {
        id,
        connection,
        why,
        node: OnceLock::new(),
    });
    ALL.lock().insert(id, Arc::downgrade(&registered));
    registered
}

/// `links() -> Count`: distribution connections of this node.
#[rustler::nif]
fn links() -> usize {
    LINKS.load(Ordering::Relaxed)
}

/// All that are left, oldest first.
pub fn all() -> Vec<Arc<Registered>> {
    // Dropping the last reference locks `ALL`: not while it is locked here.
    let known: Vec<_> = ALL.lock().values().cloned().collect();
    known.iter().filter_map(Weak::upgrade).collect()
}
