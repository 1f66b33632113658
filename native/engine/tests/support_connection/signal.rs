//! The user of a connection in tests: it keeps what it is told.

#![allow(dead_code, reason = "no test uses all of it")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use inet_rdma_assembly::{Gather, Received};
use inet_rdma_engine::connection::Closed;
use inet_rdma_engine::stream_socket::{Parcel, StreamNotifier};
use parking_lot::{Condvar, Mutex};

use crate::pair::BOUND;

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

/// Who can go on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wakes {
    pub reader: bool,
    pub writer: bool,
}

impl Wakes {
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

#[derive(Default)]
pub struct Signal {
    wakes: Mutex<Wakes>,
    changed: Condvar,
    pub events: Mutex<VecDeque<Event>>,
    is_key_due: AtomicBool,
}

impl Signal {
    /// The notifications since the last call.
    pub fn take(&self) -> Wakes {
        std::mem::take(&mut self.wakes.lock())
    }

    /// Whether the sending key was said to near its limit since the last call.
    pub fn take_key_due(&self) -> bool {
        self.is_key_due.swap(false, Ordering::Relaxed)
    }

    /// The next thing that was told.
    pub fn event(&self) -> Option<Event> {
        self.events.lock().pop_front()
    }

    pub fn wait(&self, who: impl Fn(&mut Wakes) -> &mut bool, what: &str) {
        let end = Instant::now() + BOUND;
        let mut wakes = self.wakes.lock();
        while !std::mem::take(who(&mut wakes)) {
            let late = self.changed.wait_until(&mut wakes, end).timed_out();
            assert!(!late, "nobody woke the {what}");
        }
    }

    fn wake(&self, wake: impl Fn(&mut Wakes)) {
        wake(&mut self.wakes.lock());
        self.changed.notify_all();
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
        self.wake(|wakes| wakes.reader = true);
    }

    fn writable(&self) {
        self.wake(|wakes| wakes.writer = true);
    }

    fn key_due(&self) {
        self.is_key_due.store(true, Ordering::Relaxed);
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
