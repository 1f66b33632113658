//! The receiving half: reads frames from the socket. The bytes of a transfer go to the place that it names. Control
//! messages, and bytes after them, go into a private buffer.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use inet_rdma_fabric::{Completion, FabricError, Misbehaviour};
use inet_rdma_stream::RemoteAddress;
use rustix::io::Errno;
use rustix::net::RecvFlags;

use crate::frame::{Frame, TransferHead};
use crate::grants::Grants;
use crate::socket::lost;

/// Bytes that are read ahead: the frames of small messages, many in one call of the kernel.
const AHEAD_BYTES: usize = 8 * 1024;

/// After a transfer of at least this many bytes another one usually follows. Read little ahead then: bytes of a
/// transfer that are read ahead are copied once more.
const BULK_BYTES: usize = 4 * 1024;
const BEHIND_BULK_BYTES: usize = 256;

/// Bytes after which a turn with a result ends, as it holds the connection's lock.
const TURN_BYTES: usize = 256 * 1024;

pub(crate) struct FrameReceiver {
    /// Bytes that are read ahead: those not parsed yet are `ahead[start..end]`.
    ahead: Box<[u8]>,
    start: usize,
    end: usize,
    transfer: Option<Incoming>,
    /// Completions that are not polled yet, at most one for each slot of this side.
    ready: VecDeque<Completion>,
    slots: usize,
    /// The fault that ends the connection. A poll returns it after the completions in `ready`.
    fault: Option<FabricError>,
    /// True: the last read emptied the socket.
    is_drained: bool,
}

/// A transfer of which `left` bytes are still to come, to `target`.
struct Incoming {
    head: TransferHead,
    target: RemoteAddress,
    left: usize,
}

impl Incoming {
    fn advance(&mut self, bytes: usize) {
        self.target.address += bytes as u64;
        self.left -= bytes;
    }
}

impl FrameReceiver {
    pub(crate) fn new(slots: u16) -> FrameReceiver {
        FrameReceiver {
            ahead: vec![0; AHEAD_BYTES].into(),
            start: 0,
            end: 0,
            transfer: None,
            ready: VecDeque::new(),
            slots: slots.into(),
            fault: None,
            is_drained: false,
        }
    }

    /// True if there is something to poll: a completion, or the fault.
    pub(crate) fn has_some(&self) -> bool {
        !self.ready.is_empty() || self.fault.is_some()
    }

    /// Returns once true after the socket was found empty. The caller must arm or poll then.
    pub(crate) fn take_drained(&mut self) -> bool {
        std::mem::take(&mut self.is_drained)
    }

    /// True: the peer broke the rules, and the caller must end the connection.
    pub(crate) fn is_violated(&self) -> bool {
        matches!(self.fault, Some(FabricError::PeerMisbehaved(_)))
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.fault.is_some()
    }

    pub(crate) fn end(&mut self) {
        self.fault.get_or_insert(FabricError::PeerGone);
    }

    /// Takes completions, oldest first. Err: there are none, and the connection has ended.
    pub(crate) fn take(&mut self, out: &mut [Completion]) -> Result<usize, FabricError> {
        let mut taken = 0;
        while let Some(place) = out.get_mut(taken) {
            let Some(completion) = self.ready.pop_front() else {
                break;
            };
            *place = completion;
            taken += 1;
        }
        match &self.fault {
            Some(fault) if taken == 0 && self.ready.is_empty() => Err(fault.clone()),
            _ => Ok(taken),
        }
    }

    /// Receives until the socket is empty or all slots are used, or for a bounded number of bytes if it finds
    /// something.
    pub(crate) fn receive(&mut self, grants: &Grants, socket: BorrowedFd<'_>) {
        let mut received = 0;
        self.is_drained = false;
        while self.parse(grants) && !self.is_drained && (received < TURN_BYTES || self.ready.is_empty()) {
            match self.fill(grants, socket) {
                Ok((0, _)) => self.fault = Some(FabricError::PeerGone),
                Ok((bytes, is_short)) => {
                    received += bytes;
                    self.is_drained = is_short;
                }
                Err(Fault::Empty) => self.is_drained = true,
                Err(Fault::Failed(error)) => self.fault = Some(error),
            }
        }
    }

    /// Parses the frames that were read ahead. Returns true if it needs more bytes and a slot is free.
    fn parse(&mut self, grants: &Grants) -> bool {
        while self.fault.is_none() && self.ready.len() < self.slots {
            let parsed = match self.transfer.take() {
                Some(transfer) => self.place_ahead(grants, transfer),
                None => self.parse_frame(grants),
            };
            match parsed {
                Ok(true) => {}
                Ok(false) => return true,
                Err(misbehaviour) => self.fault = Some(FabricError::PeerMisbehaved(misbehaviour)),
            }
        }
        false
    }

    /// Returns false if more bytes are needed.
    fn parse_frame(&mut self, grants: &Grants) -> Result<bool, Misbehaviour> {
        let Some(frame) = Frame::parse(&self.ahead[self.start..self.end])? else {
            return Ok(false);
        };
        self.start += frame.head_bytes();
        match frame {
            Frame::Control(message) => self.ready.push_back(Completion::Control(message)),
            Frame::Transfer(head) => {
                let bytes = head.bytes as usize;
                // Check the target before the bytes have come.
                grants.write(head.target, bytes, |_, _| ())?;
                self.transfer = Some(Incoming {
                    head,
                    target: head.target,
                    left: bytes,
                });
            }
        }
        Ok(true)
    }

    /// Copies the bytes of a transfer that were read ahead. False: more bytes are needed.
    fn place_ahead(&mut self, grants: &Grants, mut transfer: Incoming) -> Result<bool, Misbehaviour> {
        let bytes = transfer.left.min(self.end - self.start);
        if bytes > 0 {
            let read = &self.ahead[self.start..self.start + bytes];
            grants.write(transfer.target, bytes, |pages, offset| pages.place(offset, read))?;
            self.start += bytes;
            transfer.advance(bytes);
        }
        let is_whole = transfer.left == 0;
        if is_whole {
            self.ready.push_back(Completion::Notice(transfer.head.notice));
        } else {
            self.transfer = Some(transfer);
        }
        Ok(is_whole)
    }

    /// Reads with one system call. Returns the number of bytes, 0 at the end, and true if the socket is empty now.
    fn fill(&mut self, grants: &Grants, socket: BorrowedFd<'_>) -> Result<(usize, bool), Fault> {
        match self.transfer.take() {
            Some(transfer) => self.fill_transfer(grants, transfer, socket),
            None => self.fill_ahead(socket),
        }
    }

    fn fill_ahead(&mut self, socket: BorrowedFd<'_>) -> Result<(usize, bool), Fault> {
        self.ahead.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let free = &mut self.ahead[self.end..];
        let want = free.len();
        let (bytes, _) = rustix::net::recv(socket, free, RecvFlags::DONTWAIT)?;
        self.end += bytes;
        Ok((bytes, bytes < want))
    }

    /// Reads bytes of a transfer into their place. Nothing that was read ahead is left: a transfer takes that first.
    fn fill_transfer(
        &mut self,
        grants: &Grants,
        mut transfer: Incoming,
        socket: BorrowedFd<'_>,
    ) -> Result<(usize, bool), Fault> {
        let ahead = if transfer.left >= BULK_BYTES {
            BEHIND_BULK_BYTES
        } else {
            AHEAD_BYTES
        };
        let (left, ahead) = (transfer.left, &mut self.ahead[..ahead]);
        let want = left + ahead.len();
        let received = grants.write(transfer.target, left, |pages, offset| {
            pages.receive(offset..offset + left, ahead, socket)
        });
        // The key may have been withdrawn since the head was read.
        let received = received.map_err(|misbehaviour| Fault::Failed(FabricError::PeerMisbehaved(misbehaviour)))?;
        if let Ok(bytes) = received {
            let placed = bytes.min(left);
            transfer.advance(placed);
            (self.start, self.end) = (0, bytes - placed);
        }
        self.transfer = Some(transfer);
        let bytes = received?;
        Ok((bytes, bytes < want))
    }
}

/// The reason why a read returned nothing.
enum Fault {
    Empty,
    Failed(FabricError),
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Fault {
        match errno {
            // After a signal nothing is lost: bytes in the socket make an event.
            Errno::AGAIN | Errno::INTR => Fault::Empty,
            errno => Fault::Failed(lost("receiving from the peer", errno)),
        }
    }
}
