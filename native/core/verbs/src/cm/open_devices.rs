//! The devices that librdmacm has opened for ids, with the number of their users. librdmacm itself keeps each device
//! open until the process ends, and the kernel's removal of a device without means to cut processes off (rxe, siw,
//! cxgb4, qedr, vmw_pvrdma, efa) waits until all have closed it. So the last user of a removed device closes the
//! kernel's side of it ([`Device::give_up`]).

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use rdma_sys::ibv_context;

use crate::device::Device;

#[derive(Debug, Default)]
struct Use {
    users: usize,
    is_removed: bool,
}

/// By the addresses of their contexts.
static IN_USE: Mutex<Devices> = Mutex::new(Devices(BTreeMap::new()));

struct Devices(BTreeMap<usize, Use>);

impl Devices {
    fn enter(&mut self, device: usize) {
        self.0.entry(device).or_default().users += 1;
    }

    fn remove(&mut self, device: usize) {
        if let Some(used) = self.0.get_mut(&device) {
            used.is_removed = true;
        }
    }

    /// True: it was the last user of a removed device.
    fn leave(&mut self, device: usize) -> bool {
        let Some(used) = self.0.get_mut(&device) else {
            return false;
        };
        used.users -= 1;
        if used.users > 0 {
            return false;
        }
        let is_removed = used.is_removed;
        self.0.remove(&device);
        is_removed
    }
}

fn with<T>(act: impl FnOnce(&mut Devices) -> T) -> T {
    act(&mut IN_USE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The device has one user more.
pub(super) fn enter(context: NonNull<ibv_context>) {
    with(|devices| devices.enter(context.as_ptr() as usize));
}

/// The device was removed from the machine.
pub(super) fn remove(context: NonNull<ibv_context>) {
    with(|devices| devices.remove(context.as_ptr() as usize));
}

/// The device has one user less: all that this user has made of it is destroyed.
pub(super) fn leave(device: Device<'_>) {
    with(|devices| {
        if devices.leave(device.token()) {
            // Without a descriptor for it the kernel completes the removal at the process's end.
            let _ = device.give_up();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_user_of_a_removed_device_is_told_so() {
        let mut devices = Devices(BTreeMap::new());
        [1, 1, 2].into_iter().for_each(|device| devices.enter(device));
        devices.remove(1);
        assert!(!devices.leave(2), "another device");
        assert!(!devices.leave(1), "not the last one");
        devices.enter(1);
        assert!(!devices.leave(1), "not the last one");
        assert!(devices.leave(1));
        devices.remove(1);
        devices.enter(1);
        assert!(!devices.leave(1), "another device at the same address");
    }
}
