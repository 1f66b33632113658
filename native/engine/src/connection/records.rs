//! The keys of a sealed connection.
//!
//! Between the user's bytes and the ring lie records. Each transfer is one record, so it is in the ring as a whole once
//! its notice has come. A record is made in private memory and then posted: where the peer can write, it could change
//! bytes between cipher and tag. It is copied out of the ring into the memory of the packets that it becomes, and
//! checked and decrypted there, so nothing of it can change behind the check.

use inet_rdma_records::{Cipher, ControlOpener, ControlSealer, Opener, Protection, Sealer, Usage, UsedUp, Violation};
use inet_rdma_stream::CONTROL_BYTES;
use parking_lot::Mutex;

use super::notifier::Notifier;

/// The keys of records. A write or a read takes its lock before the lock `core`, and holds it to its end.
pub(super) struct Records {
    pub(super) cipher: Cipher,
    pub(super) sealer: Mutex<Sealer>,
    pub(super) opener: Mutex<Opener>,
}

/// What a sealed connection has behind the lock `core`: the keys of control messages, and the state of its reads.
pub(super) struct RecordState {
    pub(super) control_sealer: ControlSealer,
    pub(super) control_opener: ControlOpener,
    /// True while reads have not taken all of an opened record.
    pub(super) holds_record: bool,
}

/// How a stream is sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
    /// The cipher of both directions.
    pub cipher: Cipher,
    /// What this side has sealed under its present key.
    pub usage: Usage,
    /// Generation of the oldest key that a record of the peer is taken under.
    pub receive_generation: u32,
}

impl Records {
    /// `ring_bytes`: the peer's, then this side's.
    pub(super) fn new(protection: &Protection, ring_bytes: [u32; 2]) -> Result<(Self, RecordState), Violation> {
        let Protection {
            cipher,
            send_key,
            receive_key,
            renew_bytes,
        } = protection;
        let (sealer, control_sealer) = Sealer::new(*cipher, send_key, ring_bytes[0], *renew_bytes)?;
        let (opener, control_opener) = Opener::new(*cipher, receive_key, ring_bytes[1])?;
        let records = Records {
            cipher: *cipher,
            sealer: Mutex::new(sealer),
            opener: Mutex::new(opener),
        };
        let state = RecordState {
            control_sealer,
            control_opener,
            holds_record: false,
        };
        Ok((records, state))
    }
}

impl RecordState {
    pub(super) fn open_control(&mut self, message: &[u8; CONTROL_BYTES]) -> Result<[u8; CONTROL_BYTES], Violation> {
        let mut opened = *message;
        self.control_opener.open(&mut opened)?;
        Ok(opened)
    }

    pub(super) fn seal_control(
        &mut self,
        message: &mut [u8; CONTROL_BYTES],
        notifier: &dyn Notifier,
    ) -> Result<(), UsedUp> {
        self.control_sealer.seal(message)?;
        if self.control_sealer.take_due() {
            notifier.key_due();
        }
        Ok(())
    }
}
