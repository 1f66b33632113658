//! The keys of a sealed connection, from its user.

use inet_rdma_records::{Key, KeyRefused};

use super::state::{Connection, Sealed};

impl Connection {
    /// The state of the seals. None: the stream is plain.
    pub fn sealed_by(&self) -> Option<Sealed> {
        let records = self.records.as_ref()?;
        Some(Sealed {
            cipher: records.cipher,
            usage: records.sealer.lock().usage(),
            receive_generation: records.opener.lock().generation(),
        })
    }

    /// Installs the peer's key of the next generation, which the peer may use from now on. Records under the earlier
    /// key are accepted until the first record under the new key.
    pub fn install_receive_key(&self, generation: u32, key: &Key) -> Result<(), KeyRefused> {
        let records = self.records.as_ref().ok_or(KeyRefused::Plain)?;
        let mut opener = records.opener.lock();
        let mut core = self.core.lock();
        let is_read = core.stream.ring_bytes_readable() == 0;
        let state = core.records.as_mut().ok_or(KeyRefused::Plain)?;
        if is_read {
            // Transfers and control messages arrive in the order in which they were posted.
            opener.drop_passed(&state.control_opener);
        }
        opener.install(generation, key, &mut state.control_opener)
    }

    /// From now on seals under this side's key of the next generation, which the peer must have installed. Call
    /// [`Self::tick`] after it, so that the peer sees the change even if nothing else is sent.
    pub fn rekey_sending(&self, generation: u32, key: &Key) -> Result<(), KeyRefused> {
        let records = self.records.as_ref().ok_or(KeyRefused::Plain)?;
        let mut sealer = records.sealer.lock();
        let mut core = self.core.lock();
        let state = core.records.as_mut().ok_or(KeyRefused::Plain)?;
        sealer.rekey(generation, key, &mut state.control_sealer)
    }
}
