//! The teardown thread, which disconnects and destroys connections: one for the process, started with the first
//! connection.
//!
//! Disconnecting flushes work requests that are not sent yet, so it has to wait for them; and destroying a queue pair
//! asks the kernel, which may take its time. A scheduler or a polling thread must do neither. The thread waits for
//! orders, for completions of work requests that are still to be sent, for ends ([`crate::ended`]) and for deadlines.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use inet_rdma_fabric::{FabricError, threads};
use inet_rdma_stream::RemoteAddress;
use parking_lot::Mutex;
use rustix::event::{Timespec, epoll};

use crate::connection::Connection;
use crate::ended::{self, Ended};
use crate::mailbox::Mailbox;

/// The longest wait until all is sent, and again until the peer has disconnected, too.
const WAIT_MAX: Duration = Duration::from_secs(2);

enum Order {
    /// Disconnect when all is sent.
    Disconnect(Arc<Connection>),
    /// Destroy the connection after the peer's disconnect. No user has a reference.
    Destroy(Arc<Connection>),
    /// Destroy a connection that was never established.
    Abandon(Box<Connection>),
    /// Look at the connection with this token: an event of its completion channel was taken.
    Look(usize),
}

static ORDERS: OnceLock<Arc<Mailbox<Order>>> = OnceLock::new();

/// Starts the thread if it does not run: called before a connection is made, so that each connection's end finds it.
pub(crate) fn start() -> Result<(), FabricError> {
    static STARTING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = STARTING.lock();
    if ORDERS.get().is_some() {
        return Ok(());
    }
    let watching = |errno: rustix::io::Errno| FabricError::system("watching connections that end", errno);
    let (orders, ended) = (Arc::new(Mailbox::new()?), ended::mailbox()?);
    let watch = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(watching)?;
    let add = |fd, data| epoll::add(&watch, fd, epoll::EventData::new_u64(data), epoll::EventFlags::IN);
    add(orders.as_fd(), ORDERED).map_err(watching)?;
    add(ended.as_fd(), ENDED).map_err(watching)?;
    let work = Work {
        orders: Arc::clone(&orders),
        ended,
        watch,
        closing: HashMap::new(),
        deadlines: VecDeque::new(),
        to_destroy: VecDeque::new(),
    };
    threads::start("inet_rdma/teardown", move || work.run())?;
    let _first = ORDERS.set(orders);
    Ok(())
}

fn give(order: Order) {
    // The thread is started before the first connection is made.
    if let Some(orders) = ORDERS.get() {
        orders.send(order);
    }
}

/// Disconnects as soon as all that was posted is sent. `target` is somewhere in the peer's memory.
pub(crate) fn disconnect(connection: &Arc<Connection>, target: RemoteAddress) {
    connection.with_sending(|sending, outlet| sending.post_end_marker(outlet, target));
    give(Order::Disconnect(Arc::clone(connection)));
}

/// Has a disconnected connection destroyed. The caller's reference is the last one beside the thread's own.
pub(crate) fn destroy(connection: Arc<Connection>) {
    give(Order::Destroy(connection));
}

/// Has a connection destroyed that no peer has confirmed.
pub(crate) fn abandon(connection: Connection) {
    give(Order::Abandon(Box::new(connection)));
}

/// Tells that an event of a connection that was disconnected here was taken: the thread may have waited for it.
pub(crate) fn look(connection: &Connection) {
    give(Order::Look(connection.id().token()));
}

/// The data of the mailboxes in the epoll set. That of a connection is its token, which is an address.
const ORDERED: u64 = 0;
const ENDED: u64 = 1;

/// A connection that this side has closed.
struct Closing {
    connection: Arc<Connection>,
    stage: Stage,
    /// True if the user has dropped it.
    is_dropped: bool,
    until: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The thread waits until all is sent. The completion channel is in the epoll set.
    Sending,
    /// The connection is disconnected. The thread waits until the peer has disconnected, too.
    AwaitingPeer,
}

/// The state of the thread. The tokens of their ids name the connections.
struct Work {
    orders: Arc<Mailbox<Order>>,
    ended: &'static Mailbox<Ended>,
    /// An epoll set: the mailboxes, and the completion channels of connections that have something to send.
    watch: OwnedFd,
    closing: HashMap<usize, Closing>,
    /// The deadlines of `closing`, in the order of time, as each wait is equally long. An entry that differs from
    /// [`Closing::until`] is out of date.
    deadlines: VecDeque<(Instant, usize)>,
    /// Connections to destroy, one at a time: orders that take less time may come in between.
    to_destroy: VecDeque<Arc<Connection>>,
}

impl Work {
    fn run(mut self) {
        let mut ready = Vec::with_capacity(16);
        loop {
            ready.clear();
            let timeout = self.timeout();
            // Set and buffer are valid, so only a signal can interrupt: look as after an event.
            let _ = epoll::wait(
                &self.watch,
                rustix::buffer::spare_capacity(&mut ready),
                timeout.as_ref(),
            );
            // A panic is a defect; at most its own connection is lost.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                self.take_turn(ready.iter().map(|event| event.data.u64()));
            }));
        }
    }

    fn timeout(&self) -> Option<Timespec> {
        if !self.to_destroy.is_empty() {
            return Some(Timespec::default());
        }
        let (next, _) = self.deadlines.front()?;
        Timespec::try_from(next.saturating_duration_since(Instant::now())).ok()
    }

    fn take_turn(&mut self, readable: impl Iterator<Item = u64>) {
        for source in readable {
            match source {
                ORDERED => self.take_orders(),
                ENDED => self.take_ended(),
                token => self.look(token as usize),
            }
        }
        self.expire(Instant::now());
        // Destroys the connection.
        drop(self.to_destroy.pop_front());
    }

    fn take_orders(&mut self) {
        for order in self.orders.take() {
            match order {
                Order::Disconnect(connection) => self.disconnect(connection),
                Order::Destroy(connection) => self.destroy(connection),
                Order::Abandon(connection) => self.to_destroy.push_back(Arc::from(connection)),
                Order::Look(token) => self.look(token),
            }
        }
    }

    /// An end may be reported here ahead of the order to disconnect: each stage looks at the end when it begins.
    fn take_ended(&mut self) {
        for ended in self.ended.take() {
            match ended {
                Ended::CarryOut(end) => {
                    end.carry_out();
                    self.look(end.token());
                }
                Ended::Look(token) => self.look(token),
            }
        }
    }

    fn disconnect(&mut self, connection: Arc<Connection>) {
        let token = connection.id().token();
        if is_all_sent(&connection) {
            disconnect_id(&connection);
            return;
        }
        let data = epoll::EventData::new_u64(token as u64);
        // If the kernel has no memory for it, the deadline ends the wait.
        let _ = epoll::add(&self.watch, connection.channel.as_fd(), data, epoll::EventFlags::IN);
        self.wait(connection, Stage::Sending, false);
        // The event may have been taken before the channel was watched.
        self.look(token);
    }

    fn destroy(&mut self, connection: Arc<Connection>) {
        let token = connection.id().token();
        match self.closing.get_mut(&token) {
            Some(closing) => closing.is_dropped = true,
            None => self.destroy_after_peer(connection),
        }
    }

    /// Destroys a connection that was disconnected and that its user has dropped, once the peer has disconnected, too.
    fn destroy_after_peer(&mut self, connection: Arc<Connection>) {
        if connection.end().get().is_some() {
            self.to_destroy.push_back(connection);
        } else {
            self.wait(connection, Stage::AwaitingPeer, true);
        }
    }

    fn wait(&mut self, connection: Arc<Connection>, stage: Stage, is_dropped: bool) {
        let until = Instant::now() + WAIT_MAX;
        let token = connection.id().token();
        self.deadlines.push_back((until, token));
        let closing = Closing {
            connection,
            stage,
            is_dropped,
            until,
        };
        self.closing.insert(token, closing);
    }

    fn look(&mut self, token: usize) {
        let Some(closing) = self.closing.get(&token) else {
            return;
        };
        let is_over = match closing.stage {
            Stage::Sending => {
                // The queue shows the same error.
                let _ = closing.connection.channel.drain();
                is_all_sent(&closing.connection)
            }
            Stage::AwaitingPeer => closing.connection.end().get().is_some(),
        };
        if is_over {
            self.go_on(token);
        }
    }

    /// Begins the next stage of a connection whose stage is complete, or whose deadline has passed.
    fn go_on(&mut self, token: usize) {
        let Some(closing) = self.closing.remove(&token) else {
            return;
        };
        match closing.stage {
            Stage::Sending => {
                // The descriptor is open, but might not have been added.
                let _ = epoll::delete(&self.watch, closing.connection.channel.as_fd());
                disconnect_id(&closing.connection);
                if closing.is_dropped {
                    self.destroy_after_peer(closing.connection);
                }
            }
            Stage::AwaitingPeer => self.to_destroy.push_back(closing.connection),
        }
    }

    fn expire(&mut self, now: Instant) {
        while self.deadlines.front().is_some_and(|(until, _)| *until <= now) {
            let Some((_, token)) = self.deadlines.pop_front() else {
                break;
            };
            if self.closing.get(&token).is_some_and(|closing| closing.until <= now) {
                self.go_on(token);
            }
        }
    }
}

/// True if all is sent, or the queue pair has failed. False: look again after an event of the completion channel.
fn is_all_sent(connection: &Connection) -> bool {
    let is_over = || connection.with_sending(|sending, outlet| sending.is_over(outlet));
    // Completions from before the request raise no event: look again.
    connection.end().get().is_some() || is_over() || connection.arm_send_queue().is_err() || is_over()
}

fn disconnect_id(connection: &Connection) {
    // This fails only if the peer has disconnected first.
    let _ = connection.id().disconnect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection_end::{ConnectionEnd, End};

    #[test]
    fn an_end_that_a_user_sees_is_carried_out_by_the_teardown_thread() {
        start().expect("a thread");
        let end = Arc::new(ConnectionEnd::new(2, None));
        assert!(end.set(End::Peer));
        ended::have_carried_out(Arc::clone(&end));
        // No bound: the test runner's ends a wait that the thread does not.
        while end.carried_out_by().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_ne!(end.carried_out_by(), Some(std::thread::current().id()));
    }
}
