//! Declarations of erl_driver.h, as far as the driver uses them (extended driver interface 3.3, OTP 17 and later).
//!
//! The functions are the VM's own: the library resolves them when a VM loads it.

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};

/// `ErlDrvPort`: names a port inside the VM.
pub type ErlDrvPort = *mut c_void;
/// `ErlDrvData`: what the driver keeps for a port.
pub type ErlDrvData = *mut c_void;
/// `ErlDrvEvent`: on Unix a file descriptor, as a pointer.
pub type ErlDrvEvent = *mut c_void;

/// `ErlDrvBinary`: the bytes follow the size.
#[repr(C)]
pub struct ErlDrvBinary {
    pub orig_size: isize,
    pub orig_bytes: [c_char; 1],
}

/// `ErlIOVec`: pieces, and the binaries that keep them.
#[repr(C)]
pub struct ErlIOVec {
    pub vsize: c_int,
    pub size: usize,
    pub iov: *mut libc::iovec,
    pub binv: *mut *mut ErlDrvBinary,
}

/// `ErlDrvEntry`: the callbacks of a driver.
#[repr(C)]
pub struct ErlDrvEntry {
    pub init: Option<unsafe extern "C" fn() -> c_int>,
    pub start: Option<unsafe extern "C" fn(ErlDrvPort, *mut c_char) -> ErlDrvData>,
    pub stop: Option<unsafe extern "C" fn(ErlDrvData)>,
    pub output: Option<unsafe extern "C" fn(ErlDrvData, *mut c_char, usize)>,
    pub ready_input: Option<unsafe extern "C" fn(ErlDrvData, ErlDrvEvent)>,
    pub ready_output: Option<unsafe extern "C" fn(ErlDrvData, ErlDrvEvent)>,
    pub driver_name: *const c_char,
    pub finish: Option<unsafe extern "C" fn()>,
    pub handle: *mut c_void,
    pub control: Option<unsafe extern "C" fn(ErlDrvData, c_uint, *mut c_char, usize, *mut *mut c_char, usize) -> isize>,
    pub timeout: Option<unsafe extern "C" fn(ErlDrvData)>,
    pub outputv: Option<unsafe extern "C" fn(ErlDrvData, *mut ErlIOVec)>,
    pub ready_async: Option<unsafe extern "C" fn(ErlDrvData, *mut c_void)>,
    pub flush: Option<unsafe extern "C" fn(ErlDrvData)>,
    pub call: Option<unsafe extern "C" fn()>,
    pub unused_event_callback: Option<unsafe extern "C" fn()>,
    pub extended_marker: c_int,
    pub major_version: c_int,
    pub minor_version: c_int,
    pub driver_flags: c_int,
    pub handle2: *mut c_void,
    pub process_exit: Option<unsafe extern "C" fn()>,
    pub stop_select: Option<unsafe extern "C" fn(ErlDrvEvent, *mut c_void)>,
    pub emergency_close: Option<unsafe extern "C" fn(ErlDrvData)>,
}

/// `ERL_DRV_EXTENDED_MARKER`
pub const EXTENDED_MARKER: c_int = 0xfeee_eeed_u32 as c_int;
/// `ERL_DRV_EXTENDED_MAJOR_VERSION`
pub const MAJOR_VERSION: c_int = 3;
/// `ERL_DRV_EXTENDED_MINOR_VERSION` that is asked for.
pub const MINOR_VERSION: c_int = 3;
/// `ERL_DRV_FLAG_USE_PORT_LOCKING`: one callback of a port at a time, ports side by side.
pub const USE_PORT_LOCKING: c_int = 1;
/// `ERL_DRV_FLAG_SOFT_BUSY`: a forced command is let through to a busy port. The VM asks it of distribution ports.
pub const SOFT_BUSY: c_int = 2;
/// `ErlDrvTermData`: a word of a term for [`erl_drv_send_term`].
pub type ErlDrvTermData = usize;
// `ERL_DRV_*` of these names.
pub const TERM_ATOM: ErlDrvTermData = 2;
pub const TERM_PORT: ErlDrvTermData = 4;
pub const TERM_TUPLE: ErlDrvTermData = 7;
pub const TERM_UINT: ErlDrvTermData = 13;
pub const TERM_BUF2BINARY: ErlDrvTermData = 14;
pub const TERM_MAP: ErlDrvTermData = 17;
pub const READ: c_int = 1;
pub const WRITE: c_int = 2;
pub const USE: c_int = 4;

unsafe extern "C" {
    pub fn driver_select(port: ErlDrvPort, event: ErlDrvEvent, mode: c_int, on: c_int) -> c_int;
    pub fn driver_output_binary(
        port: ErlDrvPort,
        hbuf: *mut c_char,
        hlen: usize,
        binary: *mut ErlDrvBinary,
        offset: usize,
        len: usize,
    ) -> c_int;
    pub fn driver_output2(port: ErlDrvPort, hbuf: *mut c_char, hlen: usize, buf: *mut c_char, len: usize) -> c_int;
    pub fn driver_alloc_binary(size: usize) -> *mut ErlDrvBinary;
    pub fn driver_free_binary(binary: *mut ErlDrvBinary);
    pub fn driver_enq(port: ErlDrvPort, buf: *mut c_char, len: usize) -> c_int;
    pub fn driver_binary_inc_refc(binary: *mut ErlDrvBinary) -> isize;
    pub fn driver_deq(port: ErlDrvPort, size: usize) -> usize;
    pub fn driver_sizeq(port: ErlDrvPort) -> usize;
    pub fn driver_set_timer(port: ErlDrvPort, milliseconds: c_ulong) -> c_int;
    pub fn erl_drv_consume_timeslice(port: ErlDrvPort, percent: c_int) -> c_int;
    pub fn set_busy_port(port: ErlDrvPort, on: c_int);
    pub fn driver_failure_atom(port: ErlDrvPort, reason: *mut c_char) -> c_int;
    pub fn driver_mk_atom(name: *mut c_char) -> ErlDrvTermData;
    pub fn driver_mk_port(port: ErlDrvPort) -> ErlDrvTermData;
    pub fn driver_create_port(
        creator: ErlDrvPort,
        connected: ErlDrvTermData,
        name: *mut c_char,
        data: ErlDrvData,
    ) -> ErlDrvPort;
    pub fn driver_caller(port: ErlDrvPort) -> ErlDrvTermData;
    pub fn erl_drv_send_term(
        port: ErlDrvTermData,
        receiver: ErlDrvTermData,
        term: *mut ErlDrvTermData,
        length: c_int,
    ) -> c_int;
    pub fn erl_errno_id(error: c_int) -> *const c_char;
    pub fn driver_lock_driver(port: ErlDrvPort) -> c_int;
}
