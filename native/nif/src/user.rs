//! The processes of a connection, and the messages that they get.
//!
//! `{'$inet_rdma', Id, readable | writable}` to processes that wait in a call, `{'$inet_rdma', Id, ended}` to
//! the TLS owner; `{inet_rdma_sent | inet_rdma_received, Socket, Reference, Result}` to the process that posted; in
//! active mode `{inet_rdma, Socket, Data}` and the other messages of active mode to the socket's owner.

use inet_rdma_assembly::Received;
use inet_rdma_engine::connection::Closed;
use inet_rdma_socket::stream_socket::StreamNotifier;
use parking_lot::Mutex;
use rustler::{Atom, Encoder, Env, LocalPid};

use crate::atoms;
use crate::messages;
use crate::packets::{Block, encode_packet};
use crate::receipt::Receipt;
use crate::terms;

/// The processes that wait for one connection.
pub struct User {
    /// Names the connection in messages.
    id: u64,
    pub readers: Mutex<Vec<LocalPid>>,
    pub writers: Mutex<Vec<LocalPid>>,
    owned: Mutex<Owned>,
}

/// The message that the TLS owner of a stream gets, once.
#[derive(Default)]
struct Owned {
    /// The connection is over, and the owner was not told yet.
    is_over: bool,
    owner: Option<LocalPid>,
}

impl User {
    pub fn new(id: u64) -> Self {
        Self {
            id,
            readers: Mutex::default(),
            writers: Mutex::default(),
            owned: Mutex::default(),
        }
    }

    /// Removes a process that no longer waits.
    pub fn remove(&self, pid: LocalPid) {
        self.readers.lock().retain(|waiter| *waiter != pid);
        self.writers.lock().retain(|waiter| *waiter != pid);
    }

    /// Makes this process the owner, which gets a message at the end.
    pub fn set_owner(&self, pid: LocalPid) {
        self.owned.lock().owner = Some(pid);
        self.tell_owner();
    }

    fn tell_owner(&self) {
        let mut owned = self.owned.lock();
        let Some(pid) = owned.owner else { return };
        if std::mem::take(&mut owned.is_over) {
            messages::send(&pid, |env| (atoms::event(), self.id, atoms::ended()).encode(env));
        }
    }

    fn wake(&self, waiting: &Mutex<Vec<LocalPid>>, event: Atom) {
        for pid in waiting.lock().drain(..) {
            messages::send(&pid, |env| (atoms::event(), self.id, event).encode(env));
        }
    }
}

/// Puts the calling process on a list, once, and takes those that have ended off it.
pub fn add_caller(env: Env<'_>, pids: &mut Vec<LocalPid>) {
    let caller = env.pid();
    pids.retain(|pid| *pid != caller && pid.is_alive(env));
    pids.push(caller);
}

impl StreamNotifier for User {
    type Buffer = Block;
    type Token = Receipt;
    type Writer = LocalPid;

    fn readable(&self) {
        self.wake(&self.readers, atoms::readable());
    }

    fn writable(&self) {
        self.wake(&self.writers, atoms::writable());
    }

    fn over(&self) {
        self.owned.lock().is_over = true;
        self.tell_owner();
    }

    fn sent(&self, receipt: Receipt, result: Result<usize, Closed>) {
        receipt.tell(|env, socket, reference| {
            let result = result.map_err(|closed| terms::closed(env, &closed));
            (atoms::inet_rdma_sent(), socket, reference, result).encode(env)
        });
    }

    fn received(&self, receipt: Receipt, result: Result<Received<Block>, Closed>) {
        receipt.tell(|env, socket, reference| {
            let result = result
                .map_err(|closed| terms::closed(env, &closed))
                .and_then(|received| encode_packet(env, received).ok_or_else(|| atoms::no_memory().encode(env)));
            (atoms::inet_rdma_received(), socket, reference, result).encode(env)
        });
    }

    fn message(&self, receipt: &Receipt, received: Received<Block>) {
        receipt.tell(|env, socket, _| match encode_packet(env, received) {
            Some(data) => (atoms::inet_rdma(), socket, data).encode(env),
            None => (atoms::inet_rdma_error(), socket, atoms::no_memory()).encode(env),
        });
    }

    fn passive(&self, receipt: &Receipt) {
        receipt.tell(|env, socket, _| (atoms::inet_rdma_passive(), socket).encode(env));
    }

    fn ended(&self, receipt: &Receipt, closed: &Closed) {
        if !matches!(closed, Closed::Here | Closed::ByPeer) {
            receipt.tell(|env, socket, _| (atoms::inet_rdma_error(), socket, terms::closed(env, closed)).encode(env));
        }
        receipt.tell(|env, socket, _| (atoms::inet_rdma_closed(), socket).encode(env));
    }
}
