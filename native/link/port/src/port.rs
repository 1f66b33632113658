//! A port of the VM, as its driver sees it, and a packet that the VM hands over.

use std::ffi::{CStr, c_int};
use std::marker::PhantomData;
use std::ops::Range;
use std::os::fd::RawFd;
use std::ptr::{NonNull, null_mut};

use inet_rdma_assembly::Buffer;
use inet_rdma_link::{Notice, Standing};
use inet_rdma_paths::{CarryingPath, State};
use inet_rdma_session::Log;

use crate::block::{Block, Held};
use crate::notices::{Detail, detail};
use crate::sys;

/// The port that a callback runs for.
///
/// # Invariants
/// The value exists only during a callback of a living port (made by [`Port::during_callback`]), whose lock the VM
/// holds for the calling thread. So every function below may be called.
#[derive(Clone, Copy)]
pub struct Port(sys::ErlDrvPort);

/// The VM's name of an error's number, "emfile", as of `file` and `inet`; "unknown" where it has none.
pub fn errno_name(errno: i32) -> &'static str {
    errno_atom(errno).to_str().unwrap_or("unknown")
}

/// The same for [`Port::notify`].
fn errno_atom(errno: i32) -> &'static CStr {
    // SAFETY: a pure function of the VM, which takes any number.
    let name = unsafe { sys::erl_errno_id(errno) };
    // SAFETY: it answers with a C string of the VM's program, which lives as long as the process.
    unsafe { CStr::from_ptr(name) }
}

/// A pointer for `driver_select`: on Unix an event is a file descriptor.
fn event(fd: RawFd) -> sys::ErlDrvEvent {
    std::ptr::without_provenance_mut(fd as usize)
}

/// Minimum size of a piece of a packet that a log keeps without a copy. A reference costs two atomic operations, and a
/// copy of this size about as much.
const HELD_BYTES_MIN: usize = 4096;

impl Port {
    /// # Safety
    /// `port` must be the port of the callback that is running, and the value must not outlive the callback.
    pub unsafe fn during_callback(port: sys::ErlDrvPort) -> Port {
        Port(port)
    }

    /// Gives the VM one packet, which lies in `block`. False: the VM has given up the connection.
    pub fn deliver(self, block: &Block, range: Range<usize>) -> bool {
        debug_assert!(range.start <= range.end && range.end <= block.bytes());
        // SAFETY: the type's invariant; the range lies in the binary; no header is given. The VM takes a reference of
        // its own for what it keeps.
        unsafe { sys::driver_output_binary(self.0, null_mut(), 0, block.as_ptr(), range.start, range.len()) == 0 }
    }

    /// Gives the VM one packet, which it copies. False: the VM has given up the connection.
    pub fn deliver_copy(self, packet: &[u8]) -> bool {
        // SAFETY: the type's invariant; no header is given; the VM copies the bytes before it returns.
        unsafe { sys::driver_output2(self.0, null_mut(), 0, packet.as_ptr().cast_mut().cast(), packet.len()) == 0 }
    }

    /// Copies bytes behind the port's queue.
    pub fn enqueue(self, bytes: &[u8]) {
        // SAFETY: the type's invariant; the VM copies the bytes before it returns.
        unsafe { sys::driver_enq(self.0, bytes.as_ptr().cast_mut().cast(), bytes.len()) };
    }

    /// Takes all bytes off the queue.
    pub fn clear_queue(self) {
        // SAFETY: the type's invariant.
        unsafe { sys::driver_deq(self.0, sys::driver_sizeq(self.0)) };
    }

    /// Asks for the callback `timeout` in this many milliseconds; 0: after the present port task, before other
    /// processes run. Replaces the earlier request.
    pub fn set_timer(self, milliseconds: u32) {
        // SAFETY: the type's invariant.
        unsafe { sys::driver_set_timer(self.0, milliseconds.into()) };
    }

    /// Ends the port's time slice: a process runs before the next callback. Without this the VM calls a timer of 0 ms
    /// ten times before, since each call counts as 400 of 4,000 reductions, whatever it did.
    pub fn end_time_slice(self) {
        // SAFETY: the type's invariant.
        unsafe { sys::erl_drv_consume_timeslice(self.0, 100) };
    }

    /// Makes the port busy: the VM keeps packets for it, and suspends senders at its own limit.
    pub fn set_busy(self, busy: bool) {
        // SAFETY: the type's invariant.
        unsafe { sys::set_busy_port(self.0, busy.into()) };
    }

    /// Asks for the callback `ready_input` when the descriptor is readable. It must stay open until `stop_select`.
    pub fn watch(self, fd: RawFd) -> bool {
        // SAFETY: the type's invariant; the caller keeps the descriptor open.
        unsafe { sys::driver_select(self.0, event(fd), sys::READ | sys::USE, 1) == 0 }
    }

    /// Asks for the callback `ready_output` when the descriptor, which is watched, is writable; or no longer.
    pub fn watch_writable(self, fd: RawFd, on: bool) {
        // SAFETY: the type's invariant; the descriptor is watched, and so open.
        unsafe { sys::driver_select(self.0, event(fd), sys::WRITE, on.into()) };
    }

    /// The callback `stop_select` follows when the descriptor may be closed.
    pub fn unwatch(self, fd: RawFd) {
        // SAFETY: the type's invariant.
        unsafe { sys::driver_select(self.0, event(fd), sys::READ | sys::WRITE | sys::USE, 0) };
    }

    /// The process that has called `port_control/3`; only in the callback for it.
    pub fn caller(self) -> Process {
        // SAFETY: the type's invariant.
        Process(unsafe { sys::driver_caller(self.0) })
    }

    /// Creates another port of the driver, linked to the caller of `port_control/3`; only in the callback for it. The
    /// VM has locked the port until the callback ends, and does not call `start` for it. None: it has no port left, or
    /// the caller has died.
    ///
    /// # Safety
    /// `data` must be what `start` would give to the VM. It is the VM's if the port is created.
    pub unsafe fn create(self, name: &CStr, data: sys::ErlDrvData) -> Option<sys::ErlDrvPort> {
        // SAFETY: the type's invariant; the VM copies the name; the caller's promise.
        let port = unsafe { sys::driver_create_port(self.0, self.caller().0, name.as_ptr().cast_mut(), data) };
        // ERTS_INVALID_ERL_DRV_PORT
        (port.addr() != usize::MAX).then_some(port)
    }

    /// Sends `{'$inet_rdma', Port, Other}` to the caller of `port_control/3`: another port that was created in this
    /// callback.
    ///
    /// # Safety
    /// `other` must be the result of [`Self::create`] in this callback.
    pub unsafe fn tell_port(self, other: sys::ErlDrvPort) {
        // SAFETY: the caller's promise: the port is locked.
        let other = [sys::TERM_PORT, unsafe { sys::driver_mk_port(other) }];
        let end = [sys::TERM_TUPLE, 3];
        // SAFETY: one term.
        unsafe { self.send(self.caller(), &[&other[..], &end].concat()) };
    }

    /// Sends `{'$inet_rdma', Port, Binary}` to the caller of `port_control/3`.
    pub fn tell_binary(self, bytes: &[u8]) {
        let binary = [sys::TERM_BUF2BINARY, bytes.as_ptr().expose_provenance(), bytes.len()];
        let end = [sys::TERM_TUPLE, 3];
        // SAFETY: one term and the end of the tuple; the VM copies the bytes before the call returns.
        unsafe { self.send(self.caller(), &[&binary[..], &end].concat()) };
    }

    /// Sends `{'$inet_rdma', Port, Name, Standing}`, or `{'$inet_rdma', Port, {Name, Detail}, Standing}`. Standing:
    /// `#{number => N, state => State, path => Path, is_held => IsHeld, has_tcp => HasTcp, attempt => Attempt}`.
    /// To a process that has died: nothing.
    pub fn notify(self, process: Process, notice: &Notice, standing: Standing) {
        let mut terms = Vec::from(atom(notice.name()));
        match detail(notice) {
            None => {}
            Some(Detail::Atom(name)) => {
                terms.extend(atom(name));
                terms.extend([sys::TERM_TUPLE, 2]);
            }
            Some(Detail::Errno(errno)) => {
                terms.extend(atom(errno_atom(errno)));
                terms.extend([sys::TERM_TUPLE, 2]);
            }
            Some(Detail::Binary(bytes)) => {
                terms.extend([sys::TERM_BUF2BINARY, bytes.as_ptr().expose_provenance(), bytes.len()]);
                terms.extend([sys::TERM_TUPLE, 2]);
            }
        }
        let fields = [
            (c"number", unsigned(standing.number)),
            (c"state", atom(state_name(standing.link.state))),
            (c"path", atom(path_name(standing.link.path))),
            (c"is_held", boolean(standing.link.is_held)),
            (c"has_tcp", boolean(standing.link.has_tcp)),
            (c"attempt", unsigned(standing.attempt)),
        ];
        for (key, value) in fields {
            terms.extend(atom(key));
            terms.extend(value);
        }
        terms.extend([sys::TERM_MAP, fields.len(), sys::TERM_TUPLE, 4]);
        // SAFETY: two terms and the end of the tuple; the VM copies a detail's bytes before the call returns.
        unsafe { self.send(process, &terms) };
    }

    /// Sends a tuple that begins with `'$inet_rdma', Port`.
    ///
    /// # Safety
    ///
    /// `rest` is the other terms, in the form that erl_drv_send_term(3) describes, and the end of the tuple; the memory
    /// that it points to lives until the call returns.
    unsafe fn send(self, process: Process, rest: &[sys::ErlDrvTermData]) {
        // SAFETY: the type's invariant.
        let port = unsafe { sys::driver_mk_port(self.0) };
        let tag = atom(c"$inet_rdma");
        let mut term = [&tag[..], &[sys::TERM_PORT, port], rest].concat();
        // There are at most 50 words.
        let words = c_int::try_from(term.len()).unwrap_or(c_int::MAX);
        // SAFETY: the type's invariant; a tuple, whose terms behind the port are as the caller promises.
        let _dead_or_told = unsafe { sys::erl_drv_send_term(port, process.0, term.as_mut_ptr(), words) };
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

/// An atom, as a term of erl_drv_send_term(3).
fn atom(name: &CStr) -> [sys::ErlDrvTermData; 2] {
    // SAFETY: the VM only reads the name, and keeps its own copy.
    [sys::TERM_ATOM, unsafe { sys::driver_mk_atom(name.as_ptr().cast_mut()) }]
}

/// A number, as a term of erl_drv_send_term(3): a word on machines with 64 bits.
fn unsigned(number: u64) -> [sys::ErlDrvTermData; 2] {
    [sys::TERM_UINT, number as sys::ErlDrvTermData]
}

fn boolean(value: bool) -> [sys::ErlDrvTermData; 2] {
    atom(if value { c"true" } else { c"false" })
}

fn state_name(state: State) -> &'static CStr {
    match state {
        State::Carried => c"carried",
        State::Suspected => c"suspected",
        State::Suspended => c"suspended",
    }
}

fn path_name(path: CarryingPath) -> &'static CStr {
    match path {
        CarryingPath::Tcp => c"tcp",
        CarryingPath::QueuePair => c"queue_pair",
        CarryingPath::None => c"none",
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

    fn entries(&self) -> impl Iterator<Item = (&'a [u8], *mut sys::ErlDrvBinary)> + Clone {
        // SAFETY: the type's invariant: `vsize` entries in both arrays.
        let (entries, binaries) = unsafe {
            let vector = &*self.vector;
            let count = usize::try_from(vector.vsize).unwrap_or(0);
            (
                std::slice::from_raw_parts(vector.iov, count),
                std::slice::from_raw_parts(vector.binv, count),
            )
        };
        entries
            .iter()
            .zip(binaries)
            .filter(|(entry, _)| entry.iov_len > 0)
            // SAFETY: the VM keeps the bytes of each entry during the callback, which `'a` stands for.
            .map(|(entry, binary)| (unsafe { slice(entry) }, *binary))
    }

    /// Its pieces that are not empty.
    pub fn pieces(&self) -> impl Iterator<Item = &'a [u8]> + Clone {
        self.entries().map(|(piece, _)| piece)
    }

    /// Adds its bytes from byte `skip` on to a log: copies of small pieces, references to large ones.
    pub fn append_to(&self, log: &mut Log<Held>, skip: usize) {
        let mut skip = skip;
        for (piece, binary) in self.entries() {
            let Some(rest) = piece.get(skip..) else {
                skip -= piece.len();
                continue;
            };
            skip = 0;
            match NonNull::new(binary) {
                // SAFETY: the VM keeps the binary of each entry, in which its bytes lie, during the callback.
                Some(binary) if rest.len() >= HELD_BYTES_MIN => log.hold(unsafe { Held::new(binary, rest) }),
                _ => log.copy(rest),
            }
        }
    }
}
