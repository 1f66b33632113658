//! Completions of the receive queue.

use inet_rdma_fabric::Completion;
use inet_rdma_stream::{Arrival, CONTROL_BYTES, ControlEvent, Notice, ReceiveId, Violation};

use crate::connection::closed::Closed;
use crate::connection::state::{Connection, Core, End, POLL_BATCH};
use crate::prefetch::prefetch;

/// Maximum number of completions handled under one lock: a flooding peer must not hold up the reader.
const PROGRESS_MAX: usize = 512;

/// Maximum size of a transfer that is prefetched: about as many lines as a core loads at a time.
const PREFETCHED_BYTES: usize = 16 * LINE_BYTES;
const LINE_BYTES: usize = 64;

/// Prefetches the lines of a small transfer after the second one: few packets of an rpc have more.
#[inline(never)]
fn prefetch_more(first: *const u8, bytes: usize) {
    for at in (2 * LINE_BYTES..bytes).step_by(LINE_BYTES) {
        prefetch(first.wrapping_add(at));
    }
}

#[cold]
fn boxed(error: impl Into<Closed>) -> Box<Closed> {
    Box::new(error.into())
}

#[cold]
fn misbehaved(error: Violation) -> Box<Closed> {
    Box::new(Closed::PeerMisbehaved(error.into()))
}

impl Connection {
    /// Prefetches a small transfer that finds the ring empty: its lines arrive by the time of the copy. If unread bytes
    /// come before it, the copy comes later, and the lines better stay with the peer's processor, which still writes to
    /// them.
    #[inline]
    fn prefetch(&self, core: &Core, notice: Notice) {
        let bytes = notice.bytes as usize;
        if notice.direct || bytes > PREFETCHED_BYTES || core.stream.ring_bytes_readable() > 0 {
            return;
        }
        let offset = core.stream.ring_writable().offset as usize;
        let first = core.ring.base(false).wrapping_add(offset);
        prefetch(first);
        if bytes > LINE_BYTES {
            prefetch(first.wrapping_add(LINE_BYTES));
        }
        if bytes > 2 * LINE_BYTES {
            prefetch_more(first, bytes);
        }
    }

    /// Takes the arrived completions. Err: the connection must end; boxed, so that it is returned in a register.
    pub(crate) fn take_completions(&self, core: &mut Core) -> Result<(), Box<Closed>> {
        for _ in 0..PROGRESS_MAX / POLL_BATCH {
            let taken = self.qp.poll(&mut core.batch).map_err(boxed)?;
            core.arrivals += taken as u64;
            for at in 0..taken {
                match core.batch[at] {
                    Completion::Notice(notice) => self.handle_notice(core, notice)?,
                    Completion::Control(message) => self.handle_control(core, &message)?,
                }
            }
            if taken < POLL_BATCH {
                break;
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn handle_notice(&self, core: &mut Core, notice: Notice) -> Result<(), Box<Closed>> {
        self.prefetch(core, notice);
        match core.stream.handle_notice(notice).map_err(misbehaved)? {
            // The peer has written into the ring, or sent a mark: it can no longer fill earlier buffers.
            Arrival::Ring { .. } => {
                core.withdraw();
                if core.ring.is_elastic {
                    self.note_ring_arrival(core);
                }
            }
            Arrival::Mark { ring } => self.handle_mark(core, ring),
            Arrival::Direct {
                id: ReceiveId(index),
                offset,
                bytes,
                done,
            } => {
                core.landing
                    .landings
                    .arrive(index as usize, offset as usize, bytes as usize, done);
                if core.stream.is_end() {
                    core.withdraw();
                }
            }
        }
        Ok(())
    }

    #[cold]
    fn handle_mark(&self, core: &mut Core, takes_ring: bool) {
        core.withdraw();
        if takes_ring {
            core.ring.replaced();
            self.release_ring(core);
        }
    }

    #[inline(never)]
    fn handle_control(&self, core: &mut Core, message: &[u8; CONTROL_BYTES]) -> Result<(), Box<Closed>> {
        let mut opened;
        let message = match &mut core.records {
            None => message,
            Some(records) => {
                opened = *message;
                records.control_opener.open(&mut opened).map_err(boxed)?;
                &opened
            }
        };
        match core.stream.handle_control(message).map_err(misbehaved)? {
            ControlEvent::Nothing => return Ok(()),
            ControlEvent::Writable => {}
            ControlEvent::Ticked => {
                self.tally.packets_received.add(core, 1);
            }
            ControlEvent::Finished => {
                core.end = End::PeerFinished;
                if core.stream.is_end() {
                    core.withdraw();
                }
            }
        }
        // Any of these messages may have brought the credit that the writer waits for, and no other message need
        // follow.
        core.wake_writer();
        Ok(())
    }
}
