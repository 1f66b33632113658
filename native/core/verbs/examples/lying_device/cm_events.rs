//! Events of the connection manager that come late, and disconnects that come twice. librdmacm asks the kernel for each
//! event by `write(2)`.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

use crate::profile::any_profile;

/// rdma_user_cm.h: the command, the bytes of its input and of its answer, and the address of the answer.
#[repr(C)]
struct Command {
    number: u32,
    input_bytes: u16,
    answer_bytes: u16,
    answer: u64,
}

const DESTROY_ID: u32 = 2;
const GET_EVENT: u32 = 12;
/// `RDMA_CM_EVENT_DISCONNECTED`.
const DISCONNECTED: u32 = 10;

/// The answer to `GET_EVENT` begins with these.
#[repr(C)]
#[derive(Clone, Copy)]
struct Event {
    user_id: u64,
    id: u32,
    kind: u32,
}

#[derive(Default)]
struct Repeats {
    /// By descriptor: a disconnect that comes once more.
    due: BTreeMap<c_int, Vec<u8>>,
    /// By the kernel's number of an id: repeated events of it, which the process acknowledges.
    given: BTreeMap<u32, u32>,
}

static REPEATS: Mutex<Repeats> = Mutex::new(Repeats {
    due: BTreeMap::new(),
    given: BTreeMap::new(),
});

/// Replaces the function of the C library.
///
/// # Safety
///
/// As `write(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, from: *const c_void, bytes: usize) -> isize {
    // SAFETY: the caller's contract; a command has its whole header.
    unsafe {
        if matches!(bytes, 16 | 24) && from.cast::<Command>().is_aligned() {
            let command = &*from.cast::<Command>();
            match command.number {
                GET_EVENT if bytes == 16 && is_connection_manager(fd) => return next_event(fd, from, command),
                DESTROY_ID if bytes == 24 && is_connection_manager(fd) => return destroy(fd, from, command),
                _ => {}
            }
        }
        plain(fd, from, bytes)
    }
}

/// # Safety
///
/// As `write(2)`.
unsafe fn plain(fd: c_int, from: *const c_void, bytes: usize) -> isize {
    // SAFETY: the caller's contract.
    unsafe { libc::syscall(libc::SYS_write, fd, from, bytes) as isize }
}

fn is_connection_manager(fd: c_int) -> bool {
    if any_profile().is_none_or(|profile| profile.cm_late.is_none() && !profile.cm_twice) {
        return false;
    }
    std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok_and(|path| path.ends_with("rdma_cm"))
}

/// # Safety
///
/// `from` is the command, and there is room for its answer where it says.
unsafe fn next_event(fd: c_int, from: *const c_void, command: &Command) -> isize {
    let Some(profile) = any_profile() else { return -1 };
    let bytes = 16;
    {
        let mut repeats = REPEATS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(event) = repeats.due.remove(&fd) {
            // SAFETY: an answer of the kernel to the same command, and the caller's room for one.
            let given = unsafe {
                std::ptr::copy_nonoverlapping(event.as_ptr(), command.answer as *mut u8, event.len());
                (*(command.answer as *const Event)).id
            };
            *repeats.given.entry(given).or_default() += 1;
            return bytes as isize;
        }
    }
    let mut ready = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: an array of one.
    let is_ready = unsafe { libc::poll(&raw mut ready, 1, 0) } == 1;
    if let (true, Some(late)) = (is_ready, profile.cm_late) {
        std::thread::sleep(late);
    }
    // SAFETY: the caller's contract.
    let result = unsafe { plain(fd, from, bytes) };
    if result == bytes as isize && profile.cm_twice {
        // SAFETY: the kernel has filled the answer, of which the command says the length.
        let (event, answer) = unsafe {
            let answer = command.answer as *const u8;
            let answer_bytes = usize::from(command.answer_bytes);
            (
                *(answer.cast::<Event>()),
                std::slice::from_raw_parts(answer, answer_bytes),
            )
        };
        if event.kind == DISCONNECTED && event.user_id != 0 {
            let mut repeats = REPEATS.lock().unwrap_or_else(PoisonError::into_inner);
            repeats.due.insert(fd, answer.to_vec());
        }
    }
    result
}

/// The process waits until it has acknowledged as many events as the answer says.
///
/// # Safety
///
/// As [`next_event`].
unsafe fn destroy(fd: c_int, from: *const c_void, command: &Command) -> isize {
    // SAFETY: the caller's contract: the number of the id follows the header.
    let id = unsafe { from.cast::<u32>().add(4).read() };
    let mut repeats = REPEATS.lock().unwrap_or_else(PoisonError::into_inner);
    let is_of_other = |event: &Vec<u8>| event[8..12] != id.to_ne_bytes();
    repeats.due.retain(|_, event| is_of_other(event));
    let given = repeats.given.remove(&id).unwrap_or(0);
    drop(repeats);
    // SAFETY: the caller's contract; the answer is a number.
    unsafe {
        let result = plain(fd, from, 24);
        if result == 24 {
            *(command.answer as *mut u32) += given;
        }
        result
    }
}
