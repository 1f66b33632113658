//! The TCP path of a link: its socket in the VM's poll set.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Instant;

use inet_rdma_assembly::Buffer;
use inet_rdma_fabric::crash::EndsAtCrash;
use inet_rdma_fabric::lingering;
use inet_rdma_link::TcpWritten;
use inet_rdma_path_tcp::{Codec, ReceiveError, Received, TURN_PACKETS, TcpPath, Transmitted};
use inet_rdma_paths::Look;
use inet_rdma_session::{Session, Sink, WINDOW_BYTES_FIRST};

use crate::block::{Block, Held};
use crate::distance::Distance;
use crate::handover;
use crate::notices::loss_of;
use crate::pacer::Pacer;
use crate::port::Port;
use crate::tally::Tally;
use crate::tcp_info;

/// A TCP connection that carries the link's session, or stands by.
pub struct Tcp {
    /// Before the path: it is dropped first.
    _ends_at_crash: EndsAtCrash,
    pub path: TcpPath,
    /// The descriptor that the VM watches.
    pub fd: RawFd,
    /// True if the VM tells when the socket is readable.
    is_watched: bool,
    /// True if the VM tells when the socket is writable.
    is_watched_writable: bool,
    answers: tcp_info::Answers,
    pacer: Pacer,
    /// None: it is near.
    distance: Option<Distance>,
}

impl Tcp {
    pub fn new(path: TcpPath) -> Tcp {
        Tcp {
            _ends_at_crash: EndsAtCrash::enter(path.socket().as_fd()),
            fd: path.socket().as_raw_fd(),
            path,
            is_watched: false,
            is_watched_writable: false,
            answers: tcp_info::Answers::default(),
            pacer: Pacer::default(),
            distance: None,
        }
    }

    /// It leads far, and its link has this window.
    pub fn begin_distance(&mut self, window_bytes: usize) {
        self.distance = Some(Distance::begin(self.path.socket().as_fd(), window_bytes));
    }

    /// Its link has another window.
    pub fn follow_window(&mut self, window_bytes: usize) {
        match &mut self.distance {
            Some(distance) => distance.follow(self.path.socket().as_fd(), window_bytes),
            // The kernel that answered so fast is a proxy's.
            None if window_bytes > WINDOW_BYTES_FIRST => self.begin_distance(window_bytes),
            None => {}
        }
    }

    /// Bytes that the session has transmitted and the socket has not taken.
    pub fn held_bytes(&self) -> usize {
        self.path.held().len()
    }

    /// Asks the VM to tell when the socket is readable. False: it cannot.
    pub fn watch(&mut self, port: Port) -> bool {
        if !self.is_watched {
            handover::keep(self.fd, Arc::clone(self.path.socket()) as _);
            self.is_watched = port.watch(self.fd);
            if !self.is_watched {
                handover::forget(self.fd);
            }
        }
        self.is_watched
    }

    /// Writes the bytes that the session has for this path, as far as there is room.
    pub fn transmit(&mut self, session: &mut Session<Held, Block>) -> TcpWritten {
        match self.path.transmit(session) {
            // Without a watch the link is not started, or about to end.
            Ok(Transmitted::Blocked) if self.is_watched => TcpWritten::Blocked,
            Ok(Transmitted::All | Transmitted::Blocked) => TcpWritten::All,
            Ok(Transmitted::NoMemory) => TcpWritten::NoMemory,
            Err(lost) => TcpWritten::Failed(loss_of(lost)),
        }
    }

    /// Writes what the session says last. True: nothing can be sent.
    pub fn write_last(&mut self, session: &mut Session<Held, Block>) -> bool {
        matches!(self.transmit(session), TcpWritten::Failed(_))
    }

    /// Has the VM tell when the socket is writable, or no longer.
    pub fn watch_writable(&mut self, port: Port, on: bool) {
        if on != self.is_watched_writable {
            self.is_watched_writable = on;
            port.watch_writable(self.fd, on);
        }
    }

    /// True in a flood: the timer of 0 ms, and no event, brings the next [`Self::receive`] that is due.
    pub fn is_paced(&self) -> bool {
        self.pacer.is_flood()
    }

    /// Called by the timer, if [`Self::receive`] is due. False: a process runs first.
    pub fn is_time(&mut self) -> bool {
        self.pacer.is_time(Instant::now)
    }

    /// Gives the session the bytes that have arrived, and the VM the packets in them, up to the bounds of a turn. If
    /// there are more, processes run before the next turn, such as their receiver; the peer gets its pace by TCP.
    pub fn receive(
        &mut self,
        port: Port,
        session: &mut Session<Held, Block>,
        tally: &mut Tally,
    ) -> Result<Received, ReceiveError> {
        let before = tally.received;
        let packets_max = self.pacer.packets_max(TURN_PACKETS);
        let received = self.path.receive(packets_max, session, &mut ToVm { port, tally });
        let packets = tally.received - before;
        self.pacer
            .handle_turn(packets, matches!(received, Ok(Received::More)), Instant::now);
        received
    }

    /// What the peer's kernel owes.
    pub fn look_at_peer(&mut self, now: Instant) -> Look {
        tcp_info::look(self.path.socket().as_fd(), now, &mut self.answers)
    }

    /// Gives the connection up and keeps it, unread and unwritten: the peer learns nothing of that until it gives its
    /// own end up, or [`Superseded`] is dropped. Returns the contexts of compression, for the next connection, too.
    pub fn supersede(mut self, port: Port) -> (Superseded, Codec) {
        if self.is_watched {
            port.unwatch(self.fd);
        }
        let codec = self.path.take_codec();
        (Superseded(self), codec)
    }

    /// Closes the connection. The VM may hold on to the descriptor a little longer; the peer sees the end at once.
    /// Returns the contexts of compression, for the next connection.
    pub fn close(mut self, port: Port) -> Codec {
        self.path.shutdown();
        if self.is_watched {
            port.unwatch(self.fd);
        }
        self.path.take_codec()
    }

    /// Ends the connection after the written bytes, which the peer reads first. `has_failed`: nothing can be sent.
    pub fn finish(self, port: Port, has_failed: bool) {
        let held = VecDeque::from(self.path.held().to_vec());
        lingering::close(self.path.socket(), held, has_failed);
        if self.is_watched {
            port.unwatch(self.fd);
        }
    }
}

/// A connection that was given up for one that is to replace it. The drop resets it: behind an end in order the peer
/// would take this process for ended.
pub struct Superseded(Tcp);

impl Drop for Superseded {
    fn drop(&mut self) {
        self.0.path.reset();
        self.0.path.shutdown();
    }
}

/// A sink that gives packets to the VM.
struct ToVm<'a> {
    port: Port,
    tally: &'a mut Tally,
}

impl Sink for ToVm<'_> {
    type Large = Block;

    fn allocate(&mut self, bytes: usize) -> Option<Block> {
        Buffer::allocate(bytes)
    }

    // The VM refuses a packet only if the peer's bytes are wrong; it ends the port then.
    fn small(&mut self, packet: &[u8]) {
        self.tally.count_received(packet.len(), || packet);
        let _taken = self.port.deliver_copy(packet);
    }

    fn large(&mut self, packet: Block) {
        self.tally
            .count_received(packet.bytes(), || packet.packet(0..packet.bytes()));
        let _taken = self.port.deliver(&packet, 0..packet.bytes());
    }
}
