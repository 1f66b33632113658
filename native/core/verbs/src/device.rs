//! Devices: their names, ports and limits.

use std::ffi::CStr;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use rdma_sys::{
    ibv_close_device, ibv_context, ibv_device, ibv_device_attr, ibv_device_cap_flags, ibv_free_device_list,
    ibv_get_device_list, ibv_open_device, ibv_port_attr, ibv_query_device, ibv_query_port, ibv_transport_type,
};

use crate::error::check_errno;
use crate::{Transport, VerbsError};

/// An open device, borrowed from its owner.
///
/// # Invariants
///
/// `context` points to an open device context that stays open for `'a`.
#[derive(Clone, Copy)]
pub struct Device<'a> {
    context: NonNull<ibv_context>,
    _open: PhantomData<&'a ibv_context>,
}

/// Limits of a device, as far as the engine needs them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Version of the firmware, as the device gives it.
    pub firmware: String,
    /// Work requests in one queue.
    pub queue_entries: u32,
    /// Scatter/gather elements of one work request.
    pub sges: u32,
    /// Entries of a completion queue.
    pub completion_entries: u32,
    /// Ports.
    pub ports: u8,
    /// True if its flags say that it has memory windows of type 2. Some devices have none all the same: see
    /// [`crate::window::MemoryWindow::try_allocation`].
    pub windows: bool,
    /// True if it is the kernel's rxe.
    pub is_soft_roce: bool,
}

/// Attributes of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortState {
    /// Whether the port carries traffic.
    pub is_active: bool,
    /// Payload bytes of a packet now.
    pub active_mtu_bytes: u32,
    /// Payload bytes of a packet at most.
    pub max_mtu_bytes: u32,
}

/// Memory windows of type 2: bound to one queue pair by a work request, and invalidated by another. Types 2A and 2B
/// differ in further checks.
const WINDOWS: u32 =
    ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW_TYPE_2A.0 | ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW_TYPE_2B.0;

/// The vendor number of the kernel's rxe: `RXE_VENDOR_ID` in rxe_param.h.
const SOFT_ROCE: u32 = 0xff_ffff;

impl<'a> Device<'a> {
    /// # Safety
    ///
    /// `context` must be an open device context and stay open for `'a`.
    pub(crate) unsafe fn of(context: NonNull<ibv_context>) -> Device<'a> {
        Device {
            context,
            _open: PhantomData,
        }
    }

    pub(crate) fn context(self) -> NonNull<ibv_context> {
        self.context
    }

    fn device(self) -> NonNull<ibv_device> {
        // SAFETY: an open context, which has a device as long as it is open.
        let device = unsafe { self.context.as_ref().device };
        // SAFETY: libibverbs sets it when it opens the context and never to null.
        unsafe { NonNull::new_unchecked(device) }
    }

    /// Its name, such as `mlx5_0` or `rxe0`.
    pub fn name(self) -> String {
        // SAFETY: the device lives as long as its context; `name` is a C string in an array of its own.
        unsafe { name_of(self.device()) }
    }

    /// The driver of the hardware below, as the kernel names it, such as `mlx5_core`. None: a software device, or the
    /// kernel does not say.
    pub fn driver(self) -> Option<String> {
        let link = std::fs::read_link(format!("/sys/class/infiniband/{}/device/driver", self.name())).ok()?;
        Some(link.file_name()?.to_string_lossy().into_owned())
    }

    /// The device's name within this process, as long as it is open.
    pub fn token(self) -> usize {
        self.context.as_ptr() as usize
    }

    /// Its transport.
    pub fn transport(self) -> Transport {
        // SAFETY: the device lives as long as its context.
        match unsafe { self.device().as_ref().transport_type } {
            ibv_transport_type::IBV_TRANSPORT_IWARP => Transport::Iwarp,
            _ => Transport::InfiniBand,
        }
    }

    /// Its limits. See `ibv_query_device(3)`.
    pub fn limits(self) -> Result<DeviceLimits, VerbsError> {
        // SAFETY: all zeros are a value of this C struct of numbers.
        let mut attributes: ibv_device_attr = unsafe { std::mem::zeroed() };
        // SAFETY: an open context, and a struct to be filled.
        let result = unsafe { ibv_query_device(self.context.as_ptr(), &raw mut attributes) };
        check_errno("asking a device for its limits", result)?;
        let number = |number: i32| u32::try_from(number).unwrap_or(0);
        // SAFETY: libibverbs ends the version with a zero inside of the array.
        let firmware = unsafe { CStr::from_ptr(attributes.fw_ver.as_ptr()) };
        Ok(DeviceLimits {
            firmware: firmware.to_string_lossy().into_owned(),
            queue_entries: number(attributes.max_qp_wr),
            sges: number(attributes.max_sge),
            completion_entries: number(attributes.max_cqe),
            ports: attributes.phys_port_cnt,
            windows: attributes.device_cap_flags & WINDOWS != 0,
            is_soft_roce: attributes.vendor_id == SOFT_ROCE,
        })
    }

    /// The state of a port, counted from 1. See `ibv_query_port(3)`.
    pub fn port(self, number: u8) -> Result<PortState, VerbsError> {
        // SAFETY: all zeros are a value of this C struct of numbers.
        let mut attributes: ibv_port_attr = unsafe { std::mem::zeroed() };
        // SAFETY: an open context, and a struct to be filled.
        let result = unsafe { ibv_query_port(self.context.as_ptr(), number, &raw mut attributes) };
        check_errno("asking a device for the state of a port", result)?;
        // IBV_MTU_256 is 1, each further value twice as much.
        let bytes = |mtu: u32| 128u32.checked_shl(mtu).unwrap_or(0);
        Ok(PortState {
            is_active: attributes.state == rdma_sys::ibv_port_state::IBV_PORT_ACTIVE,
            active_mtu_bytes: bytes(attributes.active_mtu),
            max_mtu_bytes: bytes(attributes.max_mtu),
        })
    }

    /// Closes the kernel's side of a context whose device was removed: the kernel waits for that before it completes
    /// the removal. /dev/null takes the place of the context's two descriptors, so the context itself stays valid, and
    /// further calls for the device fail.
    pub(crate) fn give_up(self) -> Result<(), rustix::io::Errno> {
        use rustix::fs::{Mode, OFlags, open};
        let nothing = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        // SAFETY: an open context.
        let context = unsafe { self.context.as_ref() };
        for descriptor in [context.cmd_fd, context.async_fd] {
            // SAFETY: the context owns the descriptor, and closes it: not this value.
            let mut descriptor = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(descriptor) });
            rustix::io::dup3(&nothing, &mut descriptor, rustix::io::DupFlags::CLOEXEC)?;
        }
        Ok(())
    }

    /// Readable when the device has an asynchronous event.
    pub fn async_fd(self) -> BorrowedFd<'a> {
        // SAFETY: the context owns the descriptor and is open for `'a`.
        unsafe { BorrowedFd::borrow_raw(self.context.as_ref().async_fd) }
    }
}

/// # Safety
///
/// `device` must be a device of a list that is not freed, or of an open context.
unsafe fn name_of(device: NonNull<ibv_device>) -> String {
    // SAFETY: the caller's contract; libibverbs ends the name with a zero inside of the array.
    let name = unsafe { CStr::from_ptr(device.as_ref().name.as_ptr()) };
    name.to_string_lossy().into_owned()
}

/// A device opened only to be looked at.
///
/// # Invariants
///
/// `context` is open until drop.
pub struct OpenDevice {
    context: NonNull<ibv_context>,
}

impl OpenDevice {
    /// The open device, to be asked.
    pub fn device(&self) -> Device<'_> {
        // SAFETY: open as long as `self`.
        unsafe { Device::of(self.context) }
    }
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        // SAFETY: opened by `open_all` and closed here only. Fails only where something of it is still in use: nothing
        // is.
        let _ = unsafe { ibv_close_device(self.context.as_ptr()) };
    }
}

/// A device that cannot be opened.
#[derive(Debug)]
pub struct Unopened {
    /// Its name.
    pub name: String,
    /// The reason.
    pub refusal: VerbsError,
}

/// Opens every RDMA device of this machine. Err: the libraries or the kernel's modules are missing.
pub fn open_all() -> Result<Vec<Result<OpenDevice, Unopened>>, VerbsError> {
    let mut count = 0;
    // SAFETY: fills in the count; the list is freed below.
    let list = unsafe { ibv_get_device_list(&raw mut count) };
    if list.is_null() {
        return Err(VerbsError::last("listing the RDMA devices"));
    }
    let mut opened = Vec::new();
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the list has `count` entries.
        let Some(device) = NonNull::new(unsafe { *list.add(index) }) else {
            break;
        };
        // SAFETY: a device of a list that is not freed yet. The context keeps the device alive beyond that.
        let context = unsafe { ibv_open_device(device.as_ptr()) };
        opened.push(match NonNull::new(context) {
            Some(context) => Ok(OpenDevice { context }),
            None => {
                let refusal = VerbsError::last("opening an RDMA device");
                // SAFETY: as above.
                let name = unsafe { name_of(device) };
                Err(Unopened { name, refusal })
            }
        });
    }
    // SAFETY: the list of above, freed once.
    unsafe { ibv_free_device_list(list) };
    Ok(opened)
}
