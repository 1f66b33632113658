//! The sending side of records.

use std::sync::Arc;

use crate::aead::{AeadKey, Cipher, Key, Kind};
use crate::control::ControlSealer;
use crate::limits::{BYTES_MAX, MESSAGES_MAX, REKEY_MESSAGES, UsedUp};
use crate::violation::{KeyRefused, Violation};
use crate::wire::{self, HEADER_BYTES, Header, OVERHEAD_BYTES, Place, RING_BYTES_MIN};

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

/// The present key of one direction, its use, and the place of the next record.
#[derive(Debug)]
pub(crate) struct Sealing {
    pub cipher: Cipher,
    key: Arc<AeadKey>,
    place: Place,
    pub usage: Usage,
    rekey_bytes: u64,
}

impl Sealing {
    /// The key has generation 0. It is due to be replaced after `rekey_bytes` bytes.
    pub fn new(cipher: Cipher, key: Arc<AeadKey>, rekey_bytes: u64) -> Sealing {
        Sealing {
            cipher,
            key,
            place: Place::default(),
            usage: Usage::default(),
            rekey_bytes: rekey_bytes.min(BYTES_MAX / 2),
        }
    }

    /// True if the next key should follow.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.usage.bytes >= self.rekey_bytes || self.usage.records >= REKEY_MESSAGES
    }

    /// Goes on to the key of the next generation.
    pub fn rekey(&mut self, key: Arc<AeadKey>) {
        self.key = key;
        self.usage = Usage {
            generation: self.usage.generation.wrapping_add(1),
            ..Usage::default()
        };
    }

    /// Makes a record of `plain` in `record`, which is as large as the record.
    #[inline]
    pub fn seal(&mut self, plain: &[&[u8]], record: &mut [u8]) {
        let record_bytes = record.len();
        let header = Header {
            plain_bytes: record_bytes - OVERHEAD_BYTES,
            generation: self.usage.generation,
        };
        let header = header.emit();
        let (to, sealed) = record.split_at_mut(HEADER_BYTES);
        to.copy_from_slice(&header);
        let (tail, head) = match plain.split_last() {
            Some((tail, head)) if self.cipher.seals_out_of_place() => (*tail, head),
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
        self.key.seal(Kind::Record, sequence, &aad, (sealed, at), tail);
        self.place.pass_record(record_bytes);
        self.usage.records += 1;
        self.usage.bytes += record_bytes as u64;
    }
}

/// Makes records of one direction.
#[derive(Debug)]
pub struct Sealer {
    sealing: Sealing,
    /// True if the user was asked for the next key.
    asked: bool,
    /// The last record, and bytes of larger ones before it; private memory.
    record: Vec<u8>,
}

impl Sealer {
    /// Sealers for a stream through a ring of `ring_bytes` on the peer's side, and for its control messages. The first
    /// key has generation 0.
    pub fn new(
        cipher: Cipher,
        key: &Key,
        ring_bytes: u32,
        rekey_bytes: u64,
    ) -> Result<(Sealer, ControlSealer), Violation> {
        if ring_bytes < RING_BYTES_MIN {
            return Err(Violation::RecordRing(ring_bytes));
        }
        let key = Arc::new(AeadKey::new(cipher, key));
        let control = ControlSealer::new(Arc::clone(&key));
        let sealer = Sealer {
            sealing: Sealing::new(cipher, key, rekey_bytes),
            asked: false,
            record: Vec::new(),
        };
        Ok((sealer, control))
    }

    /// Notes that the ring is filled up to its end; `bytes` is the result of [`crate::filling`].
    pub fn fill(&mut self, bytes: usize) {
        self.sealing.place.fill(bytes);
    }

    /// Fails if the present key may seal no more.
    #[inline]
    pub fn check(&self) -> Result<(), UsedUp> {
        let Usage {
            generation,
            records,
            bytes,
        } = self.sealing.usage;
        match records >= MESSAGES_MAX || bytes >= BYTES_MAX {
            true => Err(UsedUp { generation }),
            false => Ok(()),
        }
    }

    /// Makes a record of `plain`, of `bytes` bytes in all, 1 to [`crate::PLAIN_BYTES_MAX`]. AES reads the last slice
    /// where it is; all others are copied before the cipher. Call [`Self::check`] before.
    #[inline]
    pub fn seal(&mut self, bytes: usize, plain: &[&[u8]]) -> &[u8] {
        let record_bytes = bytes + OVERHEAD_BYTES;
        if self.record.len() < record_bytes {
            self.record.resize(record_bytes, 0);
        }
        let record = &mut self.record[..record_bytes];
        self.sealing.seal(plain, record);
        record
    }

    /// True once for each key: it has sealed so much that the user should bring the next one.
    #[inline]
    #[must_use]
    pub fn take_due(&mut self) -> bool {
        self.sealing.is_due() && !std::mem::replace(&mut self.asked, true)
    }

    /// What was sealed under the present key.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.sealing.usage
    }

    /// Records and control messages are sealed under `key` from here on. The peer must have it already.
    pub fn rekey(&mut self, generation: u32, key: &Key, control: &mut ControlSealer) -> Result<(), KeyRefused> {
        let next = self.sealing.usage.generation.wrapping_add(1);
        if generation != next {
            return Err(KeyRefused::Generation { said: generation, next });
        }
        let key = Arc::new(AeadKey::new(self.sealing.cipher, key));
        control.rekey(generation, Arc::clone(&key));
        self.sealing.rekey(key);
        self.asked = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, Cipher, Key, MESSAGES_MAX, REKEY_MESSAGES, Sealer, UsedUp};

    fn sealer() -> Sealer {
        let key = Key::new(&[1; 32]).expect("32 bytes");
        Sealer::new(Cipher::Aes256Gcm, &key, 4096, u64::MAX).expect("a ring").0
    }

    #[test]
    fn a_key_ends_with_its_messages_and_with_its_bytes() {
        let mut sealer = sealer();
        sealer.sealing.usage.records = REKEY_MESSAGES;
        assert!(sealer.take_due());
        sealer.sealing.usage.records = MESSAGES_MAX - 1;
        assert_eq!(sealer.check(), Ok(()));
        sealer.seal(1, &[&[0]]);
        assert_eq!(sealer.check(), Err(UsedUp { generation: 0 }));
        sealer.sealing.usage.records = 0;
        sealer.sealing.usage.bytes = BYTES_MAX;
        assert_eq!(sealer.check(), Err(UsedUp { generation: 0 }));
    }

    #[test]
    fn however_late_the_user_wants_to_be_asked_half_of_the_bytes_are_left() {
        let mut sealer = sealer();
        sealer.sealing.usage.bytes = BYTES_MAX / 2;
        assert!(sealer.take_due());
    }
}
