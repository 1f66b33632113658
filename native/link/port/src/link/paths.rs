//! Paths that come and go.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Instant;

use inet_rdma_link::{Connection, Loss, Reach, Resume};
use inet_rdma_path_tcp::{Codec, Protection, TcpPath, descriptors};
use inet_rdma_session::{QueuePairId, Standing};

use super::receiving::fault;
use super::{Fate, Link};
use crate::handover::{self, Carried};
use crate::notices::loss_of_error;
use crate::port::Port;
use crate::queue::Queue;
use crate::tcp::Tcp;
use crate::tcp_info;

impl Link {
    /// Adds the queue pair of this connection as a path of the session; both sides know it by `id`.
    pub fn add_queue(&mut self, port: Port, carried: Carried, id: QueuePairId) -> bool {
        if let Some(before) = self.queue.take() {
            self.drop_queue(port, before);
        }
        let mut queue = Queue::new(carried);
        self.state.add_queue(id, queue.can_be_lost());
        let is_watched = !self.state.is_started() || queue.watch(port);
        self.queue = Some(queue);
        self.settle(port);
        is_watched
    }

    /// Gives up a queue pair that this side does not send over. A peer that has moved there comes back by an attempt.
    pub fn drop_unused_queue(&mut self, port: Port) {
        self.state.drop_unused_queue(Instant::now());
        self.settle(port);
    }

    /// Both sides begin on the queue pair, before [`Self::start`].
    pub fn begin_on_queue(&mut self) {
        self.state.begin_on_queue();
    }

    /// Sends over the queue pair from now on. False: it does, or there is none.
    pub fn move_to_queue(&mut self, port: Port) -> bool {
        let moves = self.state.move_to_queue();
        self.settle(port);
        moves
    }

    /// Begins to go back to the TCP connection. False: not now, as the peer has not said that all has arrived.
    pub fn return_to_tcp(&mut self, port: Port) -> bool {
        let returns = self.state.return_to_tcp();
        self.settle(port);
        returns
    }

    pub(super) fn drop_queue(&mut self, port: Port, queue: Queue) {
        self.past += queue.counts();
        queue.close(port);
    }

    /// Gives up a queue pair that has carried packets.
    pub(super) fn retire(&mut self, port: Port) {
        let Some(mut queue) = self.queue.take() else { return };
        queue.unwatch(port);
        if let Some(before) = self.retired.replace(queue) {
            self.drop_queue(port, before);
        }
    }

    /// The number of this side's next attempt to resume.
    pub fn next_attempt(&self) -> u64 {
        self.state.next_attempt()
    }

    /// Whether an attempt of the peer with this number may still succeed.
    pub fn accepts(&self, attempt: u64) -> bool {
        self.state.accepts(attempt)
    }

    /// Begins an attempt to resume: gives up the TCP connection. Returns this side's standing for the peer. None: a
    /// newer attempt has come before.
    pub fn suspend(&mut self, port: Port, attempt: u64) -> Option<Standing> {
        if !self.state.is_newer(attempt) {
            return None;
        }
        let standing = match self.tcp.take() {
            Some(mut tcp) => {
                let received = tcp.receive(port, self.state.session_mut(), &mut self.tally);
                self.past_compression = self.compressed(Some(&tcp));
                let (superseded, codec) = tcp.supersede(port);
                self.superseded = Some(superseded);
                self.codec = codec;
                let received = received.as_ref().map(|_received| ()).map_err(fault);
                self.state.suspend(Instant::now(), attempt, received)
            }
            None => self.state.suspend(Instant::now(), attempt, Ok(())),
        };
        self.settle(port);
        standing
    }

    /// Notes that this side makes no attempt any longer: one that has given up the TCP connection has failed.
    pub fn abandon_own(&mut self, port: Port) {
        self.state.abandon_own();
        self.settle(port);
    }

    /// Notes that the attempt for which the TCP connection was given up has failed.
    pub fn abandon(&mut self, port: Port, attempt: u64) {
        self.state.abandon(attempt);
        self.settle(port);
    }

    /// Begins the session over this TCP connection. `codec` compresses it, and the connections that replace it.
    pub fn attach(&mut self, socket: OwnedFd, codec: Codec, protection: Option<&Protection>) {
        self.codec = codec;
        let tcp = self.adopt(socket, protection);
        let connection = self.keep(tcp);
        self.state.handle_connected(Instant::now(), connection);
    }

    fn adopt(&mut self, socket: OwnedFd, protection: Option<&Protection>) -> Tcp {
        let mut path = TcpPath::adopt(socket);
        self.is_sealed = protection.is_some();
        if let Some(protection) = protection {
            path.seal(protection);
        }
        path.compress(std::mem::take(&mut self.codec));
        Tcp::new(path)
    }

    fn keep(&mut self, mut tcp: Tcp) -> Connection {
        let ends = tcp.path.ends();
        self.ends = self.ends.or(ends);
        let reach = tcp_info::reach(tcp.path.socket().as_fd(), ends);
        if reach == Reach::Far {
            tcp.begin_distance(self.state.window_bytes());
        }
        let connection = Connection {
            reach,
            is_sealed: tcp.path.sealing().is_some(),
        };
        self.tcp = Some(tcp);
        self.lent = None;
        connection
    }

    /// Resumes the session over this TCP connection of an attempt, on which the peer has sent its standing. An error:
    /// there is no descriptor for it. None: a newer attempt has come before.
    pub fn resume(
        &mut self,
        port: Port,
        attempt: u64,
        socket: io::Result<OwnedFd>,
        theirs: Standing,
        protection: Option<&Protection>,
    ) -> Option<Fate> {
        let now = Instant::now();
        let resume = self.state.resume(now, attempt, theirs);
        self.work(port);
        match (resume, socket) {
            (Resume::Outdated, _) => return None,
            (Resume::Connects, Ok(socket)) => self.connect(port, now, socket, protection),
            (Resume::Connects, Err(error)) => self.state.handle_not_resumed(loss_of_error(&error)),
            (Resume::Reset, Ok(socket)) => TcpPath::adopt(socket).reset(),
            (Resume::Refused, Ok(socket)) => self.refuse(port, socket, protection),
            (Resume::Reset | Resume::Refused, Err(_)) => {}
        }
        self.settle(port);
        Some(self.fate())
    }

    fn connect(&mut self, port: Port, now: Instant, socket: OwnedFd, protection: Option<&Protection>) {
        let mut tcp = self.adopt(socket, protection);
        if self.state.is_started() && !tcp.watch(port) {
            tcp.path.reset();
            self.codec = tcp.close(port);
            self.state.handle_not_resumed(Loss::SystemLimit);
            return;
        }
        let connection = self.keep(tcp);
        self.state.handle_resumed(now, connection);
    }

    /// Tells the peer over the connection of an attempt that the sides' positions contradict each other.
    fn refuse(&mut self, port: Port, socket: OwnedFd, protection: Option<&Protection>) {
        let mut tcp = self.adopt(socket, protection);
        let is_failed = tcp.write_last(self.state.session_mut());
        tcp.finish(port, is_failed);
    }

    /// The addresses of the TCP connection on which the link began: this side's, then the peer's.
    pub fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.ends
    }

    pub fn tcp_socket(&self) -> Option<BorrowedFd<'_>> {
        self.tcp.as_ref().map(|tcp| tcp.path.socket().as_fd())
    }

    /// Lends another descriptor of the TCP connection, until [`handover::take_back`].
    pub fn lend_tcp(&self) -> Option<RawFd> {
        Some(handover::lend(descriptors::copy_of(self.tcp_socket()?).ok()?))
    }
}
