//! The client sends as fast as it can, the server consumes.
//!
//! A sender keeps `sends` messages on offer, each in memory of its own. When the polling thread has taken all bytes of
//! a message, the sender uses that memory for the next one. Two empty messages mark the begin and the end of the
//! measured time; both sides count the messages between them.

use std::time::{Duration, Instant};

use inet_rdma_assembly::Gather;

use crate::failure::Failure;
use crate::gauge::{Gauge, Seen};
use crate::link::Link;
use crate::message::{Message, Pattern};
use crate::order::{LENGTH_BYTES, Order};

/// Sends until the time is over.
pub fn send(link: &mut Link, order: &Order) -> Result<Seen, Failure> {
    let mut sender = Sender::new(order);
    sender.send_for(link, order.warmup)?;
    let first = Gauge::read(link, sender.first);
    mark(link)?;
    sender.send_for(link, order.seconds)?;
    mark(link)?;
    let last = Gauge::read(link, sender.first);
    Ok(first.sent(&last, link))
}

/// Consumes until the second mark: looks at each message's words, then gives its buffer back.
pub fn receive(link: &mut Link, order: &Order) -> Result<Seen, Failure> {
    let pattern = pattern(order);
    let mut next_bytes = order.message_bytes(0);
    let mut received = Vec::new();
    let mut next = 0;
    let (mut first, mut last) = (None, None);
    while last.is_none() {
        link.read(&mut received)?;
        for received in received.drain(..) {
            Message::each(&received, |message| {
                if message.len() > 0 {
                    pattern.check(message, next, next_bytes)?;
                    next += 1;
                    next_bytes = order.message_bytes(next);
                } else if first.is_none() {
                    first = Some(Gauge::read(link, next));
                } else {
                    last = Some(Gauge::read(link, next));
                }
                Ok(())
            })?;
        }
    }
    match (first, last) {
        (Some(first), Some(last)) => Ok(first.received(&last, link)),
        _ => Err(Failure::Differs("the marks are missing".into())),
    }
}

/// An empty message.
pub fn mark(link: &mut Link) -> Result<(), Failure> {
    let mut gather = Gather::with_capacity(1, 1);
    gather.push(&[0; LENGTH_BYTES]);
    gather.end_packet();
    link.write(&gather)
}

fn pattern(order: &Order) -> Pattern {
    Pattern {
        stride: order.stride as usize,
        still: false,
    }
}

/// The messages on offer.
struct Sender<'a> {
    order: &'a Order,
    pattern: Pattern,
    /// Memory of the messages: message n lies in buffer n modulo the number of buffers.
    slots: Vec<Vec<u8>>,
    /// Number of the oldest message on offer.
    first: u64,
    /// Number of the next message.
    next: u64,
    /// Bytes of the oldest message that are sent.
    at: usize,
}

impl<'a> Sender<'a> {
    fn new(order: &'a Order) -> Self {
        Self {
            order,
            pattern: pattern(order),
            slots: vec![vec![0; order.size as usize]; order.sends as usize],
            first: 0,
            next: 0,
            at: 0,
        }
    }

    /// Offers messages for this time, then sends the rest of those on offer.
    fn send_for(&mut self, link: &mut Link, seconds: f64) -> Result<(), Failure> {
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        while Instant::now() < end {
            self.top_up();
            self.send_some(link)?;
        }
        while self.first < self.next {
            self.send_some(link)?;
        }
        Ok(())
    }

    fn top_up(&mut self) {
        while self.next < self.first + self.slots.len() as u64 {
            let (slot, bytes) = (self.slot(self.next), self.order.message_bytes(self.next));
            self.pattern.stamp(&mut self.slots[slot][..bytes], self.next);
            self.next += 1;
        }
    }

    fn send_some(&mut self, link: &mut Link) -> Result<(), Failure> {
        let on_offer = (self.next - self.first) as usize;
        let lengths: Vec<_> = (self.first..self.next)
            .map(|number| (self.order.message_bytes(number) as u32).to_be_bytes())
            .collect();
        let mut gather = Gather::with_capacity(2 * on_offer, on_offer);
        for (number, length) in (self.first..self.next).zip(&lengths) {
            gather.push(length);
            gather.push(&self.slots[self.slot(number)][..u32::from_be_bytes(*length) as usize]);
            gather.end_packet();
        }
        let at = link.write_some(&gather, self.at)?;
        let done = gather.packets_before(at);
        self.first += done as u64;
        self.at = at - if done == 0 { 0 } else { gather.ends()[done - 1] };
        Ok(())
    }

    fn slot(&self, number: u64) -> usize {
        (number % self.slots.len() as u64) as usize
    }
}
