//! The heaviest keys of a stream of bytes, in a fixed room.
//!
//! The algorithm Space-Saving of Metwally, Agrawal and El Abbadi, "Efficient Computation of Frequent and Top-k Elements
//! in Data Streams" (ICDT 2005), with the weights of samples. A key that has no entry takes the lightest one over, with
//! its weight; that weight is the new entry's error.

use crate::key::Key;
use crate::sampler::Sample;

/// Number of standard deviations by which samples may be wrong: 95 % of a normal distribution is within them.
const DEVIATIONS: f64 = 2.0;

/// A key with its bytes: surely between both if each packet was a sample of its own bytes, otherwise with a probability
/// of about 95 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: Key,
    /// Its bytes, at least.
    pub at_least: f64,
    /// Its bytes, at most.
    pub at_most: f64,
}

/// The heaviest of all keys, in `N` entries.
///
/// # Bounds
/// With a total of `T` sampled bytes each key of more than `T / N` sampled bytes has an entry, and an entry's weight
/// exceeds the key's sampled bytes by `T / N` at most. [`Self::decay`] scales the total, all entries and all errors by
/// the same factor, so both bounds hold for decayed bytes. To these bounds the [`Entry`] adds the error of sampling, as
/// the entry's samples estimate it.
pub struct Sketch<const N: usize = 64> {
    /// In arrays of their own, which searches run through.
    fingerprints: [u32; N],
    weights: [f64; N],
    keys: [Key; N],
    /// In 4 bytes, as the room is small: rounded by 1 / 2^24 of them.
    errors: [f32; N],
    /// Of the weights; rounded as the errors are.
    variances: [f32; N],
    /// The first `used` entries are in use.
    used: usize,
    /// The entry of the last key.
    last: usize,
    total: f64,
}

impl<const N: usize> Default for Sketch<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Sketch<N> {
    /// An empty one.
    pub fn new() -> Self {
        const { assert!(N > 0) };
        Sketch {
            fingerprints: [0; N],
            weights: [0.0; N],
            keys: [Key::OTHER; N],
            errors: [0.0; N],
            variances: [0.0; N],
            used: 0,
            last: 0,
            total: 0.0,
        }
    }

    /// Adds a sample of a key.
    pub fn add(&mut self, key: &Key, sample: Sample) {
        self.total += sample.bytes;
        if self.used == 0 || self.keys[self.last] != *key {
            self.last = self.entry(key);
        }
        self.weights[self.last] += sample.bytes;
        self.variances[self.last] += sample.variance as f32;
    }

    /// The key's entry: its own, a free one, or the lightest.
    fn entry(&mut self, key: &Key) -> usize {
        let fingerprint = key.fingerprint();
        if let Some(found) = self.find(fingerprint, key) {
            return found;
        }
        let entry = if self.used < N {
            self.used += 1;
            self.used - 1
        } else {
            self.lightest()
        };
        self.errors[entry] = self.weights[entry] as f32;
        self.fingerprints[entry] = fingerprint;
        self.keys[entry] = *key;
        entry
    }

    fn find(&self, fingerprint: u32, key: &Key) -> Option<usize> {
        let mut from = 0;
        while let Some(ahead) = self.fingerprints[from..self.used]
            .iter()
            .position(|&other| other == fingerprint)
        {
            let entry = from + ahead;
            if self.keys[entry] == *key {
                return Some(entry);
            }
            from = entry + 1;
        }
        None
    }

    fn lightest(&self) -> usize {
        let mut lightest = 0;
        for entry in 1..N {
            if self.weights[entry] < self.weights[lightest] {
                lightest = entry;
            }
        }
        lightest
    }

    /// Multiplies all bytes by a factor from 0 to 1.
    pub fn decay(&mut self, factor: f64) {
        self.total *= factor;
        self.weights.iter_mut().for_each(|weight| *weight *= factor);
        self.errors.iter_mut().for_each(|error| *error *= factor as f32);
        self.variances
            .iter_mut()
            .for_each(|variance| *variance *= (factor * factor) as f32);
        // Less than a byte is nothing.
        if self.total < 1.0 {
            *self = Self::new();
        }
    }

    /// Sampled bytes of all keys.
    pub fn total(&self) -> f64 {
        self.total
    }

    /// Its entries, in no order.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        (0..self.used).map(|entry| {
            let deviation = DEVIATIONS * f64::from(self.variances[entry]).sqrt();
            Entry {
                key: self.keys[entry],
                // Differences of large numbers, and those that decay has rounded, may be below 0.
                at_least: (self.weights[entry] - f64::from(self.errors[entry]) - deviation).max(0.0),
                at_most: self.weights[entry] + deviation,
            }
        })
    }

    /// The heaviest entries, `count` at most, the heaviest first, by their [`at_most`](Entry::at_most).
    pub fn top(&self, count: usize) -> Vec<Entry> {
        let mut entries = Vec::from_iter(self.entries());
        entries.sort_by(|one, other| other.at_most.total_cmp(&one.at_most));
        entries.truncate(count);
        entries
    }
}
