//! All that is counted of one direction of a link.

use std::time::Duration;

use crate::counts::{Count, Counts};
use crate::key::Key;
use crate::off::Off;
use crate::operation::Operation;
use crate::reader::{Envelope, Reader};
use crate::sampler::Sampler;
use crate::sketch::Sketch;

/// The mean age of the bytes that [`Direction::recent`] counts at a constant rate: a byte counts as `exp(-age /
/// RECENT)`.
pub const RECENT: Duration = Duration::from_secs(10);

/// Each message of an operation whose number has none of these bits asks for the time. Packets that are samples do in
/// any case; so this is for a load that has become small.
const CLOCK: u64 = 63;

/// The reader of one direction, its counts and its sketches. 16 KiB at most, so that both directions of a link take
/// 32 KiB; nothing else is allocated.
pub struct Direction {
    sampler: Sampler,
    counts: Counts,
    reader: Reader,
    /// Further fragments of messages.
    fragments: u64,
    /// The decayed bytes of all packets as far as [`Sampler::counted`].
    recent_total: f64,
    recent: Sketch,
    all: Sketch,
}

impl Default for Direction {
    fn default() -> Self {
        Self::new()
    }
}

impl Direction {
    /// That of a link that is about to come up.
    pub fn new() -> Self {
        Direction {
            sampler: Sampler::new(),
            counts: Counts::default(),
            reader: Reader::new(),
            fragments: 0,
            recent_total: 0.0,
            recent: Sketch::new(),
            all: Sketch::new(),
        }
    }

    /// Counts the next packet: see [`Reader::packet`]. `clock`: the time since any fixed moment; asked for a part of
    /// the packets. Some: the reader has switched itself off with this packet, for the caller to log; once.
    #[inline]
    pub fn packet<'a, I>(&mut self, pieces: I, bytes: usize, clock: impl FnOnce() -> Duration) -> Option<Off>
    where
        I: IntoIterator<Item = &'a [u8], IntoIter: Clone>,
    {
        let pieces = pieces.into_iter();
        let passes = self.sampler.passes(bytes);
        let operation = match passes {
            true => Reader::operation(pieces.clone()),
            false => None,
        };
        if let Some(operation) = operation {
            if self.counts.add(operation, true, bytes) & CLOCK == 0 {
                self.handle_time(clock());
            }
            return None;
        }
        self.read(pieces, bytes, !passes, clock)
    }

    #[inline(never)]
    fn read<'a>(
        &mut self,
        pieces: impl Iterator<Item = &'a [u8]>,
        bytes: usize,
        is_sample: bool,
        clock: impl FnOnce() -> Duration,
    ) -> Option<Off> {
        let (envelope, off) = match self.reader.packet(pieces, bytes) {
            Ok(envelope) => (envelope, None),
            Err(off) => {
                // No packet passes unread.
                self.sampler.take_all();
                let envelope = Envelope {
                    key: Key::OTHER,
                    bytes,
                    begins_message: true,
                };
                (envelope, Some(off))
            }
        };
        let key = envelope.key;
        self.fragments += u64::from(!envelope.begins_message);
        self.counts.add(key.operation, envelope.begins_message, bytes);
        if is_sample && self.reader.off().is_none() {
            let sample = self.sampler.take(bytes);
            if key.operation != Operation::Tick {
                self.recent.add(&key, sample);
                self.all.add(&key, sample);
            }
            self.handle_time(clock());
        }
        off
    }

    /// The time, by the clock of [`Self::packet`]. Called before [`Self::recent`] is read.
    pub fn handle_time(&mut self, now: Duration) {
        if !self.sampler.is_due(now) {
            return;
        }
        let total = self.recent_total();
        if let Some(elapsed) = self.sampler.handle_time(now, self.packets()) {
            let factor = (-elapsed.as_secs_f64() / RECENT.as_secs_f64()).exp();
            self.recent_total = total * factor;
            self.recent.decay(factor);
        }
    }

    /// All packets so far, without ticks: each fragment is one.
    fn packets(&self) -> Count {
        let total = self.counts.total();
        Count {
            messages: total.messages + self.fragments,
            ..total
        }
    }

    /// The counts by operation since nodeup: all packets.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The bytes of all packets of late, without ticks. Divided by [`RECENT`] these are bytes per second.
    pub fn recent_total(&self) -> f64 {
        self.recent_total + (self.packets().bytes - self.sampler.counted().bytes) as f64
    }

    /// The heaviest keys of late.
    pub fn recent(&self) -> &Sketch {
        &self.recent
    }

    /// The heaviest keys since nodeup.
    pub fn all(&self) -> &Sketch {
        &self.all
    }

    /// The reader, which knows the texts of names.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }
}
