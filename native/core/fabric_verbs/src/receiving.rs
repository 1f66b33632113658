//! The receiving half of a queue pair.

use std::collections::VecDeque;

use inet_rdma_fabric::{Completion, Counts, FabricError, Misbehaviour};
use inet_rdma_stream::{CONTROL_BYTES, Notice};
use inet_rdma_verbs::cq::{self, CompletionQueue};
use inet_rdma_verbs::memory::MemoryRegion;
use inet_rdma_verbs::qp::{QueuePair, RECEIVES_MAX};

use crate::refusal::failed_call;
use crate::trial_report::Arrival;

/// Bytes of a notice that comes by a send, as iWARP wants it.
const NOTICE_BYTES: usize = 4;

/// Completions that are taken and not handed on, and the fault if there is one.
#[derive(Default)]
pub(crate) struct ReceiveQueue {
    taken: VecDeque<Completion>,
    fault: Option<Fault>,
    /// The reason why receives could not be posted again. It is the fault once all that has arrived is taken.
    refused: Option<Fault>,
    pub(crate) counts: Counts,
}

/// The reason why no further completions come.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// The queue pair has come to its end; [`crate::connection::Connection`] knows the reason. None: it takes no
    /// further receives.
    Ended(Option<cq::Failure>),
    Misbehaved(Misbehaviour),
    Unreadable(FabricError),
}

pub(crate) struct Inlet<'a> {
    pub(crate) qp: &'a QueuePair,
    pub(crate) queue: &'a CompletionQueue,
    /// One slot for each receive.
    pub(crate) slots: &'a MemoryRegion,
    pub(crate) receives: u32,
}

impl ReceiveQueue {
    pub(crate) fn begin(inlet: &Inlet<'_>) -> Result<(), FabricError> {
        for first in (0..inlet.receives).step_by(RECEIVES_MAX) {
            let end = inlet.receives.min(first + RECEIVES_MAX as u32);
            let receives = (first..end).map(|slot| (u64::from(slot), slot as usize * CONTROL_BYTES));
            let posted = inlet.qp.post_receives(inlet.slots, CONTROL_BYTES, receives);
            posted.map_err(failed_call)?;
        }
        Ok(())
    }

    /// Takes the next message of the self-test. Its receive is not posted again.
    pub(crate) fn take_arrival(&mut self, inlet: &Inlet<'_>) -> Result<Option<Arrival>, Fault> {
        let unreadable = |failed| Fault::Unreadable(failed_call(failed));
        let mut one = [cq::Completion::default()];
        if inlet.queue.poll(&mut one).map_err(unreadable)? == 0 {
            return Ok(None);
        }
        let [completion] = one;
        completion.check().map_err(ended)?;
        if let Some(word) = completion.written() {
            return Ok(Some(Arrival::Word(word)));
        }
        Ok(Some(match message(inlet, &completion) {
            Message::Control(message) => Arrival::Message(message),
            Message::Notice(word) => Arrival::Word(word),
            Message::Other(bytes) => Arrival::Other(bytes),
        }))
    }

    /// Hands on completions; their receives are posted again.
    pub(crate) fn poll(&mut self, inlet: &Inlet<'_>, out: &mut [Completion]) -> Result<usize, Fault> {
        let mut count = 0;
        loop {
            while count < out.len() {
                let Some(next) = self.taken.pop_front() else {
                    break;
                };
                out[count] = next;
                count += 1;
            }
            if count == out.len() || self.fault.is_some() || self.take(inlet) == 0 {
                break;
            }
        }
        match &self.fault {
            Some(fault) if count == 0 && !out.is_empty() => Err(fault.clone()),
            _ => Ok(count),
        }
    }

    /// Asks for an event at the next completion. False: there is something already.
    pub(crate) fn arm(&mut self, inlet: &Inlet<'_>) -> bool {
        if !self.taken.is_empty() || self.fault.is_some() {
            return false;
        }
        self.counts.events_armed += 1;
        if let Err(failed) = inlet.queue.request_event() {
            self.fault = Some(Fault::Unreadable(failed_call(failed)));
            return false;
        }
        self.take(inlet);
        self.taken.is_empty() && self.fault.is_none()
    }

    /// Takes completions. Returns their number.
    fn take(&mut self, inlet: &Inlet<'_>) -> usize {
        let mut batch = [cq::Completion::default(); RECEIVES_MAX];
        let taken = match inlet.queue.poll(&mut batch) {
            Ok(taken) => taken,
            Err(failed) => {
                self.fault = Some(Fault::Unreadable(failed_call(failed)));
                return 0;
            }
        };
        if taken == 0 {
            self.fault = self.refused.take();
            return 0;
        }
        self.counts.completions += taken as u64;
        let mut good = 0;
        for completion in &batch[..taken] {
            match understand(inlet, completion) {
                Ok(understood) => self.taken.push_back(understood),
                Err(fault) => {
                    self.fault = Some(fault);
                    break;
                }
            }
            good += 1;
        }
        if good > 0 && self.refused.is_none() {
            self.counts.post_recv_calls += 1;
            let again = batch[..good].iter();
            let again = again.map(|completion| (completion.id(), completion.id() as usize * CONTROL_BYTES));
            let posted = inlet.qp.post_receives(inlet.slots, CONTROL_BYTES, again);
            self.refused = posted.err().map(|failed| match failed.errno() {
                // The queue pair has come to its end. Some providers take no receives then.
                libc::EINVAL | libc::ENOTCONN => Fault::Ended(None),
                _ => Fault::Unreadable(failed_call(failed)),
            });
        }
        taken
    }
}

fn ended(failure: cq::Failure) -> Fault {
    Fault::Ended(Some(failure))
}

fn understand(inlet: &Inlet<'_>, completion: &cq::Completion) -> Result<Completion, Fault> {
    completion.check().map_err(ended)?;
    let notice = |word| {
        Notice::parse(word)
            .map(Completion::Notice)
            .map_err(|error| Fault::Misbehaved(error.into()))
    };
    if let Some(word) = completion.written() {
        return notice(word);
    }
    match message(inlet, completion) {
        Message::Control(message) => Ok(Completion::Control(message)),
        Message::Notice(word) => notice(word),
        Message::Other(bytes) => Err(Fault::Misbehaved(Misbehaviour::MessageBytes(bytes))),
    }
}

/// What a send of the peer has brought; its length says which.
enum Message {
    Control([u8; CONTROL_BYTES]),
    Notice(u32),
    Other(usize),
}

fn message(inlet: &Inlet<'_>, completion: &cq::Completion) -> Message {
    let offset = completion.id() as usize * CONTROL_BYTES;
    match completion.bytes() {
        CONTROL_BYTES => {
            let mut message = [0; CONTROL_BYTES];
            inlet.slots.read(offset, &mut message);
            Message::Control(message)
        }
        NOTICE_BYTES => {
            let mut word = [0; NOTICE_BYTES];
            inlet.slots.read(offset, &mut word);
            Message::Notice(u32::from_be_bytes(word))
        }
        bytes => Message::Other(bytes),
    }
}
