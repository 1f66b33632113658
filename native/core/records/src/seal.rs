//! The sending side of records.

use std::time::Instant;

use crate::aead::{Cipher, Key, Kind};
use crate::limits::{Age, BYTES_MAX, MESSAGES_MAX, Renewal};
use crate::secret::Generation;
use crate::wire::{self, HEADER_BYTES, Header, OVERHEAD_BYTES, Place};

/// The use of the present key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Names the key.
    pub generation: u32,
    /// Records.
    pub records: u64,
    /// Their bytes, with headers and tags.
    pub bytes: u64,
}

/// Makes the records of one direction.
#[derive(Debug)]
pub struct Sealer {
    generation: Generation,
    place: Place,
    usage: Usage,
    rekey_bytes: u64,
    age: Age,
}

impl Sealer {
    /// Generation 0 has this secret.
    pub fn new(cipher: Cipher, secret: &Key, renewal: Renewal, now: Instant) -> Sealer {
        Sealer {
            generation: Generation::first(cipher, secret),
            place: Place::default(),
            usage: Usage::default(),
            // The peer takes the next generation alone, so each one needs a record.
            rekey_bytes: renewal.bytes.clamp(1, BYTES_MAX),
            age: Age::new(renewal.age, now),
        }
    }

    /// Takes the next key if the present one is too old, and was used. `now` is called only if that must be known.
    #[inline]
    pub fn rekey_if_old(&mut self, now: impl FnOnce() -> Instant) {
        if self.age.is_over(self.usage.records > 0, now) {
            self.rekey();
        }
    }

    /// The next record has the next key.
    #[cold]
    pub fn rekey(&mut self) {
        self.generation = self.generation.next();
        self.usage = Usage {
            generation: self.generation.number,
            ..Usage::default()
        };
    }

    /// Notes that the ring is filled up to its end; `bytes` is the result of [`crate::filling`].
    pub fn fill(&mut self, bytes: usize) {
        self.place.fill(bytes);
    }

    /// Makes a record of `plain` in `record`: the bytes of `plain`, 1 to [`crate::PLAIN_BYTES_MAX`], and
    /// [`OVERHEAD_BYTES`] more. AES reads the last slice where it is; all others are copied before the cipher.
    #[inline]
    pub fn seal(&mut self, plain: &[&[u8]], record: &mut [u8]) {
        if self.usage.bytes >= self.rekey_bytes || self.usage.records >= MESSAGES_MAX {
            self.rekey();
        }
        let record_bytes = record.len();
        let header = Header {
            plain_bytes: record_bytes - OVERHEAD_BYTES,
            generation: self.generation.number,
        };
        let header = header.emit();
        let (to, sealed) = record.split_at_mut(HEADER_BYTES);
        to.copy_from_slice(&header);
        let (tail, head) = match plain.split_last() {
            Some((tail, head)) if self.cipher().seals_out_of_place() => (*tail, head),
            _ => (&[] as &[u8], plain),
        };
        let mut at = 0;
        for slice in head {
            sealed[at..at + slice.len()].copy_from_slice(slice);
            at += slice.len();
        }
        debug_assert_eq!(at + tail.len() + OVERHEAD_BYTES, record_bytes);
        let Place { sequence, position } = self.place;
        let aad = wire::aad(header, position);
        self.generation
            .key
            .seal(Kind::Record, sequence, &aad, (sealed, at), tail);
        self.place.pass_record(record_bytes);
        self.usage.records += 1;
        self.usage.bytes += record_bytes as u64;
    }

    /// The use of the present key.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// The cipher of the records.
    #[must_use]
    pub fn cipher(&self) -> Cipher {
        self.generation.cipher()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealer(bytes: u64) -> Sealer {
        let secret = Key::new(&[1; 32]).expect("32 bytes");
        let renewal = Renewal { bytes, age: None };
        Sealer::new(Cipher::Aes256Gcm, &secret, renewal, Instant::now())
    }

    fn generation_of_next(sealer: &mut Sealer) -> u32 {
        let mut record = [0; 1 + OVERHEAD_BYTES];
        sealer.seal(&[&[0]], &mut record);
        sealer.usage().generation
    }

    #[test]
    fn a_key_is_replaced_after_its_records_and_after_its_bytes() {
        let mut sealer = sealer(u64::MAX);
        sealer.usage.records = MESSAGES_MAX - 1;
        assert_eq!(generation_of_next(&mut sealer), 0);
        assert_eq!(generation_of_next(&mut sealer), 1);
        assert_eq!(sealer.usage().records, 1, "counted from the first record of the key");
        sealer.usage.bytes = BYTES_MAX;
        assert_eq!(generation_of_next(&mut sealer), 2);
    }

    #[test]
    fn no_generation_is_left_without_a_record() {
        let mut sealer = sealer(0);
        assert_eq!(generation_of_next(&mut sealer), 0);
        sealer.age = Age::new(Some(std::time::Duration::ZERO), Instant::now());
        sealer.rekey_if_old(Instant::now);
        assert_eq!(generation_of_next(&mut sealer), 1);
    }

    #[test]
    fn generations_count_on_after_the_last_number() {
        let mut sealer = sealer(1);
        (sealer.generation.number, sealer.usage.generation) = (u32::MAX, u32::MAX);
        assert_eq!(generation_of_next(&mut sealer), u32::MAX);
        assert_eq!(generation_of_next(&mut sealer), 0);
    }
}
