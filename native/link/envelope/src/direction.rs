//! All that is counted of one direction of a link.

use std::time::Duration;

use crate::counts::Counts;
use crate::key::Key;
use crate::off::Off;
use crate::operation::Operation;
use crate::reader::{Envelope, Reader};
use crate::sketch::Sketch;

/// The mean age of the bytes that [`Direction::recent`] counts at a constant rate: a byte counts as `exp(-age /
/// RECENT)`.
pub const RECENT: Duration = Duration::from_secs(10);

/// The reader of one direction, its counts and its sketches. 16 KiB at most, so that both directions of a link take
/// 32 KiB; nothing else is allocated.
#[derive(Default)]
pub struct Direction {
    reader: Reader,
    counts: Counts,
    recent: Sketch,
    all: Sketch,
}

impl Direction {
    /// That of a link that is about to come up.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts the next packet: see [`Reader::packet`]. Some: the reader has switched itself off with this packet, for
    /// the caller to log; once.
    #[inline]
    pub fn packet<'a>(&mut self, pieces: impl IntoIterator<Item = &'a [u8]>, bytes: usize) -> Option<Off> {
        let (envelope, off) = match self.reader.packet(pieces, bytes) {
            Ok(envelope) => (envelope, None),
            Err(off) => {
                let envelope = Envelope {
                    key: Key::OTHER,
                    bytes,
                    begins_message: true,
                };
                (envelope, Some(off))
            }
        };
        self.count(&envelope);
        off
    }

    #[inline]
    fn count(&mut self, envelope: &Envelope) {
        let Envelope {
            key,
            bytes,
            begins_message,
        } = envelope;
        self.counts.add(key.operation, *begins_message, *bytes);
        if key.operation != Operation::Tick {
            self.recent.add(key, *bytes);
            self.all.add(key, *bytes);
        }
    }

    /// This time has passed since the last call. Called about once a second while there are packets, and before
    /// [`Self::recent`] is read.
    pub fn handle_elapsed(&mut self, elapsed: Duration) {
        self.recent.decay((-elapsed.as_secs_f64() / RECENT.as_secs_f64()).exp());
    }

    /// The counts by operation since nodeup.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The heaviest keys of late. Its bytes divided by [`RECENT`] are bytes per second.
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
