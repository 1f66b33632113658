//! All connections of this node, for `inet_rdma:info/0`.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use inet_rdma_engine::connection::{Connection, Notifier};
use parking_lot::Mutex;

use crate::statistics::StatisticsMap;
use crate::user::User;

static ALL: Mutex<BTreeMap<u64, Weak<dyn Listed>>> = Mutex::new(BTreeMap::new());

/// A connection of a link or of a stream.
pub trait Listed: Send + Sync {
    /// Its counts and what it is for.
    fn statistics(&self) -> StatisticsMap;
}

/// A connection, and what it is for.
pub struct Registered<N: Notifier = User> {
    id: u64,
    connection: Arc<Connection<N>>,
    /// Why it is over its fabric.
    why: String,
    /// The node at the other end of a distribution link; of a stream nothing.
    node: String,
}

impl<N: Notifier> Registered<N> {
    /// Names it on this node.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The stream.
    pub fn connection(&self) -> &Arc<Connection<N>> {
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

impl<N: Notifier + 'static> Listed for Registered<N> {
    fn statistics(&self) -> StatisticsMap {
        self.into()
    }
}

impl<N: Notifier> Drop for Registered<N> {
    fn drop(&mut self) {
        ALL.lock().remove(&self.id);
    }
}

/// Keeps an eye on a new connection.
pub fn add<N: Notifier + 'static>(
    id: u64,
    connection: Arc<Connection<N>>,
    why: String,
    node: String,
) -> Arc<Registered<N>> {
    let registered = Arc::new(Registered {
        id,
        connection,
        why,
        node,
    });
    let listed: Weak<Registered<N>> = Arc::downgrade(&registered);
    ALL.lock().insert(id, listed);
    registered
}

/// All that are left, oldest first.
pub fn all() -> Vec<Arc<dyn Listed>> {
    // Dropping the last reference locks `ALL`: not while it is locked here.
    let known: Vec<_> = ALL.lock().values().cloned().collect();
    known.iter().filter_map(Weak::upgrade).collect()
}
