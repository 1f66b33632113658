//! The receiving side of records.

use crate::aead::{Cipher, Key, Kind};
use crate::secret::{NotOpened, Received};
use crate::violation::Violation;
use crate::wire::{self, Header, Place, TAG_BYTES};

/// Checks and decrypts the records of one direction. A violation is final: close the connection.
#[derive(Debug)]
pub struct Opener {
    received: Received,
    place: Place,
}

impl Opener {
    /// The peer's [`crate::Sealer`] has the same secret.
    pub fn new(cipher: Cipher, secret: &Key) -> Opener {
        Opener {
            received: Received::new(cipher, secret),
            place: Place::default(),
        }
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
        let Place { sequence, position } = self.place;
        let aad = wire::aad(header.emit(), position);
        self.received
            .open(header.generation, (Kind::Record, sequence), &aad, tag, in_out)
            .map_err(|fault| match fault {
                NotOpened::Generation => Violation::KeyGeneration {
                    said: header.generation,
                    present: self.received.generation(),
                },
                NotOpened::Forged => Violation::RecordForged { sequence },
            })?;
        self.place.pass_record(header.record_bytes());
        Ok(())
    }

    /// Generation of the key of the last record.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.received.generation()
    }
}
