//! The user of a stream socket in tests: it keeps what it is told.

#![allow(dead_code, reason = "no test uses all of it")]

#[path = "../../../../core/engine/tests/support/signal.rs"]
mod wakes;

use std::collections::VecDeque;
use std::ops::Deref;

use inet_rdma_assembly::{Gather, Received};
use inet_rdma_engine::connection::{Caller, Closed, Notifier, Woken};
use inet_rdma_socket::stream_socket::{Parcel, StreamNotifier};
use parking_lot::Mutex;

/// Names an operation by a number; of a send it holds the bytes, in slices of a few bytes each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ticket {
    pub number: u64,
    pub bytes: Vec<u8>,
    /// No byte before this one may be asked for.
    from: usize,
}

/// Bytes of a slice of a ticket.
const SLICE_BYTES: usize = 1000;

impl Ticket {
    pub fn of(number: u64) -> Self {
        Self::send(number, Vec::new())
    }

    pub fn send(number: u64, bytes: Vec<u8>) -> Self {
        Self { number, bytes, from: 0 }
    }
}

impl Parcel for Ticket {
    fn bytes(&self) -> usize {
        self.bytes.len()
    }

    fn gather<'a>(&'a self, from: usize, gather: &mut Gather<'a>, max: usize) {
        assert!(from >= self.from, "these bytes were given up");
        for slice in self.bytes[from..].chunks(SLICE_BYTES) {
            if gather.total() >= max {
                return;
            }
            gather.push(slice);
        }
    }

    fn advance(&mut self, to: usize) {
        assert!(to >= self.from);
        self.from = to;
    }
}

/// What has been told beside wakes, in order.
pub enum Event {
    Sent(u64, Result<usize, Closed>),
    Received(u64, Result<Received<Vec<u8>>, Closed>),
    Message(u64, Received<Vec<u8>>),
    Passive(u64),
    Ended(u64, Closed),
}

#[derive(Default)]
pub struct Signal {
    wakes: wakes::Signal,
    pub events: Mutex<VecDeque<Event>>,
}

impl Deref for Signal {
    type Target = wakes::Signal;

    fn deref(&self) -> &wakes::Signal {
        &self.wakes
    }
}

impl Signal {
    /// The next thing that was told.
    pub fn event(&self) -> Option<Event> {
        self.events.lock().pop_front()
    }

    fn wake(&self, woken: Woken) {
        self.wakes.wake(woken, Caller::User);
    }

    fn keep(&self, event: Event) {
        self.events.lock().push_back(event);
    }
}

impl StreamNotifier for Signal {
    type Buffer = Vec<u8>;
    type Token = Ticket;
    type Writer = u32;

    fn readable(&self) {
        self.wake(Woken::READER);
    }

    fn writable(&self) {
        self.wake(Woken::WRITER);
    }

    fn sent(&self, token: Ticket, result: Result<usize, Closed>) {
        self.keep(Event::Sent(token.number, result));
    }

    fn received(&self, token: Ticket, result: Result<Received<Vec<u8>>, Closed>) {
        self.keep(Event::Received(token.number, result));
    }

    fn message(&self, token: &Ticket, received: Received<Vec<u8>>) {
        self.keep(Event::Message(token.number, received));
    }

    fn passive(&self, token: &Ticket) {
        self.keep(Event::Passive(token.number));
    }

    fn ended(&self, token: &Ticket, closed: &Closed) {
        self.keep(Event::Ended(token.number, closed.clone()));
    }
}
