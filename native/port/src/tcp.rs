//! The TCP path of a link: its socket in the VM's poll set.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Instant;

use inet_rdma_fabric::lingering;
use inet_rdma_path_tcp::{Compression, Lost, Protection, ReceiveError, SealState, TcpPath, Transmitted};
use inet_rdma_session::{Session, Sink};

use crate::block::{Block, Held};
use crate::links;
use crate::port::Port;
use crate::tally::Tally;
use crate::tcp_answers::TcpAnswers;
use crate::tcp_info;

/// A TCP connection that carries the link's session, or stands by.
pub struct Tcp {
    path: TcpPath,
    fd: RawFd,
    /// True if the VM tells when the socket is readable.
    is_watched: bool,
    /// True while the socket takes no more bytes.
    is_blocked: bool,
    /// True if the VM tells when the socket is writable.
    is_watched_writable: bool,
    /// The reason why nothing more can be sent. Bytes that have arrived are still read, up to the end.
    failed: Option<Lost>,
    answers: TcpAnswers,
}

impl Tcp {
    /// A path over the caller's connection, by a descriptor of its own.
    pub fn adopt(socket: BorrowedFd<'_>) -> std::io::Result<Tcp> {
        let path = TcpPath::adopt(socket)?;
        Ok(Tcp {
            fd: path.socket().as_raw_fd(),
            path,
            is_watched: false,
            is_blocked: false,
            is_watched_writable: false,
            failed: None,
            answers: TcpAnswers::default(),
        })
    }

    /// Seals the path from its first byte on.
    pub fn seal(&mut self, protection: &Protection) {
        self.path.seal(protection);
    }

    /// Compresses, from the first byte on, the bytes that this side sends, those that the peer sends, or both. False:
    /// there is no memory for it.
    pub fn compress(&mut self, sends: bool, receives: bool) -> bool {
        self.path.compress(sends, receives)
    }

    /// Counts of the sent and of the received bytes. None: neither side compresses.
    pub fn compression(&self) -> Option<[Compression; 2]> {
        self.path.compression()
    }

    /// The state of the seals. None: the connection is not sealed.
    pub fn sealing(&self) -> Option<SealState> {
        self.path.sealing()
    }

    /// Bytes that the session has transmitted and the socket has not taken.
    pub fn held_bytes(&self) -> usize {
        self.path.held().len()
    }

    /// Whether the peer is on this host.
    pub fn is_local(&self) -> bool {
        self.path.is_local()
    }

    /// The descriptor that the VM watches.
    pub fn fd(&self) -> RawFd {
        self.fd
    }

    /// Asks the VM to tell when the socket is readable. False: it cannot.
    pub fn watch(&mut self, port: Port) -> bool {
        if !self.is_watched {
            links::keep(self.fd, Arc::clone(self.path.socket()) as _);
            self.is_watched = port.watch(self.fd);
            if !self.is_watched {
                links::forget(self.fd);
            }
        }
        self.is_watched
    }

    /// Whether a write would find no room.
    pub fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Notes that the socket is writable. [`Self::transmit`] must follow.
    pub fn handle_writable(&mut self) {
        self.is_blocked = false;
    }

    /// Writes the bytes that the session has for this path, as far as there is room. [`Self::receive`] returns an error
    /// of this call, after the bytes that have arrived.
    pub fn transmit(&mut self, port: Port, session: &mut Session<Held, Block>) {
        if self.is_blocked || self.failed.is_some() {
            return;
        }
        self.is_blocked = match self.path.transmit(session) {
            Ok(Transmitted::All) => false,
            // Without a watch the link is not started, or about to end.
            Ok(Transmitted::Blocked) => self.is_watched,
            Err(lost) => {
                self.failed = Some(lost);
                false
            }
        };
        if self.is_blocked != self.is_watched_writable {
            self.is_watched_writable = self.is_blocked;
            port.watch_writable(self.fd, self.is_blocked);
        }
    }

    /// Gives the session the bytes that have arrived, and the VM the packets in them.
    pub fn receive(
        &mut self,
        port: Port,
        session: &mut Session<Held, Block>,
        tally: &mut Tally,
    ) -> Result<(), ReceiveError> {
        let received = self.path.receive(session, &mut ToVm { port, tally });
        match (received, self.failed) {
            (Err(ReceiveError::Lost(_)), Some(lost)) => Err(lost.into()),
            (received, _) => received,
        }
    }

    /// See [`TcpAnswers::look`].
    #[must_use]
    pub fn has_not_answered(&mut self, now: Instant, looks: u32) -> bool {
        let socket = self.path.socket();
        self.answers.look(now, looks, || tcp_info::acknowledged(socket.as_fd()))
    }

    /// The next look is the first one.
    pub fn forget_answers(&mut self) {
        self.answers.forget();
    }

    /// Closes the connection. The VM may hold on to the descriptor a little longer; the peer sees the end at once.
    pub fn close(self, port: Port) {
        self.path.shutdown();
        if self.is_watched {
            port.unwatch(self.fd);
        }
    }

    /// Ends the connection after the written bytes, which the peer reads first.
    pub fn finish(self, port: Port) {
        let held = VecDeque::from(self.path.held().to_vec());
        lingering::close(self.path.socket(), held, self.failed.is_some());
        if self.is_watched {
            port.unwatch(self.fd);
        }
    }

    /// Ends the connection for the peer at once; the descriptor stays open.
    pub fn shut_down(&self) {
        self.path.shutdown();
    }

    /// Another descriptor of the socket, for the caller to close.
    pub fn duplicate(&self) -> std::io::Result<std::os::fd::OwnedFd> {
        self.path.socket().try_clone()
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
        inet_rdma_assembly::Buffer::allocate(bytes)
    }

    // The VM refuses a packet only if the peer's bytes are wrong; it ends the port then.
    fn small(&mut self, packet: &[u8]) {
        self.tally.count_received(packet.len());
        let _taken = self.port.deliver_copy(packet);
    }

    fn large(&mut self, packet: Block) {
        self.tally.count_received(packet.len());
        let _taken = self.port.deliver(&packet, 0..packet.len());
    }
}
