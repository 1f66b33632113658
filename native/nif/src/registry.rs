//! All connections of this node, for `inet_rdma:info/0`.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use inet_rdma_engine::connection::Connection;
use parking_lot::Mutex;

use crate::packets::Block;

static ALL: Mutex<BTreeMap<u64, Weak<Registered>>> = Mutex::new(BTreeMap::new());

/// A connection, and what it is for.
pub struct Registered {
    id: u64,
    connection: Arc<Connection<Block>>,
    node: Mutex<String>,
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

    /// It is the distribution connection to this node.
    pub fn label(&self, node: String) {
        *self.node.lock() = node;
    }

    /// The node at the other end, or nothing.
    pub fn node(&self) -> String {
        self.node.lock().clone()
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        ALL.lock().remove(&self.id);
    }
}

/// Keeps an eye on a new connection.
pub fn add(id: u64, connection: Arc<Connection<Block>>) -> Arc<Registered> {
    let registered = Arc::new(Registered {
        id,
        connection,
        node: Mutex::new(String::new()),
    });
    ALL.lock().insert(id, Arc::downgrade(&registered));
    registered
}

/// `connections() -> Count`: of this node, whatever for.
#[rustler::nif]
fn connections() -> usize {
    ALL.lock().len()
}

/// All that are left, oldest first.
pub fn all() -> Vec<Arc<Registered>> {
    // Dropping the last reference locks `ALL`: not while it is locked here.
    let known: Vec<_> = ALL.lock().values().cloned().collect();
    known.iter().filter_map(Weak::upgrade).collect()
}
