//! The sending half of a queue pair.

mod markers;
mod pieces;
mod windows;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use inet_rdma_fabric::{Counts, FabricError, Tried, WindowState};
use inet_rdma_stream::{CONTROL_BYTES, Notice, RemoteAddress};
use inet_rdma_verbs::cq::{Completion, CompletionQueue, Failure};
use inet_rdma_verbs::memory::MemoryRegion;
use inet_rdma_verbs::qp::{Operation, QueuePair, Source};
use inet_rdma_verbs::{Transport, VerbsError};

use crate::backlog::{Backlog, Request};
use crate::memory::PinnedRegion;
use crate::refusal::failed_call;
use crate::staging::Ledger;
use crate::windows::Cell;

/// The ledger, the requests that wait for a place, and the fault if there is one.
pub(crate) struct SendQueue {
    ledger: Ledger,
    /// The staging memory that `ledger` counts.
    staging: Arc<PinnedRegion>,
    /// The region that replaces it at [`Self::replace_staging`].
    prepared: Option<Arc<PinnedRegion>>,
    /// Earlier staging regions, each with the staged-byte position from which it is free.
    replaced: Vec<(Arc<PinnedRegion>, u64)>,
    /// Requests for which the send queue had no place. They go before later ones, and before room is offered again.
    waiting: Backlog,
    /// Windows whose invalidation is posted, in the order of the requests' numbers, with the invalidated key.
    closing: VecDeque<(u64, Arc<Cell>, u32)>,
    /// True if the last caller found no place in the send queue: the next completion of a send must make an event.
    starved: bool,
    /// The number of completed requests at the last [`Self::ask`].
    done_when_asked: u64,
    /// The last request of [`Self::ask`].
    asked: u64,
    /// Whether the last [`Self::ask`] has left a request under way.
    is_asked: bool,
    /// Whether the last request of [`Self::ask`] is complete. siw completes later requests before a read.
    is_answered: bool,
    /// An end marker for which the queue had no place.
    marker_due: Option<RemoteAddress>,
    /// The first failure, with the number of its request.
    failed: Option<(u64, Failure)>,
    pub(crate) counts: Counts,
}

/// The resources that sending uses beside its own state. All are shared and none changes.
pub(crate) struct Outlet<'a> {
    pub(crate) qp: &'a QueuePair,
    pub(crate) queue: &'a CompletionQueue,
    /// Slots for controls that are not sent inline, as many as the send queue has entries.
    pub(crate) slots: &'a MemoryRegion,
    pub(crate) slots_offset: usize,
    pub(crate) entries: u32,
    pub(crate) transport: Transport,
}

/// How the peer's device is asked for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    /// A write of no bytes: it is complete when the peer's device has acknowledged it.
    Write,
    /// A read of no bytes. Over iWARP a write is complete when this side's device has taken it, which tells nothing of
    /// the peer.
    Read,
}

impl Question {
    /// What fails if it fails.
    pub(crate) fn tries(self) -> Tried {
        match self {
            Question::Write => Tried::Writes,
            Question::Read => Tried::Reads,
        }
    }
}

pub(crate) struct Staged {
    pub(crate) region: Arc<PinnedRegion>,
    pub(crate) ranges: [Range<usize>; 2],
}

const BATCH: usize = 16;

impl SendQueue {
    /// `gathers`: see [`crate::devices::Traits::gathers`].
    pub(crate) fn new(entries: u32, staging: PinnedRegion, gathers: bool) -> SendQueue {
        SendQueue {
            ledger: Ledger::new(entries, staging.pages().bytes(), gathers),
            staging: Arc::new(staging),
            prepared: None,
            replaced: Vec::new(),
            waiting: Backlog::default(),
            closing: VecDeque::new(),
            starved: false,
            done_when_asked: 0,
            asked: 0,
            is_asked: false,
            is_answered: true,
            marker_due: None,
            failed: None,
            counts: Counts::default(),
        }
    }

    /// Sets the peer's number of receive slots. Called before anything is posted.
    pub(crate) fn begin(&mut self, peer_slots: u16) {
        self.waiting = Backlog::new(peer_slots);
    }

    /// Bytes that can be written now; 0: none, and the next completion makes an event if the queue is armed.
    pub(crate) fn room(&mut self, outlet: &Outlet<'_>) -> usize {
        if self.ledger.is_tight() || !self.waiting.is_empty() {
            self.catch_up(outlet);
        }
        let room = if self.waiting.is_empty() { self.ledger.room() } else { 0 };
        self.starved = room == 0;
        room
    }

    /// Reserves staging memory for the next transfer. See [`Self::check_room`].
    pub(crate) fn stage(&mut self, outlet: &Outlet<'_>, bytes: usize) -> Result<Staged, FabricError> {
        self.check_room(outlet, bytes)?;
        Ok(Staged {
            region: Arc::clone(&self.staging),
            ranges: self.ledger.stage(bytes),
        })
    }

    /// Keeps memory for [`Self::replace_staging`]; returns the memory that was kept before.
    pub(crate) fn prepare_staging(&mut self, staging: PinnedRegion) -> Option<Arc<PinnedRegion>> {
        self.prepared.replace(Arc::new(staging))
    }

    /// Sends from the prepared memory from now on. `target` is somewhere in the peer's memory.
    pub(crate) fn replace_staging(&mut self, outlet: &Outlet<'_>, target: RemoteAddress) {
        let Some(prepared) = self.prepared.take() else { return };
        let end = self.ledger.replace_staging(prepared.pages().bytes());
        self.replaced
            .push((std::mem::replace(&mut self.staging, prepared), end));
        // The requests before it may have no signal: without a signalled one after them their end would not show.
        self.post_end_marker(outlet, target);
    }

    /// Takes the replaced memory that the device no longer sends from. True: none is left.
    pub(crate) fn release_staging(&mut self, outlet: &Outlet<'_>) -> (Vec<Arc<PinnedRegion>>, bool) {
        self.catch_up(outlet);
        let ledger = &self.ledger;
        let (done, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.replaced)
            .into_iter()
            .partition(|(_, end)| ledger.is_done_to(*end));
        self.replaced = left;
        let regions = done.into_iter().map(|(region, _)| region).collect();
        (regions, self.replaced.is_empty())
    }

    /// Fails if send queue or staging memory have no place for a transfer that stages `bytes`. Takes completions first
    /// if there is no place, as another transfer may have been posted since [`Self::room`]. Never fails for a size that
    /// [`Self::room`] has offered, even if controls were posted since.
    pub(crate) fn check_room(&mut self, outlet: &Outlet<'_>, bytes: usize) -> Result<(), FabricError> {
        if !self.waiting.is_empty() || !self.ledger.takes_transfer(bytes) {
            self.catch_up(outlet);
        }
        if self.ledger.takes_transfer(bytes) {
            Ok(())
        } else {
            Err(FabricError::QueueFull)
        }
    }

    /// Posts a transfer whose bytes are staged, or go along inline.
    pub(crate) fn post_write(
        &mut self,
        outlet: &Outlet<'_>,
        source: Source<'_>,
        target: RemoteAddress,
        notice: Notice,
    ) -> Result<(), FabricError> {
        self.post_noticed(outlet, source, target, notice.emit())
    }

    /// Posts a write, and this word as its notice.
    fn post_noticed(
        &mut self,
        outlet: &Outlet<'_>,
        source: Source<'_>,
        target: RemoteAddress,
        word: u32,
    ) -> Result<(), FabricError> {
        let write = |immediate| Operation::Write {
            key: key_of(target),
            address: target.address,
            immediate,
        };
        match outlet.transport {
            Transport::InfiniBand => {
                let posted = self.ledger.post(true, true);
                self.post(outlet, posted, write(Some(word)), source)
            }
            Transport::Iwarp => {
                // The bytes of a write without a signal may not be changed when a later request is complete: siw has
                // TCP send a page or more of them out of this memory, until the peer's TCP has taken them. The bytes of
                // a write with a signal are copied by siw.
                let posted = match source {
                    Source::Region(_) => (self.ledger.post_signalled(true), true),
                    Source::Inline(_) => self.ledger.post(true, false),
                };
                self.post(outlet, posted, write(None), source)?;
                self.post_message(outlet, &word.to_be_bytes())
            }
        }
    }

    /// Sends a control, or keeps it until there is a place.
    pub(crate) fn post_control(
        &mut self,
        outlet: &Outlet<'_>,
        message: &[u8; CONTROL_BYTES],
    ) -> Result<(), FabricError> {
        self.submit(outlet, Request::Control(*message))
    }

    /// Posts a request, or keeps it until there is a place.
    fn submit(&mut self, outlet: &Outlet<'_>, request: Request) -> Result<(), FabricError> {
        if !self.waiting.is_empty() || !self.ledger.takes_control() {
            self.catch_up(outlet);
        }
        if self.waiting.is_empty() && self.ledger.takes_control() {
            return self.post_request(outlet, request);
        }
        self.starved = true;
        self.waiting.push(request)
    }

    fn post_request(&mut self, outlet: &Outlet<'_>, request: Request) -> Result<(), FabricError> {
        match request {
            Request::Control(message) => self.post_message(outlet, &message),
            Request::Bind(cell, key) => {
                let (number, signalled) = self.ledger.post(false, true);
                self.counts.sends_posted += 1;
                let mut keyed = cell.keyed();
                keyed.named_by = number;
                match &mut keyed.window {
                    Some(window) => posted(outlet.qp.post_bind(number, window, key, signalled)),
                    None => Err(FabricError::PeerGone),
                }
            }
            Request::Invalidate { cell, key, awaited } => {
                if cell.keyed().window.is_none() {
                    return Err(FabricError::PeerGone);
                }
                let (number, signalled) = if awaited {
                    (self.ledger.post_signalled(false), true)
                } else {
                    self.ledger.post(false, true)
                };
                self.counts.sends_posted += 1;
                cell.keyed().named_by = number;
                posted(outlet.qp.post_invalidate(number, key, signalled))?;
                if awaited {
                    self.closing.push_back((number, cell, key));
                }
                Ok(())
            }
        }
    }

    /// Sends the requests that wait, as far as there are places.
    fn send_waiting(&mut self, outlet: &Outlet<'_>) {
        while self.ledger.takes_control() {
            let Some(request) = self.waiting.pop() else {
                break;
            };
            let closing = match &request {
                Request::Invalidate { cell, key, .. } => Some((Arc::clone(cell), *key)),
                Request::Control(_) | Request::Bind(..) => None,
            };
            // The completions of a queue pair that takes no further requests tell the reason.
            if let (Err(_), Some((cell, key))) = (self.post_request(outlet, request), closing) {
                cell.settle(key, WindowState::Open);
            }
        }
        self.post_due_marker(outlet);
    }

    /// Whether requests wait for a place, or windows to be closed.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.closing.is_empty()
    }

    /// True if a completion would let requests, windows or a caller that waits for room go on.
    pub(crate) fn wants_event(&self) -> bool {
        self.starved || self.marker_due.is_some() || self.has_waiting()
    }

    /// True if all is sent, or the queue pair has failed.
    pub(crate) fn is_over(&mut self, outlet: &Outlet<'_>) -> bool {
        self.catch_up(outlet);
        self.failed.is_some() || (self.ledger.is_idle() && self.waiting.is_empty())
    }

    /// Takes completions of sends, then sends the requests that wait for their places. True: there were some.
    pub(crate) fn catch_up(&mut self, outlet: &Outlet<'_>) -> bool {
        let some = self.reap(outlet);
        self.send_waiting(outlet);
        some
    }

    /// Takes completions of sends. True: there were some.
    pub(crate) fn reap(&mut self, outlet: &Outlet<'_>) -> bool {
        let mut some = false;
        loop {
            let mut batch = [Completion::default(); BATCH];
            let Ok(taken) = outlet.queue.poll(&mut batch) else {
                return some;
            };
            for completion in &batch[..taken] {
                match completion.check() {
                    Ok(()) => {
                        self.is_answered |= completion.id() == self.asked;
                        self.ledger.complete(completion.id());
                        self.settle_windows(completion.id(), WindowState::Closed);
                    }
                    Err(failure) => {
                        // The first failure has the reason; requests that are flushed after it do not.
                        if self.failed.is_none_or(|(_, first)| first.is_flush()) {
                            self.failed = Some((completion.id(), failure));
                        }
                        self.settle_windows(u64::MAX, WindowState::Open);
                    }
                }
            }
            some |= taken > 0;
            self.counts.completions += taken as u64;
            if taken < BATCH {
                return some;
            }
        }
    }

    pub(crate) fn failure(&self) -> Option<Failure> {
        self.failed.map(|(_, failure)| failure)
    }

    /// The number of the request that was refused, if one was.
    pub(crate) fn refused(&self) -> Option<u64> {
        self.failed
            .filter(|(_, failure)| failure.is_of_request())
            .map(|(number, _)| number)
    }

    /// Sends a few bytes, inline if the device can.
    fn post_message(&mut self, outlet: &Outlet<'_>, message: &[u8]) -> Result<(), FabricError> {
        // Numbers count up by one, and at most as many requests are under way as there are slots.
        let posted = self.ledger.post(false, true);
        if message.len() <= outlet.qp.inline_bytes() {
            return self.post(outlet, posted, Operation::Send, Source::Inline(message));
        }
        let offset = fill_slot(outlet, posted.0, message);
        let sge = [outlet.slots.sge(offset, message.len())];
        self.post(outlet, posted, Operation::Send, Source::Region(&sge))
    }

    /// Posts a request that the ledger has given a number.
    fn post(
        &mut self,
        outlet: &Outlet<'_>,
        (number, signalled): (u64, bool),
        operation: Operation,
        source: Source<'_>,
    ) -> Result<(), FabricError> {
        self.counts.sends_posted += 1;
        posted(outlet.qp.post_send(number, operation, source, signalled))
    }
}

/// Copies a message to the slot of the request with this number. Returns the place.
fn fill_slot(outlet: &Outlet<'_>, number: u64, message: &[u8]) -> usize {
    let slot = (number % u64::from(outlet.entries)) as usize;
    let offset = outlet.slots_offset + slot * CONTROL_BYTES;
    outlet.slots.write(offset, message);
    offset
}

/// The key as devices have it. The queue pair refuses longer ones, and [`crate::refusal::parse_hello`] does for the
/// ring.
fn key_of(target: RemoteAddress) -> u32 {
    target.key as u32
}

fn posted(result: Result<(), VerbsError>) -> Result<(), FabricError> {
    result.map_err(|failed| match failed.errno() {
        // The queue pair has come to its end.
        libc::EINVAL | libc::ENOTCONN => FabricError::PeerGone,
        _ => failed_call(failed),
    })
}
