//! The keys of a sealed connection.
//!
//! The bytes in the ring are records. Each transfer is one record, so the whole record is in the ring when its notice
//! comes. A record is made in private memory and then posted: in memory that the peer can write, the peer could change
//! bytes between encryption and tag. The receiver copies it out of the ring into the memory of its packets, and checks
//! and decrypts it there, so that nothing can change after the check.

use std::time::Instant;

use inet_rdma_records::{
    Cipher, ControlOpener, ControlSealer, OVERHEAD_BYTES, Opener, Protection, RING_BYTES_MIN, Sealer, Usage, Violation,
};
use parking_lot::Mutex;

/// The keys of records. A write or a read takes its lock before the lock `core`, and holds it to its end.
pub(crate) struct Records {
    pub(crate) sealer: Mutex<RecordSealer>,
    pub(crate) opener: Mutex<Opener>,
}

/// Makes the records of this side, in private memory.
pub(crate) struct RecordSealer {
    pub(crate) sealer: Sealer,
    /// The last record, and bytes of larger ones before it.
    record: Vec<u8>,
}

impl RecordSealer {
    /// Makes a record of `plain`, of `bytes` bytes in all, 1 to [`inet_rdma_records::PLAIN_BYTES_MAX`].
    #[inline]
    pub(crate) fn seal(&mut self, bytes: usize, plain: &[&[u8]]) -> &[u8] {
        let record_bytes = bytes + OVERHEAD_BYTES;
        if self.record.len() < record_bytes {
            self.record.resize(record_bytes, 0);
        }
        let record = &mut self.record[..record_bytes];
        self.sealer.seal(plain, record);
        record
    }
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
    /// Generation of the key of the peer's last record.
    pub receive_generation: u32,
}

impl Records {
    /// `ring_bytes`: size of the peer's ring, then of this side's.
    pub(crate) fn new(protection: &Protection, ring_bytes: [u32; 2]) -> Result<(Self, RecordState), Violation> {
        let Protection {
            cipher,
            send_key,
            receive_key,
            renewal,
        } = protection;
        if let Some(&bytes) = ring_bytes.iter().find(|bytes| **bytes < RING_BYTES_MIN) {
            return Err(Violation::RecordRing(bytes));
        }
        let now = Instant::now();
        let sealer = RecordSealer {
            sealer: Sealer::new(*cipher, &send_key.of_records(), *renewal, now),
            record: Vec::new(),
        };
        let records = Records {
            sealer: Mutex::new(sealer),
            opener: Mutex::new(Opener::new(*cipher, &receive_key.of_records())),
        };
        let state = RecordState {
            control_sealer: ControlSealer::new(*cipher, &send_key.of_controls(), *renewal, now),
            control_opener: ControlOpener::new(*cipher, &receive_key.of_controls()),
            holds_record: false,
            overhead_sent: 0,
        };
        Ok((records, state))
    }
}
