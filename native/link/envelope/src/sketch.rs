//! The heaviest keys of a stream of bytes, in a fixed room.
//!
//! The algorithm Space-Saving of Metwally, Agrawal and El Abbadi, "Efficient Computation of Frequent and Top-k Elements
//! in Data Streams" (ICDT 2005), with bytes as weights. A key that has no entry takes the lightest one over, with its
//! weight; that weight is the new entry's error.

use crate::key::Key;

/// A key with its bytes.
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
/// With a total of `T` bytes each key of more than `T / N` bytes has an entry, and an entry's `at_most` exceeds the
/// key's bytes by `T / N` at most. [`Self::decay`] scales the total, all entries and all errors by the same factor, so
/// both bounds hold for decayed bytes.
pub struct Sketch<const N: usize = 64> {
    /// In arrays of their own, which searches run through.
    fingerprints: [u32; N],
    weights: [f64; N],
    keys: [Key; N],
    errors: [f64; N],
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
            used: 0,
            last: 0,
            total: 0.0,
        }
    }

    /// Adds bytes of a key.
    #[inline]
    pub fn add(&mut self, key: &Key, bytes: usize) {
        // Exact below 2^53 bytes.
        let bytes = bytes as f64;
        self.total += bytes;
        if self.used == 0 || self.keys[self.last] != *key {
            self.last = self.entry(key);
        }
        self.weights[self.last] += bytes;
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
        self.errors[entry] = self.weights[entry];
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
        for value in self.weights.iter_mut().chain(&mut self.errors) {
            *value *= factor;
        }
        // Less than a byte is nothing.
        if self.total < 1.0 {
            *self = Self::new();
        }
    }

    /// Bytes of all keys.
    pub fn total(&self) -> f64 {
        self.total
    }

    /// Its entries, in no order.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        (0..self.used).map(|entry| Entry {
            key: self.keys[entry],
            at_least: self.weights[entry] - self.errors[entry],
            at_most: self.weights[entry],
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
