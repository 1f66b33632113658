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
    /// Openers for a stream through this side's ring of `ring_bytes`, and for its control messages. The first key has
    /// generation 0.
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
    /// many as `header` says. After a violation its content has no meaning.
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

    /// Drops the keys under which no record can come any more: every record that arrived before the last control
    /// message has been opened. In a direction without records no other call drops keys.
    ///
    /// That is safe, as the peer has the same present key for records and control messages. After a control message
    /// under a key it seals no record under an earlier key, and the records that it had sealed before were sent, and so
    /// have arrived, before that message. This side refuses a record of a peer that does otherwise.
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
