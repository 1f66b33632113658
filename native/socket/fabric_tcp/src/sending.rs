//! The sending half: frames go to the socket at once. Bytes that it does not take wait in the backlog here.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use inet_rdma_fabric::FabricError;
use inet_rdma_fabric::lingering::{flush, send};
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::frame::CONTROL_FRAME_BYTES;
use crate::socket::lost;

/// Maximum number of transfers' bytes in the backlog. They are copied once more, so this is one transfer of the default
/// options: a writer whose socket is full should wait for the network, and not fill memory.
const BACKLOG_BYTES: usize = 256 * 1024;

/// A quarter of the backlog must be free before room is offered: else bulk would be cut into small transfers.
const OFFER_PARTS: usize = 4;

/// Slices that are handed to the kernel in one call.
const SLICES: usize = 64;

pub(crate) struct FrameSender {
    state: Mutex<State>,
    /// Bytes in the backlog. Changed only with the state locked.
    waiting: AtomicUsize,
    /// Maximum number of transfers' bytes in the backlog.
    room: AtomicUsize,
    /// That maximum after the next [`Self::replace_room`].
    prepared: AtomicUsize,
    /// Bytes of control messages that may wait, too: one message for each slot of the peer.
    controls_max: usize,
}

struct State {
    /// Frames that wait. The first may be sent in part.
    backlog: VecDeque<u8>,
    /// The error after which nothing can be sent.
    error: Option<FabricError>,
}

impl FrameSender {
    pub(crate) fn new(peer_slots: u16) -> FrameSender {
        FrameSender {
            state: Mutex::new(State {
                backlog: VecDeque::new(),
                error: None,
            }),
            waiting: AtomicUsize::new(0),
            room: AtomicUsize::new(BACKLOG_BYTES),
            prepared: AtomicUsize::new(BACKLOG_BYTES),
            controls_max: usize::from(peer_slots) * CONTROL_FRAME_BYTES,
        }
    }

    pub(crate) fn has_backlog(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// Bytes that can be posted now. Tries first to send the backlog.
    pub(crate) fn room(&self, socket: BorrowedFd<'_>) -> usize {
        self.flush(socket);
        let room = self.room.load(Ordering::Relaxed);
        match room.saturating_sub(self.waiting.load(Ordering::Acquire)) {
            free if free >= room / OFFER_PARTS => free,
            _ => 0,
        }
    }

    /// The room that [`Self::replace_room`] gives.
    pub(crate) fn prepare_room(&self, bytes: usize) {
        self.prepared.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn replace_room(&self) {
        self.room
            .store(self.prepared.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Sends a frame: its head, then `source`. True: a part of it waits.
    pub(crate) fn post(&self, socket: BorrowedFd<'_>, head: &[u8], source: &[&[u8]]) -> Result<bool, FabricError> {
        let mut state = self.state.lock();
        state.flush(socket);
        if let Some(error) = &state.error {
            return Err(error.clone());
        }
        // A user that keeps to its credits and to the offered room stays below this.
        let bytes = source
            .iter()
            .fold(head.len(), |sum, piece| sum.saturating_add(piece.len()));
        let most = self.room.load(Ordering::Relaxed) + self.controls_max;
        if state.backlog.len().saturating_add(bytes) > most {
            return Err(FabricError::QueueFull);
        }
        let sent = if state.backlog.is_empty() {
            state.send(socket, head, source)?
        } else {
            0
        };
        if sent < bytes {
            state.keep(head, source, sent);
        }
        self.waiting.store(state.backlog.len(), Ordering::Release);
        Ok(sent < bytes)
    }

    pub(crate) fn flush(&self, socket: BorrowedFd<'_>) {
        if self.has_backlog() {
            let mut state = self.state.lock();
            state.flush(socket);
            self.waiting.store(state.backlog.len(), Ordering::Release);
        }
    }

    /// Takes the backlog. Nothing may be posted after this.
    pub(crate) fn end(&self, socket: BorrowedFd<'_>) -> VecDeque<u8> {
        let mut state = self.state.lock();
        state.flush(socket);
        state.error = Some(FabricError::PeerGone);
        self.waiting.store(0, Ordering::Release);
        std::mem::take(&mut state.backlog)
    }
}

impl State {
    /// Sends head and source. Returns the number of bytes that the socket took.
    fn send(&mut self, socket: BorrowedFd<'_>, head: &[u8], source: &[&[u8]]) -> Result<usize, FabricError> {
        let mut slices = [IoSlice::new(&[]); SLICES];
        slices[0] = IoSlice::new(head);
        let (mut count, mut bytes, mut sent) = (1, head.len(), 0);
        let mut pieces = source.iter().filter(|piece| !piece.is_empty()).peekable();
        loop {
            while count < SLICES {
                let Some(piece) = pieces.next() else { break };
                slices[count] = IoSlice::new(piece);
                count += 1;
                bytes += piece.len();
            }
            let is_last = pieces.peek().is_none();
            match send(socket, &slices[..count], !is_last) {
                Ok(taken) => sent += taken,
                Err(errno) => return Err(self.fail(errno)),
            }
            if is_last || sent < bytes {
                return Ok(sent);
            }
            count = 0;
        }
    }

    /// Adds head and source without their first `sent` bytes to the backlog.
    fn keep(&mut self, head: &[u8], source: &[&[u8]], sent: usize) {
        let mut skip = sent;
        for piece in std::iter::once(&head).chain(source) {
            let from = skip.min(piece.len());
            self.backlog.extend(&piece[from..]);
            skip -= from;
        }
    }

    fn flush(&mut self, socket: BorrowedFd<'_>) {
        if let Err(errno) = flush(socket, &mut self.backlog) {
            let _told_by_the_next_post = self.fail(errno);
        }
    }

    /// Drops the backlog, as nothing more can be sent. The receiving half finds the end after the bytes that have
    /// come.
    fn fail(&mut self, errno: Errno) -> FabricError {
        self.backlog = VecDeque::new();
        let error = lost("sending to the peer", errno);
        self.error.get_or_insert(error).clone()
    }
}
