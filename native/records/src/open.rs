//! The receiving side of records.

use std::sync::Arc;

use crate::aead::{AeadKey, Cipher, Key, Kind};
use crate::control::ControlOpener;
use crate::keyring::Keyring;
use crate::violation::{KeyRefused, Violation};
use crate::wire::{self, Header, Place, RING_BYTES_MIN, TAG_BYTES};

/// Checks and decrypts the records of one direction. A violation is final: close the connection.
#[derive(Debug)]
pub struct Opener {
    cipher: Cipher,
    keys: Keyring,
    place: Place,
}

impl Opener {
    /// For a stream through this side's ring of `ring_bytes`, and its control messages. The first key is of generation
    /// 0.
    pub fn new(cipher: Cipher, key: &Key, ring_bytes: u32) -> Result<(Opener, ControlOpener), Violation> {
        if ring_bytes < RING_BYTES_MIN {
            return Err(Violation::RecordRing(ring_bytes));
        }
        let key = Arc::new(AeadKey::new(cipher, key));
        let control = ControlOpener::new(Arc::clone(&key));
        let opener = Opener {
            cipher,
            keys: Keyring::new(key),
            place: Place::default(),
        };
        Ok((opener, control))
    }

    /// Notes that the filling has been passed over; `bytes` is the result of [`crate::filling`].
    pub fn fill(&mut self, bytes: usize) {
        self.place.fill(bytes);
    }

    /// Checks and decrypts the next record: `in_out` has its encrypted bytes, in memory that the peer cannot write, as
    /// many as `header` says. What is in it behind a violation means nothing.
    #[inline]
    pub fn open(&mut self, header: Header, tag: &[u8; TAG_BYTES], in_out: &mut [u8]) -> Result<(), Violation> {
        debug_assert_eq!(in_out.len(), header.plain_bytes);
        let Place { sequence, position, .. } = self.place;
        let aad = wire::aad(header.emit(), position);
        self.keys
            .key(header.generation)?
            .open(Kind::Record, sequence, &aad, tag, in_out)
            .map_err(|_| Violation::RecordForged { sequence })?;
        self.place.pass_record(header.record_bytes());
        Ok(())
    }

    /// Generation of the oldest key that a record is taken under: the last record's, or a later one's.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.keys.present()
    }

    /// Every record that arrived before the last control message has been opened: drops the keys under which no more
    /// can come. Where a direction carries no records, nothing else drops them.
    ///
    /// That is safe, as a key is the peer's present one for records and control messages alike. Once it has sealed a
    /// control message under a key it seals no record under an earlier one, and those that it had sealed were sent
    /// before that message, and so have arrived before it. A peer that does otherwise finds its record refused.
    pub fn drop_passed(&mut self, control: &ControlOpener) {
        self.keys.go_on_to(control.generation());
    }

    /// Takes the key of the next generation, which the peer may use from here on.
    pub fn install(&mut self, generation: u32, key: &Key, control: &mut ControlOpener) -> Result<(), KeyRefused> {
        self.keys.check(generation)?;
        control.check(generation)?;
        let key = Arc::new(AeadKey::new(self.cipher, key));
        control.add(Arc::clone(&key));
        self.keys.add(key);
        Ok(())
    }
}
