//! The TCP path of a link: its socket in the VM's poll set.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use inet_rdma_assembly::Buffer;
use inet_rdma_fabric::crash::EndsAtCrash;
use inet_rdma_fabric::lingering;
use inet_rdma_path_tcp::{Codec, Lost, ReceiveError, Received, TcpPath, Transmitted};
use inet_rdma_paths::Look;
use inet_rdma_session::{Session, Sink};

use crate::block::{Block, Held};
use crate::handover;
use crate::port::Port;
use crate::tally::Tally;
use crate::tcp_info;

/// The time after which the port writes again where the kernel had no memory for the bytes, as no event tells of
/// memory. Short beside what a lost segment costs, Linux's TCP_RTO_MIN of 200 ms.
const AGAIN: Duration = Duration::from_millis(10);

/// The state of outgoing bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Output {
    /// There may be room.
    Free,
    /// The socket takes no more bytes.
    Blocked,
    /// The kernel had no memory for more: the port writes again at this time.
    Again(Instant),
    /// Nothing more can be sent, for this reason. Bytes that have arrived are still read.
    Failed(Lost),
}

/// A TCP connection that carries the link's session, or stands by.
pub struct Tcp {
    /// Before the path: it is dropped first.
    _ends_at_crash: EndsAtCrash,
    pub path: TcpPath,
    /// The descriptor that the VM watches.
    pub fd: RawFd,
    /// True if the VM tells when the socket is readable.
    is_watched: bool,
    output: Output,
    /// True if the VM tells when the socket is writable.
    is_watched_writable: bool,
}

impl Tcp {
    pub fn new(path: TcpPath) -> Tcp {
        Tcp {
            _ends_at_crash: EndsAtCrash::enter(path.socket().as_fd()),
            fd: path.socket().as_raw_fd(),
            path,
            is_watched: false,
            output: Output::Free,
            is_watched_writable: false,
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

    /// Whether a write would find no room.
    pub fn is_blocked(&self) -> bool {
        matches!(self.output, Output::Blocked | Output::Again(_))
    }

    /// Notes that the socket is writable. [`Self::transmit`] must follow.
    pub fn handle_writable(&mut self) {
        if self.output == Output::Blocked {
            self.output = Output::Free;
        }
    }

    /// The time of the next [`Self::try_again`], if the kernel had no memory.
    pub fn again_at(&self) -> Option<Instant> {
        match self.output {
            Output::Again(at) => Some(at),
            Output::Free | Output::Blocked | Output::Failed(_) => None,
        }
    }

    /// True if it is time to write again: [`Self::transmit`] must follow.
    #[must_use]
    pub fn try_again(&mut self, now: Instant) -> bool {
        let is_time = self.again_at().is_some_and(|at| at <= now);
        if is_time {
            self.output = Output::Free;
        }
        is_time
    }

    /// True if [`Self::receive`] is due even if nothing is readable: it has left bytes, or nothing more can be sent.
    pub fn is_due(&self) -> bool {
        self.path.holds_input() || matches!(self.output, Output::Failed(_))
    }

    /// Writes the bytes that the session has for this path, as far as there is room. [`Self::receive`] returns an error
    /// of this call, after the bytes that have arrived.
    pub fn transmit(&mut self, port: Port, session: &mut Session<Held, Block>) {
        if self.output != Output::Free {
            return;
        }
        self.output = match self.path.transmit(session) {
            // Without a watch the link is not started, or about to end.
            Ok(Transmitted::Blocked) if self.is_watched => Output::Blocked,
            Ok(Transmitted::All | Transmitted::Blocked) => Output::Free,
            Ok(Transmitted::NoMemory) => Output::Again(Instant::now() + AGAIN),
            Err(lost) => Output::Failed(lost),
        };
        self.update_watch(port);
    }

    /// Has the VM tell when the socket is writable while a write waits for that, and only then.
    pub fn update_watch(&mut self, port: Port) {
        let is_blocked = self.output == Output::Blocked;
        if is_blocked != self.is_watched_writable {
            self.is_watched_writable = is_blocked;
            port.watch_writable(self.fd, is_blocked);
        }
    }

    /// Gives the session the bytes that have arrived, and the VM the packets in them, up to the bounds of a turn. Once
    /// nothing more can be sent the connection is lost behind these bytes: the kernel may know of no end.
    pub fn receive(
        &mut self,
        port: Port,
        session: &mut Session<Held, Block>,
        tally: &mut Tally,
    ) -> Result<(), ReceiveError> {
        let received = self.path.receive(session, &mut ToVm { port, tally });
        match (received, self.output) {
            // Behind the peer's end in order a write fails with this error.
            (Err(ReceiveError::Lost(Lost::Eof)), Output::Failed(Lost::Error(error)))
                if error.raw_os_error() == libc::EPIPE =>
            {
                Err(Lost::Eof.into())
            }
            (Ok(Received::All) | Err(ReceiveError::Lost(_)), Output::Failed(lost)) => Err(lost.into()),
            (received, _) => received.map(|_all_or_more| ()),
        }
    }

    /// What the peer's kernel owes.
    pub fn look_at_peer(&self) -> Look {
        tcp_info::look(self.path.socket().as_fd())
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

    /// Ends the connection after the written bytes, which the peer reads first.
    pub fn finish(self, port: Port) {
        let held = VecDeque::from(self.path.held().to_vec());
        lingering::close(self.path.socket(), held, matches!(self.output, Output::Failed(_)));
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
        self.tally.count_received(packet.len());
        let _taken = self.port.deliver_copy(packet);
    }

    fn large(&mut self, packet: Block) {
        self.tally.count_received(packet.bytes());
        let _taken = self.port.deliver(&packet, 0..packet.bytes());
    }
}
