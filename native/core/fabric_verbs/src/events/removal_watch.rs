//! The watch for removals: an id for each device that librdmacm has opened, bound to an address of the device, and
//! without other uses. librdmacm never closes a device, and says nothing when a device is removed on which there is no
//! id; the removal of some devices waits until all processes have closed them. The id's event reports the removal, and
//! its end closes the device, unless a connection still uses it ([`CmId::device`]).

use std::collections::HashMap;
use std::sync::Arc;

use inet_rdma_verbs::cm::{CmId, EventChannel};

#[derive(Default)]
pub(super) struct RemovalWatch {
    /// By the tokens of their devices.
    ids: HashMap<usize, CmId>,
}

impl RemovalWatch {
    /// Makes an id on the device of `id`, if there is a device without one. Where none can be made the removal of the
    /// device waits for the end of this process, or for the next connection there. Asks the kernel.
    pub(super) fn watch(&mut self, channel: &Arc<EventChannel>, id: &CmId) {
        let Some(device) = id.device().map(|device| device.token()) else {
            return;
        };
        if self.ids.contains_key(&device) {
            return;
        }
        let Some(mut address) = id.local_address() else { return };
        address.set_port(0);
        let Ok(watching) = CmId::create(channel) else { return };
        // The kernel lends a loopback address to any device.
        if watching.bind(address).is_ok() && watching.device().is_some_and(|own| own.token() == device) {
            self.ids.insert(device, watching);
        }
    }

    /// Takes those of its ids that have these tokens: their devices were removed. Their end asks the kernel.
    pub(super) fn take_removed(&mut self, tokens: &[usize]) -> Vec<CmId> {
        let is_removed = |id: &CmId| tokens.contains(&id.token());
        let removed = self.ids.iter().filter(|(_, id)| is_removed(id));
        let devices: Vec<usize> = removed.map(|(device, _)| *device).collect();
        devices.iter().filter_map(|device| self.ids.remove(device)).collect()
    }
}
