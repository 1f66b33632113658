//! All connections of this node, for `inet_rdma:info/0`.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use inet_rdma_engine::assembly::Buffer;
use inet_rdma_engine::connection::Connection;
use parking_lot::Mutex;

use crate::packets::Block;
use crate::statistics::StatisticsMap;

static ALL: Mutex<BTreeMap<u64, Weak<dyn Listed>>> = Mutex::new(BTreeMap::new());

/// A connection of a link or of a stream.
pub trait Listed: Send + Sync {
    /// Its counts and what it is for.
    fn statistics(&self) -> StatisticsMap;
}

/// A connection, and what it is for.
pub struct Registered<B = Block> {
    id: u64,
    connection: Arc<Connection<B>>,
    /// Why it is over its fabric.
    why: String,
    /// The node at the other end of a distribution link; of a stream nothing.
    node: String,
}

impl<B> Registered<B> {
    /// Names it on this node.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The stream.
    pub fn connection(&self) -> &Arc<Connection<B>> {
        &self.connection
    }

    /// Why it is over its fabric, in words.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// The node at the other end, or nothing.
    pub fn node(&self) -> &str {
        &self.node
    }
}

impl<B: Buffer + Send + 'static> Listed for Registered<B> {
    fn statistics(&self) -> StatisticsMap {
        self.into()
    }
}

impl<B> Drop for Registered<B> {
    fn drop(&mut self) {
        ALL.lock().remove(&self.id);
    }
}

/// Keeps an eye on a new connection.
pub fn add<B: Buffer + Send + 'static>(
    id: u64,
    connection: Arc<Connection<B>>,
    why: String,
    node: String,
) -> Arc<Registered<B>> {
    let registered = Arc::new(Registered {
        id,
        connection,
        why,
        node,
    });
    let listed: Weak<Registered<B>> = Arc::downgrade(&registered);
    ALL.lock().insert(id, listed);
    registered
}

/// All that are left, oldest first.
pub fn all() -> Vec<Arc<dyn Listed>> {
    // Dropping the last reference locks `ALL`: not while it is locked here.
    let known: Vec<_> = ALL.lock().values().cloned().collect();
    known.iter().filter_map(Weak::upgrade).collect()
}
