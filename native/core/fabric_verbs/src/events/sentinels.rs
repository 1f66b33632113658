//! Sentinels: an id for each device that librdmacm has opened, bound to an address of the device, and without other
//! uses. librdmacm never closes a device, and says nothing when a device is removed on which there is no id; the
//! removal of some devices waits until all processes have closed them. The sentinel's event says it, and its end closes
//! the device, unless a connection still uses it ([`CmId::device`]).

use std::collections::HashMap;
use std::sync::Arc;

use inet_rdma_verbs::cm::{CmId, EventChannel};

#[derive(Default)]
pub(super) struct Sentinels {
    /// By the tokens of their devices.
    posted: HashMap<usize, CmId>,
    /// Sentinels of removed devices, to be destroyed.
    relieved: Vec<CmId>,
}

impl Sentinels {
    /// Posts one on the device of `id`, if there is a device without one. Where none can be made the removal of the
    /// device waits for the end of this process, or for the next connection there.
    pub(super) fn post(&mut self, channel: &Arc<EventChannel>, id: &CmId) {
        let Some(device) = id.device().map(|device| device.token()) else {
            return;
        };
        if self.posted.contains_key(&device) {
            return;
        }
        let Some(mut address) = id.local_address() else { return };
        address.set_port(0);
        let Ok(sentinel) = CmId::create(channel) else { return };
        // The kernel lends a loopback address to any device.
        if sentinel.bind(address).is_ok() && sentinel.device().is_some_and(|own| own.token() == device) {
            self.posted.insert(device, sentinel);
        }
    }

    /// The device of the id with this token was removed.
    pub(super) fn relieve(&mut self, id: usize) {
        let device = self.posted.iter().find(|(_, sentinel)| sentinel.token() == id);
        if let Some(device) = device.map(|(device, _)| *device) {
            self.relieved.extend(self.posted.remove(&device));
        }
    }

    pub(super) fn has_relieved(&self) -> bool {
        !self.relieved.is_empty()
    }

    /// Those of removed devices. Their end asks the kernel.
    pub(super) fn take_relieved(&mut self) -> Vec<CmId> {
        std::mem::take(&mut self.relieved)
    }
}
