//! Who is told about a connection, and how: one small message per wake.
//!
//! `{'$inet_rdma', Id, readable | writable}` to processes that wait in a call; in active mode `{inet_rdma, Socket, Data}`
//! and its kin to the socket's owner, straight from the polling thread.

use std::sync::{Arc, Weak};

use inet_rdma_engine::assembly::{ReadLimit, Received};
use inet_rdma_engine::connection::{Closed, Connection, ReadEnd, Wakes};
use inet_rdma_engine::endpoint::Waker;
use parking_lot::Mutex;
use rustler::{Encoder, Env, LocalPid, Term};

use crate::atoms;
use crate::kept::KeptTerm;
use crate::packets::{Block, encode_packet};
use crate::posts::Posts;
use crate::terms;
use crate::voice::Voice;

/// What becomes one message of active mode.
const ONE_MESSAGE: ReadLimit = ReadLimit {
    bytes: 64 * 1024,
    packets: 1,
    exact: 0,
};
/// Reads of one turn of active mode: then other connections get theirs.
const ACTIVE_READS: usize = 64;

/// The processes that wait, and the owner in active mode.
#[derive(Default)]
pub struct Subscribers {
    waiting: Mutex<Waiting>,
    active: Mutex<Option<Active>>,
}

#[derive(Default)]
struct Waiting {
    readers: Vec<LocalPid>,
    writers: Vec<LocalPid>,
}

/// Active mode: to whom, and how often yet.
struct Active {
    owner: LocalPid,
    socket: KeptTerm,
    left: Left,
}

/// The option `active`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActiveOption {
    /// `false`
    Passive,
    /// `once`
    Once,
    /// `true`
    Infinity,
    /// A number, which is added to the messages that are left.
    Add(i16),
}

/// The sum of a count and what was left is outside of the 16 bits that a count has.
pub struct CountOutOfRange;

/// How many messages active mode has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// No end.
    Infinity,
    /// One, and no word when that is over.
    Once,
    /// At least one.
    Count(i16),
}

impl Subscribers {
    /// This process waits for something to read.
    pub fn add_reader(&self, pid: LocalPid) {
        add_once(&mut self.waiting.lock().readers, pid);
    }

    /// This process waits for room to write.
    pub fn add_writer(&self, pid: LocalPid) {
        add_once(&mut self.waiting.lock().writers, pid);
    }

    /// It waits no more.
    pub fn remove(&self, pid: LocalPid) {
        let mut waiting = self.waiting.lock();
        waiting.readers.retain(|waiter| *waiter != pid);
        waiting.writers.retain(|waiter| *waiter != pid);
    }

    /// Tells those that `wakes` is for.
    pub fn wake(&self, voice: Voice<'_>, id: u64, wakes: Wakes) {
        if wakes.is_empty() {
            return;
        }
        let mut waiting = self.waiting.lock();
        let event = |pid: LocalPid, what: rustler::Atom| {
            voice.tell(&pid, |env| (atoms::event(), id, what).encode(env));
        };
        if wakes.reader {
            waiting.readers.drain(..).for_each(|pid| event(pid, atoms::readable()));
        }
        if wakes.writer {
            waiting.writers.drain(..).for_each(|pid| event(pid, atoms::writable()));
        }
    }

    /// Switches active mode as `inet:setopts/2` does; whether it is on. A count adds to the count that is left, and to
    /// 0 in another mode. A sum of 0 or less makes the socket passive, and tells `owner` so.
    pub fn set_active(
        &self,
        voice: Voice<'_>,
        owner: LocalPid,
        socket: Term<'_>,
        option: ActiveOption,
    ) -> Result<bool, CountOutOfRange> {
        let mut slot = self.active.lock();
        let left = match option {
            ActiveOption::Passive => None,
            ActiveOption::Once => Some(Left::Once),
            ActiveOption::Infinity => Some(Left::Infinity),
            ActiveOption::Add(more) => {
                let before = match slot.as_ref().map(|active| active.left) {
                    Some(Left::Count(count)) => count,
                    _ => 0,
                };
                let sum = before.checked_add(more).ok_or(CountOutOfRange)?;
                (sum > 0).then_some(Left::Count(sum))
            }
        };
        *slot = left.map(|left| Active {
            owner,
            socket: KeptTerm::new(socket),
            left,
        });
        let on = slot.is_some();
        if !on && matches!(option, ActiveOption::Add(_)) {
            // With the slot locked: no polling thread sends data of a later switch before it.
            voice.tell(&owner, |env| {
                (atoms::inet_rdma_passive(), socket.in_env(env)).encode(env)
            });
        }
        Ok(on)
    }

    /// Ends active mode without a word.
    pub fn stop_active(&self) {
        *self.active.lock() = None;
    }

    /// How many messages are left; None: passive mode.
    pub fn active(&self) -> Option<Left> {
        self.active.lock().as_ref().map(|active| active.left)
    }
}

/// Puts a process on a list, unless it is there.
pub fn add_once(pids: &mut Vec<LocalPid>, pid: LocalPid) {
    if !pids.contains(&pid) {
        pids.push(pid);
    }
}

/// The waker of one connection, in the hands of a polling thread.
pub struct ConnectionWaker {
    /// Names the connection in messages.
    pub id: u64,
    /// Whom to tell.
    pub subscribers: Arc<Subscribers>,
    /// What is posted, and goes on from here.
    pub posts: Arc<Posts>,
    /// What to read from in active mode.
    pub connection: Weak<Connection<Block>>,
}

impl Waker for ConnectionWaker {
    fn wake(&self, wakes: Wakes) {
        let Some(connection) = self.connection.upgrade() else {
            return;
        };
        let mut all = wakes;
        all.merge(self.posts.go_on(&connection, Voice::Thread, wakes));
        self.subscribers.wake(Voice::Thread, self.id, all);
        if all.reader {
            self.deliver(&connection);
        }
    }
}

impl ConnectionWaker {
    /// Reads and sends what there is to the owner, while active mode is on.
    fn deliver(&self, connection: &Connection<Block>) {
        let mut slot = self.subscribers.active.lock();
        for _ in 0..ACTIVE_READS {
            if !self.deliver_once(connection, &mut slot) {
                return;
            }
        }
        // What has arrived before the end is not much more.
        while connection.closed().is_some() {
            if !self.deliver_once(connection, &mut slot) {
                return;
            }
        }
        // There is more, but others wait for their turn.
        connection.wake_reader();
        self.posts.kick();
    }

    /// A read has found that these can go on; what reads is at it already.
    fn wake_writers(&self, connection: &Connection<Block>, wakes: Wakes) {
        if wakes.writer {
            let mut writers = wakes;
            writers.merge(self.posts.write(connection, Voice::Thread));
            writers.reader = false;
            self.subscribers.wake(Voice::Thread, self.id, writers);
        }
    }

    /// One message. False: no more for now.
    fn deliver_once(&self, connection: &Connection<Block>, slot: &mut Option<Active>) -> bool {
        let Some(active) = slot else { return false };
        let mut packets = Vec::new();
        let (end, wakes) = connection.read(ONE_MESSAGE, &mut packets);
        self.wake_writers(connection, wakes);
        if !active.send_packets(packets) {
            *slot = None;
            return false;
        }
        match end {
            ReadEnd::More => true,
            ReadEnd::Empty => {
                let (armed, wakes) = connection.arm();
                self.wake_writers(connection, wakes);
                !armed
            }
            ReadEnd::Closed(closed) => {
                active.send_end(&closed);
                *slot = None;
                false
            }
        }
    }
}

impl Active {
    fn send(&self, build: impl for<'a> FnOnce(Env<'a>, Term<'a>) -> Term<'a>) {
        Voice::Thread.tell(&self.owner, |env| {
            let socket = self.socket.copy(env);
            build(env, socket)
        });
    }

    /// False: the socket has become passive.
    fn send_packets(&mut self, packets: Vec<Received<Block>>) -> bool {
        for packet in packets {
            self.send(|env, socket| match encode_packet(env, packet) {
                Some(data) => (atoms::inet_rdma(), socket, data).encode(env),
                None => (atoms::inet_rdma_error(), socket, atoms::no_memory()).encode(env),
            });
            match &mut self.left {
                Left::Infinity => {}
                Left::Once => return false,
                Left::Count(left) => *left = left.saturating_sub(1),
            }
        }
        if self.left == Left::Count(0) {
            self.send(|env, socket| (atoms::inet_rdma_passive(), socket).encode(env));
            return false;
        }
        true
    }

    fn send_end(&self, closed: &Closed) {
        if !matches!(closed, Closed::Here | Closed::ByPeer) {
            self.send(|env, socket| (atoms::inet_rdma_error(), socket, terms::closed(env, closed)).encode(env));
        }
        self.send(|env, socket| (atoms::inet_rdma_closed(), socket).encode(env));
    }
}
