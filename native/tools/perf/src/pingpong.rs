//! One message goes to and fro; the client keeps the times.

use std::time::{Duration, Instant};

use inet_rdma_assembly::{Gather, Received};
use serde::{Deserialize, Serialize};

use crate::blast::mark;
use crate::buffer::Recycled;
use crate::failure::Failure;
use crate::gauge::{Gauge, Seen};
use crate::link::Link;
use crate::message::{Message, Pattern};
use crate::order::{LENGTH_BYTES, Order};

/// Maximum number of round trips: the measurement ends there.
const TIMES_MAX: usize = 1 << 24;

/// Half of the time of a round trip, in microseconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Latency {
    pub count: usize,
    pub min_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub mean_us: f64,
}

/// Plays the first part: sends, and waits for the answer.
pub fn lead(link: &mut Link, order: &Order) -> Result<(Seen, Latency), Failure> {
    let mut ball = Ball::new(order);
    ball.rally(link, order.warmup)?;
    ball.times.clear();
    ball.mark(link)?;
    let first = Gauge::read(link, ball.next);
    ball.rally(link, order.seconds)?;
    let last = Gauge::read(link, ball.next);
    ball.mark(link)?;
    let latency = latency(&mut ball.times).ok_or_else(|| Failure::Differs("there was no round trip".into()))?;
    Ok((first.sent(&last, link), latency))
}

/// Plays the second part: answers.
pub fn follow(link: &mut Link, order: &Order) -> Result<Seen, Failure> {
    let mut ball = Ball::new(order);
    let mut first = None;
    loop {
        if !ball.take(link)? {
            let gauge = Gauge::read(link, ball.next);
            mark(link)?;
            match first.take() {
                None => first = Some(gauge),
                Some(first) => return Ok(Gauge::received(&first, &gauge, link)),
            }
            continue;
        }
        ball.give(link)?;
        ball.next += 1;
    }
}

struct Ball {
    pattern: Pattern,
    length: [u8; LENGTH_BYTES],
    message: Vec<u8>,
    received: Vec<Received<Recycled>>,
    /// Number of the message that goes to and fro now.
    next: u64,
    /// Nanoseconds of round trips.
    times: Vec<u32>,
}

impl Ball {
    fn new(order: &Order) -> Self {
        Self {
            pattern: Pattern {
                stride: order.stride as usize,
                // Writing all words each time would count as round-trip time.
                still: true,
            },
            length: order.size.to_be_bytes(),
            message: vec![0; order.size as usize],
            received: Vec::new(),
            next: 0,
            times: Vec::new(),
        }
    }

    fn rally(&mut self, link: &mut Link, seconds: f64) -> Result<(), Failure> {
        let mut before = Instant::now();
        let end = before + Duration::from_secs_f64(seconds);
        while before < end && self.times.len() < TIMES_MAX {
            self.give(link)?;
            if !self.take(link)? {
                return Err(Failure::Differs(format!("message {} came back empty", self.next)));
            }
            self.next += 1;
            let now = Instant::now();
            self.times
                .push(u32::try_from((now - before).as_nanos()).unwrap_or(u32::MAX));
            before = now;
        }
        Ok(())
    }

    /// Sends the message with its number.
    fn give(&mut self, link: &mut Link) -> Result<(), Failure> {
        self.pattern.stamp(&mut self.message, self.next);
        let mut gather = Gather::with_capacity(2, 1);
        gather.push(&self.length);
        gather.push(&self.message);
        gather.end_packet();
        link.write(&gather)
    }

    /// Receives one message. False: it is a mark.
    fn take(&mut self, link: &mut Link) -> Result<bool, Failure> {
        link.read(&mut self.received)?;
        let (mut messages, mut marks) = (0, 0);
        for received in self.received.drain(..) {
            Message::each(&received, |message| {
                if message.len() == 0 {
                    marks += 1;
                    return Ok(());
                }
                messages += 1;
                self.pattern.check(message, self.next, self.message.len())
            })?;
        }
        match (messages, marks) {
            (1, 0) => Ok(true),
            (0, 1) => Ok(false),
            _ => Err(Failure::Differs(format!(
                "{messages} messages and {marks} marks at a time"
            ))),
        }
    }

    /// Sends an empty message there and back.
    fn mark(&mut self, link: &mut Link) -> Result<(), Failure> {
        mark(link)?;
        if self.take(link)? {
            return Err(Failure::Differs("a mark came back as a message".into()));
        }
        Ok(())
    }
}

/// None: nothing was timed.
fn latency(times: &mut [u32]) -> Option<Latency> {
    times.sort_unstable();
    let half_us = |nanos: u32| f64::from(nanos) / 2e3;
    let rank = |percent: usize| times.get((times.len() * percent).div_ceil(100).max(1) - 1).copied();
    let sum: u64 = times.iter().map(|&time| u64::from(time)).sum();
    Some(Latency {
        count: times.len(),
        min_us: half_us(*times.first()?),
        p50_us: half_us(rank(50)?),
        p99_us: half_us(rank(99)?),
        mean_us: sum as f64 / 2e3 / times.len() as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::latency;

    #[test]
    fn percentiles_are_nearest_ranks_of_half_round_trips() {
        let mut times = (1..=200).rev().map(|time| time * 2_000).collect::<Vec<u32>>();
        let found = latency(&mut times).expect("times");
        assert_eq!(
            (found.count, found.min_us, found.p50_us, found.p99_us, found.mean_us),
            (200, 1.0, 100.0, 198.0, 100.5)
        );
        assert!(latency(&mut []).is_none());
    }
}
