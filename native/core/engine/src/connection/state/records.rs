//! The keys of a sealed connection.
//!
//! The bytes in the ring are records. Each transfer is one record, so the whole record is in the ring when its notice
//! comes. A record is made in private memory and then posted: in memory that the peer can write, the peer could change
//! bytes between encryption and tag. The receiver copies it out of the ring into the memory of its packets, and checks
//! and decrypts it there, so that nothing can change after the check.

use inet_rdma_records::{Cipher, ControlOpener, ControlSealer, Opener, Protection, Sealer, Usage, Violation};
use parking_lot::Mutex;

/// The keys of records. A write or a read takes its lock before the lock `core`, and holds it to its end.
pub(crate) struct Records {
    pub(crate) cipher: Cipher,
    pub(crate) sealer: Mutex<Sealer>,
    pub(crate) opener: Mutex<Opener>,
}

/// The state of a sealed connection behind the lock `core`: the keys of control messages, and the state of reads.
pub(crate) struct RecordState {
    pub(crate) control_sealer: ControlSealer,
    pub(crate) control_opener: ControlOpener,
    /// True while reads have not taken all of an opened record.
    pub(crate) holds_record: bool,
    /// Bytes that were sent beside the user's: of records and of fillings.
    pub(crate) overhead_sent: u64,
}

/// How a stream is sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
    /// The cipher of both directions.
    pub cipher: Cipher,
    /// Counts of bytes and records that this side has sealed under its present key.
    pub usage: Usage,
    /// Generation of the oldest key under which a record of the peer is accepted.
    pub receive_generation: u32,
}

impl Records {
    /// `ring_bytes`: size of the peer's ring, then of this side's.
    pub(crate) fn new(protection: &Protection, ring_bytes: [u32; 2]) -> Result<(Self, RecordState), Violation> {
        let Protection {
            cipher,
            send_key,
            receive_key,
            rekey_bytes,
        } = protection;
        let (sealer, control_sealer) = Sealer::new(*cipher, send_key, ring_bytes[0], *rekey_bytes)?;
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
            overhead_sent: 0,
        };
        Ok((records, state))
    }
}
