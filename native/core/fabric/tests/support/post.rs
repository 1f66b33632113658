//! Transfers of tests that do not care how much room there is.

use inet_rdma_fabric::{FabricError, QueuePair, WriteRoom};
use inet_rdma_stream::{Notice, RemoteAddress};

pub trait Post {
    /// Posts a transfer; where there is no room for one as well, as the fabric's answer to that is what the test is
    /// about.
    fn post(&self, source: &[&[u8]], target: RemoteAddress, notice: Notice) -> Result<(), FabricError>;
}

impl Post for dyn QueuePair + '_ {
    fn post(&self, source: &[&[u8]], target: RemoteAddress, notice: Notice) -> Result<(), FabricError> {
        let room = self.write_room().unwrap_or(WriteRoom::UNLIMITED);
        self.post_write(room, source, target, notice).map_err(|error| *error)
    }
}
