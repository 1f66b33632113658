//! The driver's entry: the VM's callbacks, each of which ends here if it panics.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::buf::UninitSlice;
use inet_rdma_fabric::crash;
use inet_rdma_path_tcp::descriptors;

use crate::commands::{self, Command, Contents};
use crate::handover;
use crate::link::{Fate, Link};
use crate::port::{Packet, Port};
use crate::sys;

/// The library's file name without its ending: `erl_ddll` finds the driver by it.
const NAME: &CStr = c"inet_rdma_nif";

/// The exit reason of a port whose connection has ended: that of inet_tcp's supervisor.
const CONNECTION_CLOSED: &CStr = c"connection_closed";
/// The exit reason of a port whose callback panicked.
const FAILED: &CStr = c"inet_rdma_failed";

/// The name of the ports of OTP's driver of TCP. Tools find the port of a link by it; [`crate::inet`] answers them.
const NAME_OF_INET: &CStr = c"tcp_inet";

/// The state of a port. The VM runs one callback of a port at a time.
struct Data {
    port: Cell<sys::ErlDrvPort>,
    contents: RefCell<Contents>,
    /// A callback panicked: the link's state may be inconsistent.
    has_failed: Cell<bool>,
}

impl Data {
    fn of(port: sys::ErlDrvPort) -> Box<Data> {
        Box::new(Data {
            port: Cell::new(port),
            contents: RefCell::default(),
            has_failed: Cell::new(false),
        })
    }
}

/// Opens another port, with the name of inet's, for the caller of this one. True: the caller has a message with it.
fn open_named(opener: Port) -> bool {
    let data = Box::into_raw(Data::of(std::ptr::null_mut()));
    // SAFETY: the data is of the same type and origin as that of `start`.
    let Some(port) = (unsafe { opener.create(NAME_OF_INET, data.cast()) }) else {
        // SAFETY: the VM has not taken it.
        drop(unsafe { Box::from_raw(data) });
        return false;
    };
    // SAFETY: the port is locked until this callback ends, so no callback of it has run or freed its data.
    unsafe { (*data).port.set(port) };
    // SAFETY: it was created in this callback.
    unsafe { opener.tell_port(port) };
    true
}

/// Runs one callback.
///
/// # Safety
/// `data` must be what [`start`] gave to the VM, `stop` must not have been called for it, and the port's lock must be
/// held: so it is in every callback of a port.
unsafe fn callback<R>(data: sys::ErlDrvData, otherwise: R, run: impl FnOnce(Port, &mut Contents) -> (R, Fate)) -> R {
    // SAFETY: the caller's promise; `Data` is only freed in `stop`.
    let data_ref = unsafe { &*data.cast::<Data>() };
    // SAFETY: this is a callback of that port.
    let port = unsafe { Port::during_callback(data_ref.port.get()) };
    if data_ref.has_failed.get() {
        return otherwise;
    }
    let done = catch_unwind(AssertUnwindSafe(|| run(port, &mut data_ref.contents.borrow_mut())));
    match done {
        Ok((result, Fate::Lives)) => result,
        Ok((result, Fate::Ends)) => {
            port.clear_queue();
            // The VM may call `stop` from here: `data_ref` is not used below.
            port.fail(CONNECTION_CLOSED);
            result
        }
        Err(_panic) => {
            data_ref.has_failed.set(true);
            port.clear_queue();
            port.fail(FAILED);
            otherwise
        }
    }
}

unsafe extern "C" fn start(port: sys::ErlDrvPort, _command: *mut c_char) -> sys::ErlDrvData {
    // SAFETY: this is a callback of that port.
    unsafe { Port::during_callback(port) }.lock_driver();
    handover::note_driver();
    descriptors::refill();
    Box::into_raw(Data::of(port)).cast()
}

unsafe extern "C" fn stop(data: sys::ErlDrvData) {
    // SAFETY: the VM calls `stop` last and once, with what `start` gave it.
    let data = unsafe { Box::from_raw(data.cast::<Data>()) };
    // SAFETY: this is a callback of that port.
    let port = unsafe { Port::during_callback(data.port.get()) };
    let Some(mut link) = data.contents.into_inner().link else {
        return;
    };
    let _said_when_it_happened = catch_unwind(AssertUnwindSafe(move || link.close(port)));
}

/// Runs one callback for the port's link, if it has one.
///
/// # Safety
/// As of [`callback`].
unsafe fn link_callback(data: sys::ErlDrvData, run: impl FnOnce(Port, &mut Link) -> Fate) {
    // SAFETY: the caller's promise.
    unsafe {
        callback(data, (), |port, contents| {
            let link = contents.link.as_mut();
            ((), link.map_or(Fate::Lives, |link| run(port, link)))
        });
    }
}

unsafe extern "C" fn outputv(data: sys::ErlDrvData, vector: *mut sys::ErlIOVec) {
    // SAFETY: a callback of the VM.
    unsafe {
        link_callback(data, |port, link| {
            link.send(port, &Packet::during_callback(vector));
            Fate::Lives
        });
    }
}

unsafe extern "C" fn ready_input(data: sys::ErlDrvData, event: sys::ErlDrvEvent) {
    // SAFETY: a callback of the VM.
    unsafe { link_callback(data, |port, link| link.handle_event(port, descriptor(event))) };
}

unsafe extern "C" fn ready_output(data: sys::ErlDrvData, event: sys::ErlDrvEvent) {
    // SAFETY: a callback of the VM.
    unsafe {
        link_callback(data, |port, link| {
            link.handle_writable(port, descriptor(event));
            Fate::Lives
        });
    }
}

/// The VM is about to write a crash dump. No lock is held, nothing of the port may be called, and other threads may be
/// in the middle of a callback of this port: its state is left alone.
unsafe extern "C" fn emergency_close(_data: sys::ErlDrvData) {
    crash::shut_down_all();
}

unsafe extern "C" fn timeout(data: sys::ErlDrvData) {
    // SAFETY: a callback of the VM.
    unsafe { link_callback(data, |port, link| link.handle_timeout(port)) };
}

unsafe extern "C" fn flush(data: sys::ErlDrvData) {
    // SAFETY: a callback of the VM.
    unsafe {
        link_callback(data, |port, link| {
            link.flush(port);
            Fate::Lives
        });
    }
}

/// Answers are lists of bytes; -1 is the caller's `badarg`.
unsafe extern "C" fn control(
    data: sys::ErlDrvData,
    command: c_uint,
    buffer: *mut c_char,
    bytes: usize,
    answer: *mut *mut c_char,
    answer_bytes: usize,
) -> isize {
    let argument: &[u8] = match bytes {
        0 => &[],
        // SAFETY: the VM gives a buffer of this length.
        _ => unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), bytes) },
    };
    // SAFETY: the VM gives room for this many bytes, which nothing has written; an answer that fits is left there.
    let room = unsafe { UninitSlice::from_raw_parts_mut((*answer).cast::<u8>(), answer_bytes) };
    // SAFETY: a callback of the VM.
    let answered = unsafe {
        callback(data, None, |port, contents| match commands::parse(command, argument) {
            Some((Command::Open, _)) if contents.link.is_none() => {
                (commands::answer_whether(open_named(port), room), Fate::Lives)
            }
            Some((command, argument)) => commands::execute(port, contents, command, argument, room),
            None => {
                let link = contents.link.as_ref();
                (commands::answer_inet(link, command, argument, room), Fate::Lives)
            }
        })
    };
    answered.map_or(-1, |bytes| bytes as isize)
}

/// The VM calls it on any thread, also after `stop`.
unsafe extern "C" fn stop_select(event: sys::ErlDrvEvent, _reserved: *mut c_void) {
    let _said_when_it_happened = catch_unwind(|| handover::forget(descriptor(event)));
}

fn descriptor(event: sys::ErlDrvEvent) -> RawFd {
    event.addr() as RawFd
}

/// The description of the driver for the VM, which writes to it (`handle`, `handle2`): so it is not a constant.
struct Entry(std::cell::UnsafeCell<sys::ErlDrvEntry>);

// SAFETY: only the VM uses the entry, under its own locks.
unsafe impl Sync for Entry {}

static ENTRY: Entry = Entry(std::cell::UnsafeCell::new(sys::ErlDrvEntry {
    init: None,
    start: Some(start),
    stop: Some(stop),
    output: None,
    ready_input: Some(ready_input),
    ready_output: Some(ready_output),
    driver_name: NAME.as_ptr(),
    finish: None,
    handle: std::ptr::null_mut(),
    control: Some(control),
    timeout: Some(timeout),
    outputv: Some(outputv),
    ready_async: None,
    flush: Some(flush),
    call: None,
    unused_event_callback: None,
    extended_marker: sys::EXTENDED_MARKER,
    major_version: sys::MAJOR_VERSION as c_int,
    minor_version: sys::MINOR_VERSION as c_int,
    driver_flags: sys::USE_PORT_LOCKING | sys::SOFT_BUSY,
    handle2: std::ptr::null_mut(),
    process_exit: None,
    stop_select: Some(stop_select),
    emergency_close: Some(emergency_close),
}));

/// The symbol by which `erl_ddll` finds the driver.
#[unsafe(no_mangle)]
pub extern "C" fn driver_init() -> *mut sys::ErlDrvEntry {
    ENTRY.0.get()
}
