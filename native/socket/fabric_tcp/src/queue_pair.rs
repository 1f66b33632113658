//! One end of a connection over TCP.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use inet_rdma_fabric::crash::EndsAtCrash;
use inet_rdma_fabric::{
    Capabilities, Completion, Exposer, FabricError, FabricName, Memory, Parameters, QueuePair, Safeguard, Transport,
    WriteRoom, lingering, waiting,
};
use inet_rdma_stream::{CONTROL_BYTES, Hello, Notice, RemoteAddress};
use parking_lot::Mutex;
use rustix::event::PollFlags;

use crate::frame::{TransferHead, emit_control};
use crate::grants::{Grants, RING_KEY, TcpExposer, expose_ring};
use crate::interest::Interest;
use crate::receiving::FrameReceiver;
use crate::sending::FrameSender;
use crate::socket::addresses;

/// This side's memory. A listener makes it after it has checked the peer's hello, a connecting side before its own
/// hello.
pub(crate) struct OwnSide {
    grants: Arc<Grants>,
    ring: Arc<dyn Memory>,
    pub(crate) hello: Hello,
}

impl OwnSide {
    pub(crate) fn create(parameters: &Parameters) -> Result<OwnSide, FabricError> {
        parameters.limits.check()?;
        let grants = Grants::new();
        let ring = expose_ring(&grants, parameters.limits.ring_bytes as usize)?;
        Ok(OwnSide {
            grants,
            ring,
            hello: parameters.hello(RING),
        })
    }

    /// Makes the queue pair, after both hellos.
    pub(crate) fn join(self, socket: OwnedFd, peer: Hello) -> Result<TcpQueuePair, FabricError> {
        Ok(TcpQueuePair {
            interest: Interest::new(socket.as_fd())?,
            addresses: addresses(socket.as_fd())?,
            _ends_at_crash: EndsAtCrash::enter(socket.as_fd()),
            socket: Arc::new(socket),
            exposer: Arc::new(TcpExposer::new(&self.grants)),
            grants: self.grants,
            ring: self.ring,
            receiving: Mutex::new(FrameReceiver::new(self.hello.receive_slots)),
            sending: FrameSender::new(peer.receive_slots),
            peer,
            is_closed: AtomicBool::new(false),
        })
    }
}

/// The ring of a side, which begins where its memory does.
pub(crate) const RING: RemoteAddress = RemoteAddress {
    key: RING_KEY,
    address: 0,
};

/// A queue pair over a TCP connection. Holds two file descriptors, the socket and the epoll set that is its event fd.
///
/// Bytes of the peer reach this side's memory when this side polls, and at no other time.
pub(crate) struct TcpQueuePair {
    /// Before the socket: it is dropped first.
    _ends_at_crash: EndsAtCrash,
    socket: Arc<OwnedFd>,
    interest: Interest,
    addresses: (SocketAddr, SocketAddr),
    grants: Arc<Grants>,
    exposer: Arc<TcpExposer>,
    ring: Arc<dyn Memory>,
    peer: Hello,
    /// Taken before the lock of the grants and that of the sending half.
    receiving: Mutex<FrameReceiver>,
    sending: FrameSender,
    is_closed: AtomicBool,
}

impl TcpQueuePair {
    fn check_open(&self) -> Result<(), FabricError> {
        if self.is_closed.load(Ordering::Acquire) {
            Err(FabricError::PeerGone)
        } else {
            Ok(())
        }
    }

    fn post(&self, head: &[u8], source: &[&[u8]]) -> Result<(), FabricError> {
        self.check_open()?;
        if self.sending.post(self.socket.as_fd(), head, source)? {
            self.interest.note_backlog(self.socket.as_fd())
        } else {
            Ok(())
        }
    }

    /// Receives what has come. If the peer breaks the rules, the connection ends at once.
    fn receive(&self, receiving: &mut FrameReceiver) {
        receiving.receive(&self.grants, self.socket.as_fd());
        if receiving.is_violated() {
            self.end(receiving);
        }
    }

    fn end(&self, receiving: &mut FrameReceiver) {
        if !self.is_closed.swap(true, Ordering::AcqRel) {
            let backlog = self.sending.end(self.socket.as_fd());
            lingering::close(&self.socket, backlog, receiving.is_at_end() && !receiving.is_violated());
        }
        receiving.end();
    }
}

impl QueuePair for TcpQueuePair {
    fn memory(&self) -> &Arc<dyn Memory> {
        &self.ring
    }

    fn exposer(&self) -> Arc<dyn Exposer> {
        Arc::clone(&self.exposer) as Arc<dyn Exposer>
    }

    fn remote_hello(&self) -> &Hello {
        &self.peer
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            transport: Transport::Tcp,
            immediate: true,
            inline_max: 0,
            post_is_costly: true,
            pins: false,
            // Only this process writes its memory, and never by the key of a closed window.
            safeguard: Safeguard::Windows,
            windows: true,
            landing_window_bytes: usize::MAX,
            ack_timeout: None,
        }
    }

    fn post_write(
        &self,
        _room: WriteRoom,
        source: &[&[u8]],
        target: RemoteAddress,
        notice: Notice,
    ) -> Result<(), Box<FabricError>> {
        // The peer checks the target, as a device of its own would.
        let bytes: usize = source.iter().map(|piece| piece.len()).sum();
        let bytes = u32::try_from(bytes).map_err(|_| FabricError::QueueFull)?;
        let head = TransferHead { notice, bytes, target };
        Ok(self.post(&head.emit(), source)?)
    }

    fn post_control(&self, message: &[u8; CONTROL_BYTES]) -> Result<(), FabricError> {
        self.post(&emit_control(message), &[])
    }

    fn prepare_staging(&self, bytes: usize) -> Result<(), FabricError> {
        self.sending.prepare_room(bytes);
        Ok(())
    }

    fn replace_staging(&self) {
        self.sending.replace_room();
    }

    fn write_room(&self) -> Option<WriteRoom> {
        WriteRoom::new(self.sending.room(self.socket.as_fd()))
    }

    fn poll(&self, out: &mut [Completion]) -> Result<usize, FabricError> {
        let mut receiving = self.receiving.lock();
        self.sending.flush(self.socket.as_fd());
        if out.is_empty() || !receiving.has_some() {
            self.receive(&mut receiving);
        }
        receiving.take(out)
    }

    fn arm(&self) -> Result<bool, FabricError> {
        let mut receiving = self.receiving.lock();
        self.sending.flush(self.socket.as_fd());
        if receiving.has_some() {
            return Ok(false);
        }
        // Bytes that arrive after a look has found the socket empty make an event.
        if self.interest.is_armed() || !receiving.take_drained() {
            self.receive(&mut receiving);
            if receiving.has_some() || !receiving.take_drained() {
                return Ok(false);
            }
        }
        let has_backlog = || self.sending.has_backlog();
        self.interest.arm(self.socket.as_fd(), has_backlog)?;
        Ok(true)
    }

    fn disarm(&self) {
        // Does nothing: to disarm costs a system call, as does the event that it would save.
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.interest.as_fd()
    }

    fn drain_event(&self) -> bool {
        self.interest.drain();
        // The poll that follows finds the end of the connection, after the bytes that came before it.
        true
    }

    fn liveness_fd(&self) -> BorrowedFd<'_> {
        self.interest.as_fd()
    }

    fn check_alive(&self) -> Result<(), FabricError> {
        self.check_open()?;
        waiting::check_peer(self.socket.as_fd(), PollFlags::RDHUP)
    }

    fn disconnect(&self) {
        if !self.is_closed.load(Ordering::Acquire) {
            self.end(&mut self.receiving.lock());
        }
    }

    fn wakeups_sent(&self) -> u64 {
        0
    }

    fn fabric(&self) -> FabricName {
        FabricName::Tcp
    }

    fn route(&self) -> String {
        let (own, peer) = self.addresses;
        format!("TCP, {} to {}", own.ip(), peer.ip())
    }

    fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        Some(self.addresses)
    }
}

impl Drop for TcpQueuePair {
    fn drop(&mut self) {
        self.disconnect();
    }
}
