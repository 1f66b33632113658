//! Paths that come and go.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use inet_rdma_engine::connection::Closed;
use inet_rdma_path_tcp::{Codec, Protection, TcpPath, descriptors};
use inet_rdma_paths::Path;
use inet_rdma_session::{QueuePairId, Standing};

use super::loss::Loss;
use super::{Fate, Link};
use crate::handover::{self, Carried};
use crate::port::Port;
use crate::queue::Queue;
use crate::tcp::Tcp;

/// The window of a TCP connection within one host: more bytes give no throughput and delay small packets behind them.
const WINDOW_BYTES_LOCAL: usize = 1 << 20;

/// The time in which an attempt that has given up the TCP connection ends: longer than the carrier's steps and
/// `net_setuptime` (7 s). Its process may have been killed.
const ATTEMPT: Duration = Duration::from_secs(10);

impl Link {
    /// Adds the queue pair of this connection as a path of the session; both sides know it by `id`.
    pub fn add_queue(&mut self, port: Port, carried: Carried, id: QueuePairId) -> bool {
        if let Some(before) = self.queue.take() {
            self.drop_queue(port, before);
        }
        let mut queue = Queue::new(carried, id);
        self.session.add_path(id, queue.can_be_lost());
        match queue.can_be_lost() {
            true => self.paths.add(Path::QueuePair),
            false => self.paths.add_exempt(Path::QueuePair),
        }
        let is_watched = !self.is_started || queue.watch(port);
        self.queue = Some(queue);
        self.begin_queue();
        self.schedule(port);
        is_watched
    }

    /// Gives up a queue pair that this side does not send over. A peer that has moved there comes back by an attempt.
    pub fn drop_unused_queue(&mut self, port: Port) {
        if !self.session.is_sent_by_queue() {
            self.lose_queue(port);
        }
        if self.session.awaits_queue() {
            self.lose_with_queue(port);
        }
    }

    /// Sends over the queue pair from now on; before [`Self::start`] both sides do. False: they do, or there is none.
    pub fn move_to_queue(&mut self, port: Port) -> bool {
        let moves = if self.is_started {
            self.session.move_to_queue()
        } else {
            let moves = !self.session.is_sent_by_queue();
            self.session.begin_on_queue();
            self.changes.moves += u64::from(moves);
            moves
        };
        if moves {
            self.earning.end();
        }
        if self.is_started {
            self.transmit(port);
            self.schedule(port);
        }
        moves
    }

    /// Begins to go back to the TCP connection. False: not now, as the peer has not said that all has arrived.
    pub fn return_to_tcp(&mut self, port: Port) -> bool {
        let returns = self.tcp.is_some() && self.session.return_to_tcp();
        if returns {
            self.earning.begin_anew(self.passed());
            self.transmit(port);
            self.schedule(port);
        }
        returns
    }

    /// Goes back to the TCP connection behind the peer, which closes the queue pair.
    pub(super) fn follow(&mut self, port: Port) {
        if self.is_returning && self.return_to_tcp(port) {
            self.left_queue(port);
        }
    }

    /// A path has come or gone.
    pub(super) fn note_carried(&mut self) {
        if self.tcp.is_some() || self.is_carried_by_queue() {
            self.outage.end(Instant::now());
        } else if self.is_started {
            self.outage.begin(Instant::now());
        }
    }

    pub(super) fn leave_queue(&mut self, port: Port) {
        self.lose_queue(port);
        self.left_queue(port);
    }

    pub(super) fn left_queue(&mut self, port: Port) {
        self.is_returning = false;
        self.tell(port, c"returned");
        self.look_whether_earned(port);
    }

    pub(super) fn lose_tcp(&mut self, port: Port, loss: Loss) {
        let Some(tcp) = self.tcp.take() else { return };
        self.paths.remove(Path::Tcp);
        // To the peer an end in order would mean that this process has ended.
        tcp.path.reset();
        self.past_compression = self.compressed(Some(&tcp));
        self.codec = tcp.close(port);
        self.session.lose_tcp();
        self.round_trips.forget_question();
        self.changes.losses += 1;
        self.note_carried();
        self.tell_lost(port, loss);
    }

    /// Handles the end of the queue pair. If the peer may still live, the session continues over TCP: both sides give
    /// up the TCP connection and resume over another one.
    pub(super) fn handle_queue_end(&mut self, port: Port, reason: &Closed) -> Fate {
        if self.session.has_left_queue() {
            // The peer closes the queue pair in order.
            self.lose_queue(port);
            return Fate::Lives;
        }
        let is_loss = matches!(reason, Closed::PeerGone | Closed::Fabric(_))
            && self.queue.as_ref().is_some_and(Queue::can_be_lost);
        if !is_loss || self.deadline.is_some() {
            return Fate::Ends;
        }
        self.lose_queue(port);
        self.lose_with_queue(port);
        Fate::Lives
    }

    /// Gives up the TCP connection beside a queue pair that is lost. If that was lost before, the guard, which took
    /// the link for carried, is told all the same.
    fn lose_with_queue(&mut self, port: Port) {
        if self.tcp.is_some() {
            self.lose_tcp(port, Loss::QUEUE_PAIR);
        } else {
            self.tell_lost(port, Loss::QUEUE_PAIR);
        }
    }

    pub(super) fn lose_queue(&mut self, port: Port) {
        if let Some(queue) = self.queue.take() {
            self.paths.remove(Path::QueuePair);
            self.drop_queue(port, queue);
            self.session.lose_path();
            self.is_returning = false;
            self.note_carried();
        }
    }

    /// The peer has ended the queue pair before it sent there. If this side has moved there, both resume without it.
    pub(super) fn lose_unread_queue(&mut self, port: Port) {
        let is_used = self.session.is_sent_by_queue() || self.session.awaits_queue();
        self.lose_queue(port);
        if is_used {
            self.lose_with_queue(port);
        }
    }

    pub(super) fn drop_queue(&mut self, port: Port, queue: Queue) {
        self.past += queue.counts();
        queue.close(port);
    }

    /// Gives up a queue pair that has carried packets. The peer takes its close for the end of the link until it has
    /// resumed, too: its first frame over the TCP connection says so.
    fn retire(&mut self, port: Port, mut queue: Queue) {
        queue.unwatch(port);
        if let Some(before) = self.retired.replace(queue) {
            self.drop_queue(port, before);
        }
    }

    /// The peer has resumed without it.
    pub(super) fn drop_retired(&mut self, port: Port) {
        if let Some(queue) = self.retired.take() {
            self.drop_queue(port, queue);
        }
    }

    /// The number of this side's next attempt to resume.
    pub fn next_attempt(&self) -> u64 {
        self.session.next_attempt()
    }

    /// Whether an attempt of the peer with this number may still succeed.
    pub fn accepts(&self, attempt: u64) -> bool {
        self.session.accepts(attempt)
    }

    /// Begins an attempt to resume: gives up the TCP connection. Returns this side's standing for the peer. None: a
    /// newer attempt has come before.
    pub fn suspend(&mut self, port: Port, attempt: u64) -> Option<Standing> {
        if !self.session.is_newer(attempt) {
            return None;
        }
        if let Some(mut tcp) = self.tcp.take() {
            self.paths.remove(Path::Tcp);
            // Receive first what has arrived: the peer need not send it again.
            let received = tcp.receive(port, &mut self.session, &mut self.tally);
            self.past_compression = self.compressed(Some(&tcp));
            let (superseded, codec) = tcp.supersede(port);
            self.superseded = Some(superseded);
            self.codec = codec;
            self.round_trips.forget_question();
            self.changes.losses += 1;
            self.loss = Some(Loss::SUPERSEDED);
            self.note_carried();
            if let Some(error) = received.as_ref().err().filter(|error| error.ends_session()) {
                self.tell_receive_error(port, error);
                self.end_within(Duration::ZERO);
            } else if self.handle_events(port) == Fate::Ends {
                self.end_within(Duration::ZERO);
            }
        }
        // A queue pair that is suspected is given up like the TCP connection.
        let standing = match self.paths.is_suspected(Path::QueuePair) {
            true => self.session.suspend_without_path(attempt),
            false => self.session.suspend(attempt),
        };
        // An earlier attempt may have given up a queue pair that this one keeps.
        self.begin_queue();
        self.attempt_until = Some(Instant::now() + ATTEMPT);
        self.schedule(port);
        standing
    }

    /// Notes that the attempt for which the TCP connection was given up has failed.
    pub fn abandon(&mut self, port: Port, attempt: u64) {
        let is_newest = self.session.is_newer(attempt.saturating_add(1));
        if is_newest {
            self.fail_attempt(port);
        }
    }

    /// The attempt under way has failed: the guard makes the next one.
    pub(super) fn fail_attempt(&mut self, port: Port) {
        self.superseded = None;
        self.attempt_until = None;
        self.tell_lost_again(port);
    }

    /// Begins the session over this TCP connection. `codec` compresses it, and the connections that replace it.
    pub fn attach(&mut self, socket: OwnedFd, codec: Codec, protection: Option<&Protection>) {
        self.codec = codec;
        let tcp = self.adopt(socket, protection);
        self.add_tcp(tcp);
    }

    fn adopt(&mut self, socket: OwnedFd, protection: Option<&Protection>) -> Tcp {
        let mut path = TcpPath::adopt(socket);
        if let Some(protection) = protection {
            path.seal(protection);
        }
        path.compress(std::mem::take(&mut self.codec));
        Tcp::new(path)
    }

    fn add_tcp(&mut self, tcp: Tcp) {
        let ends = tcp.path.ends();
        if ends.is_some_and(|(own, peer)| own.ip() == peer.ip()) {
            self.session.set_window(WINDOW_BYTES_LOCAL);
        }
        self.ends = self.ends.or(ends);
        self.tcp = Some(tcp);
        self.paths.add(Path::Tcp);
        self.note_carried();
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
        let is_queue_used = self.session.is_sent_by_queue()
            || self
                .queue
                .as_ref()
                .is_some_and(|queue| self.session.reads_queue(queue.id()));
        let keeps_queue = match self.session.resume(attempt, theirs) {
            Ok(keeps_queue) => {
                self.superseded = None;
                self.attempt_until = None;
                keeps_queue
            }
            Err(None) => return None,
            Err(Some(violation)) => {
                self.refuse(port, socket, protection);
                self.tell_violation(port, violation);
                return Some(Fate::Ends);
            }
        };
        if let Some(queue) = self.queue.take_if(|_| !keeps_queue) {
            self.paths.remove(Path::QueuePair);
            match is_queue_used {
                true => self.retire(port, queue),
                false => self.drop_queue(port, queue),
            }
            self.is_returning = false;
            self.note_carried();
        }
        if keeps_queue && self.paths.is_held(Path::QueuePair) {
            self.lose_queue(port);
        }
        if keeps_queue && self.queue.is_none() {
            // The queue pair was lost, or this node stood still, while the attempt was under way: both sides continue
            // without it, by another attempt.
            if let Ok(socket) = socket {
                TcpPath::adopt(socket).reset();
            }
            self.tell_lost(port, Loss::QUEUE_PAIR);
            self.schedule(port);
            return Some(Fate::Lives);
        }
        self.begin_queue();
        let mut tcp = match socket {
            Ok(socket) => self.adopt(socket, protection),
            Err(error) => {
                self.tell_lost(port, error.into());
                self.schedule(port);
                return Some(Fate::Lives);
            }
        };
        if self.is_started && !tcp.watch(port) {
            tcp.path.reset();
            self.codec = tcp.close(port);
            self.tell_lost(port, Loss::SYSTEM_LIMIT);
            self.schedule(port);
            return Some(Fate::Lives);
        }
        self.add_tcp(tcp);
        self.changes.resumes += 1;
        self.tell(port, c"restored");
        self.transmit(port);
        self.schedule(port);
        Some(Fate::Lives)
    }

    /// Tells the peer over the connection of an attempt that the sides' positions contradict each other. A peer that
    /// does not get it learns by its next attempt that the link has ended.
    fn refuse(&mut self, port: Port, socket: io::Result<OwnedFd>, protection: Option<&Protection>) {
        if let Ok(socket) = socket {
            let mut tcp = self.adopt(socket, protection);
            self.session.refuse();
            tcp.transmit(port, &mut self.session);
            tcp.finish(port);
        }
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
