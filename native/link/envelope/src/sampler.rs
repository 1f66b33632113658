//! Which packets are looked at for their sender and target.
//!
//! The bytes of small packets form a line, which is cut into strata of [`Sampler::interval`] bytes. In each stratum one
//! byte is drawn at random, and the packet that it lies in is taken, with the weight of the stratum. A packet of at
//! least the interval is not on the line: it is taken with its own bytes.
//!
//! # Bounds
//! For each set of packets the sum of the weights is an unbiased estimate of its bytes, whatever the order of the
//! packets, as each byte of the line is drawn with the probability 1 / interval; strata are independent, so its
//! variance is at most interval * bytes. This is stratified sampling (Cochran, "Sampling Techniques", chapter 5) with
//! the threshold of Duffield, Lund and Thorup, "Learn More, Sample Less: Control of Volume and Variance in Network
//! Measurement" (IEEE Transactions on Information Theory 51, 2005).
//!
//! The interval adapts to the traffic, so that [`SAMPLES`] a second are taken at most. A link of fewer packets than
//! that has an interval of 0: all are taken, and nothing is estimated. Each change of the interval cuts a stratum,
//! which adds an error of one interval at most.

use std::time::Duration;

use crate::counts::Count;

/// Number of packets that are taken in a second at a steady rate, at most; at least half of it, if there are as many.
/// So the deviation of a share of the last [`RECENT`](crate::RECENT) is 1 % at most: of `n` samples a second in `s`
/// seconds it is `1 / sqrt(2 n s)`, as bytes decay.
pub const SAMPLES: u64 = 1024;
/// The interval changes after this time.
const STEP: Duration = Duration::from_secs(1);

/// The bytes for which a packet stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Bytes.
    pub bytes: f64,
    /// Estimates the variance that this adds to a sum.
    pub variance: f64,
}

impl Sample {
    /// A packet that stands for itself alone.
    pub fn exact(bytes: usize) -> Sample {
        Sample {
            // Exact below 2^53 bytes.
            bytes: bytes as f64,
            variance: 0.0,
        }
    }
}

/// Takes packets of one direction of a link.
///
/// The fields that each packet needs come first, on one line of the processor's cache.
#[repr(C, align(64))]
pub struct Sampler {
    /// Size of a stratum in bytes, 0 or a power of 2.
    interval: usize,
    /// Bytes of the line before the next byte that is drawn, and that byte.
    left: isize,
    /// Bytes of the stratum after that byte.
    rest: usize,
    random: u64,
    takes_all: bool,
    /// When this step has begun; None before the first packet.
    begun: Option<Duration>,
    /// What was counted by then.
    counted: Count,
    /// Packets taken since then, or since the interval has grown.
    taken: u64,
}

impl Sampler {
    pub fn new() -> Self {
        Sampler {
            interval: 0,
            left: 0,
            rest: 0,
            // Any number but 0.
            random: 0x9E37_79B9_7F4A_7C15,
            takes_all: false,
            begun: None,
            counted: Count::default(),
            taken: 0,
        }
    }

    /// The next packet. False: it is taken, so [`Self::take`] comes next.
    #[inline]
    pub fn passes(&mut self, bytes: usize) -> bool {
        if bytes >= self.interval {
            return false;
        }
        // Less than an interval.
        self.left -= bytes as isize;
        self.left > 0
    }

    /// What the packet stands for.
    pub fn take(&mut self, bytes: usize) -> Sample {
        self.taken += 1;
        if bytes >= self.interval {
            return Sample::exact(bytes);
        }
        let interval = self.interval as f64;
        let mut sample = Sample::exact(0);
        while self.left <= 0 {
            sample.bytes += interval;
            sample.variance += interval * interval;
            self.left += self.rest as isize;
            self.draw();
        }
        sample
    }

    /// Takes each packet from now on.
    pub fn take_all(&mut self) {
        self.set_interval(0);
        self.takes_all = true;
    }

    /// Draws the byte of the next stratum.
    fn draw(&mut self) {
        // Xorshift of Marsaglia, "Xorshift RNGs" (2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let before = (self.random >> 16) as usize & self.interval.saturating_sub(1);
        self.left += before as isize + 1;
        self.rest = self.interval.saturating_sub(before + 1);
    }

    /// What was counted when this step began.
    pub fn counted(&self) -> Count {
        self.counted
    }

    /// True if [`Self::handle_time`] has something to do.
    pub fn is_due(&mut self, now: Duration) -> bool {
        self.elapsed(now) >= STEP || self.taken >= SAMPLES
    }

    fn elapsed(&mut self, now: Duration) -> Duration {
        now.saturating_sub(*self.begun.get_or_insert(now))
    }

    /// The time, and the packets with their bytes so far. Some: this step, of the given time, is over.
    pub fn handle_time(&mut self, now: Duration, counted: Count) -> Option<Duration> {
        let elapsed = self.elapsed(now);
        let packets = counted.messages - self.counted.messages;
        let bytes = counted.bytes - self.counted.bytes;
        if elapsed < STEP {
            self.set_interval((self.interval * 2).max((bytes / SAMPLES) as usize));
            return None;
        }
        let samples = SAMPLES as f64 * elapsed.as_secs_f64();
        self.set_interval(if packets as f64 <= samples {
            0
        } else {
            (bytes as f64 / samples) as usize
        });
        (self.begun, self.counted) = (Some(now), counted);
        Some(elapsed)
    }

    fn set_interval(&mut self, at_least: usize) {
        self.taken = 0;
        let interval = match at_least {
            _ if self.takes_all => 0,
            0 => 0,
            _ => at_least.checked_next_power_of_two().unwrap_or(self.interval),
        };
        if interval != self.interval {
            self.interval = interval;
            self.left = 0;
            self.draw();
        }
    }
}
