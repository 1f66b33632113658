//! A port of the VM, as its driver sees it, and a packet that the VM hands over.

use std::ffi::{CStr, c_int};
use std::marker::PhantomData;
use std::ops::Range;
use std::os::fd::RawFd;

use crate::block::Block;
use crate::sys;

/// The port that a callback runs for.
///
/// # Invariants
/// The value exists only during a callback of a living port (made by [`Port::during_callback`]), whose lock the VM holds for
/// the calling thread. So every function below may be called.
#[derive(Clone, Copy)]
pub struct Port(sys::ErlDrvPort);

/// The VM's name of an error's number, "emfile", as `file` and `inet` return it as an atom; "unknown" where it has none.
pub fn errno_name(errno: i32) -> &'static str {
    // SAFETY: a pure function of the VM, which takes any number.
    let name = unsafe { sys::erl_errno_id(errno) };
    // SAFETY: it answers with a C string of the VM's program, which lives as long as the process.
    unsafe { CStr::from_ptr(name) }.to_str().unwrap_or("unknown")
}

/// A pointer for `driver_select`: on Unix an event is a file descriptor.
fn event(fd: RawFd) -> sys::ErlDrvEvent {
    std::ptr::without_provenance_mut(fd as usize)
}

/// Slices of the queue that are looked at together: what one transfer gathers.
const QUEUE_SLICES: usize = 256;

impl Port {
    /// # Safety
    /// `port` must be the port of the callback that is running, and the value must not outlive the callback.
    pub unsafe fn during_callback(port: sys::ErlDrvPort) -> Port {
        Port(port)
    }

    /// Gives the VM one packet, which lies in `block`. False: the VM has given up the connection.
    pub fn deliver(self, block: &Block, range: Range<usize>) -> bool {
        debug_assert!(range.start <= range.end && range.end <= block.len());
        // SAFETY: the type's invariant; the range lies in the binary; no header is given. The VM takes a reference of its own
        // for what it keeps.
        unsafe {
            sys::driver_output_binary(
                self.0,
                std::ptr::null_mut(),
                0,
                block.as_ptr(),
                range.start,
                range.len(),
            ) == 0
        }
    }

    /// Bytes in the port's queue.
    pub fn queued_bytes(self) -> usize {
        // SAFETY: the type's invariant.
        unsafe { sys::driver_sizeq(self.0) }
    }

    /// Copies bytes behind the port's queue.
    pub fn enqueue(self, bytes: &[u8]) {
        // SAFETY: the type's invariant; the VM copies the bytes before it returns.
        unsafe { sys::driver_enq(self.0, bytes.as_ptr().cast_mut().cast(), bytes.len()) };
    }

    /// Puts a packet from its byte `skip` on behind the port's queue: its binaries are kept, not copied.
    pub fn enqueue_packet(self, packet: &Packet<'_>, skip: usize) {
        // SAFETY: the type's invariant; the vector is the VM's own, as it came in the callback that is running.
        unsafe { sys::driver_enqv(self.0, packet.vector, skip) };
    }

    /// Shows the first pieces of the queue.
    pub fn with_queue<R>(self, look: impl FnOnce(&[&[u8]]) -> R) -> R {
        let mut count: c_int = 0;
        // SAFETY: the type's invariant.
        let vector = unsafe { sys::driver_peekq(self.0, &raw mut count) };
        let mut pieces = [&[] as &[u8]; QUEUE_SLICES];
        let count = usize::try_from(count).unwrap_or(0).min(QUEUE_SLICES);
        let count = if vector.is_null() { 0 } else { count };
        for (index, piece) in pieces.iter_mut().enumerate().take(count) {
            // SAFETY: the VM gives `count` entries; each refers to bytes that stay until they are taken off the queue, which
            // only this callback could do, after `look`.
            *piece = unsafe { slice(&*vector.add(index)) };
        }
        look(&pieces[..count])
    }

    /// Takes bytes off the queue's front.
    pub fn dequeue(self, bytes: usize) {
        // SAFETY: the type's invariant. More bytes than are queued take all.
        unsafe { sys::driver_deq(self.0, bytes) };
    }

    /// Asks for the callback `timeout` in this many milliseconds; 0: after what is under way, before other processes run.
    /// Replaces what was asked for before.
    pub fn set_timer(self, milliseconds: u32) {
        // SAFETY: the type's invariant.
        unsafe { sys::driver_set_timer(self.0, milliseconds.into()) };
    }

    /// A busy port is given no packets: the VM keeps them, and at its own limit suspends senders.
    pub fn set_busy(self, busy: bool) {
        // SAFETY: the type's invariant.
        unsafe { sys::set_busy_port(self.0, busy.into()) };
    }

    /// Asks for the callback `ready_input` when the descriptor is readable. It must stay open until `stop_select`.
    pub fn watch(self, fd: RawFd) -> bool {
        // SAFETY: the type's invariant; the caller keeps the descriptor open.
        unsafe { sys::driver_select(self.0, event(fd), sys::READ | sys::USE, 1) == 0 }
    }

    /// The callback `stop_select` follows when the descriptor may be closed.
    pub fn unwatch(self, fd: RawFd) {
        // SAFETY: the type's invariant.
        unsafe { sys::driver_select(self.0, event(fd), sys::READ | sys::USE, 0) };
    }

    /// The process that has called `port_control/3`; only in the callback for it.
    pub fn caller(self) -> Process {
        // SAFETY: the type's invariant.
        Process(unsafe { sys::driver_caller(self.0) })
    }

    /// Sends `{'$inet_rdma', Port, What}`. To a process that has died: nothing.
    pub fn tell(self, process: Process, what: &CStr) {
        let atom = |name: &CStr| {
            // SAFETY: the type's invariant; the VM only reads the name.
            unsafe { sys::driver_mk_atom(name.as_ptr().cast_mut()) }
        };
        // SAFETY: the type's invariant.
        let port = unsafe { sys::driver_mk_port(self.0) };
        let mut term = [
            [sys::TERM_ATOM, atom(c"$inet_rdma")],
            [sys::TERM_PORT, port],
            [sys::TERM_ATOM, atom(what)],
            [sys::TERM_TUPLE, 3],
        ];
        // SAFETY: the type's invariant; the term has the form that erl_drv_send_term(3) says, in 8 words.
        let _dead_or_told = unsafe { sys::erl_drv_send_term(port, process.0, term.as_mut_ptr().cast(), 8) };
    }

    /// Keeps the driver in memory as long as the VM lives: threads of the library run on without any port.
    pub fn lock_driver(self) {
        // SAFETY: the type's invariant.
        unsafe { sys::driver_lock_driver(self.0) };
    }

    /// Ends the port: those linked to it get this exit reason. **The VM may call `stop` before this returns**, so
    /// nothing of the port may be used afterwards.
    pub fn fail(self, reason: &CStr) {
        // SAFETY: the type's invariant; the VM only reads the reason.
        unsafe { sys::driver_failure_atom(self.0, reason.as_ptr().cast_mut()) };
    }
}

/// A process, as the VM's driver interface names it.
#[derive(Clone, Copy)]
pub struct Process(sys::ErlDrvTermData);

/// # Safety
/// The entry must refer to readable bytes for `'a`.
unsafe fn slice<'a>(entry: &libc::iovec) -> &'a [u8] {
    match entry.iov_len {
        0 => &[],
        // SAFETY: the caller's promise.
        bytes => unsafe { std::slice::from_raw_parts(entry.iov_base.cast::<u8>(), bytes) },
    }
}

/// A packet of the VM on its way out.
///
/// # Invariants
/// `vector` is valid during the callback `outputv` that it came with.
pub struct Packet<'a> {
    vector: *mut sys::ErlIOVec,
    callback: PhantomData<&'a ()>,
}

impl<'a> Packet<'a> {
    /// # Safety
    /// `vector` must be what the VM gave to the callback `outputv` that is running, for `'a` at most.
    pub unsafe fn during_callback(vector: *mut sys::ErlIOVec) -> Packet<'a> {
        Packet {
            vector,
            callback: PhantomData,
        }
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        // SAFETY: the type's invariant.
        unsafe { (*self.vector).size }
    }

    /// Its pieces, empty ones left out.
    pub fn pieces(&self) -> impl Iterator<Item = &'a [u8]> {
        // SAFETY: the type's invariant: `vsize` entries.
        let entries = unsafe {
            let vector = &*self.vector;
            std::slice::from_raw_parts(vector.iov, usize::try_from(vector.vsize).unwrap_or(0))
        };
        // SAFETY: the VM keeps the bytes of each entry during the callback, which `'a` stands for.
        entries
            .iter()
            .filter(|entry| entry.iov_len > 0)
            .map(|entry| unsafe { slice(entry) })
    }
}
