//! The flight recorder of the node.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Once;
use std::time::Duration;

use inet_rdma_fabric::threads;
use inet_rdma_flight::{Event, Report};
use rustler::{Binary, Encoder, Env, NewBinary, Term};

use crate::atoms;
use crate::terms;

pub(crate) fn binary<'a>(env: Env<'a>, bytes: &[u8]) -> Term<'a> {
    let mut binary = NewBinary::new(env, bytes.len());
    binary.as_mut_slice().copy_from_slice(bytes);
    binary.into()
}

/// The end of the VM waits this long for a disk, so that the file has the last events.
const LAST_WRITE: Duration = Duration::from_millis(200);

/// The C library calls it when the VM ends in order: after init:stop, halt or SIGTERM, and not after a crash.
extern "C" fn write_last() {
    inet_rdma_flight::flush(LAST_WRITE);
}

/// `flight_start(Directories, Node, Bytes) -> ok | {error, Why}`: starts the recorder of this VM; one that runs gets
/// the node's name. Its file will be in the first directory where it can be made.
#[rustler::nif]
fn flight_start<'a>(env: Env<'a>, directories: Vec<Binary<'a>>, node: &str, bytes: u64) -> Term<'a> {
    static AT_EXIT: Once = Once::new();
    let directories = directories.iter().map(|path| PathBuf::from(OsStr::from_bytes(path)));
    let started = inet_rdma_flight::start(directories.collect(), node, bytes, |write| {
        // SAFETY: `write` holds the memory of the recorder and paths, and opens the files itself.
        unsafe { threads::start_apart("inet_rdma/flight", write) }
    });
    // SAFETY: the function has the type that atexit wants, stays loaded with the library, and cannot unwind: it waits
    // for a condition, and has no other step that could panic.
    AT_EXIT.call_once(|| _ = unsafe { libc::atexit(write_last) });
    terms::done(env, started, |env, error| binary(env, error.to_string().as_bytes()))
}

/// `flight_record(Node, Kind, Path, Cause, Words, {IsTick, Link, DurationNs, Amount}) -> ok | {failed, Why} |
/// {written, Failures}`: appends an event, if there is a recorder. No lock, and no system call but the one that wakes
/// the thread that writes the file. Returns news of that thread once.
#[rustler::nif]
fn flight_record<'a>(
    env: Env<'a>,
    node: &str,
    kind: &str,
    path: &str,
    cause: &str,
    words: &str,
    (is_tick, link, duration_ns, amount): (bool, u64, u64, u64),
) -> Term<'a> {
    inet_rdma_flight::record(&Event {
        node,
        kind,
        path,
        cause,
        words,
        link,
        duration_ns,
        amount,
        is_tick,
    });
    match inet_rdma_flight::report() {
        None => atoms::ok().encode(env),
        Some(Report::Failed(why)) => (atoms::failed(), binary(env, why.as_bytes())).encode(env),
        Some(Report::Written { failures }) => (atoms::written(), failures).encode(env),
    }
}

/// `flight_file() -> Path | none`: the path of the recorder's file, if it is made.
#[rustler::nif]
fn flight_file(env: Env<'_>) -> Term<'_> {
    match inet_rdma_flight::file() {
        None => atoms::none().encode(env),
        Some(path) => binary(env, path.as_os_str().as_bytes()),
    }
}

/// `flight_recent(Node, Most) -> [Slot]`: the newest events of a node, newest first, as the file has them. It looks at
/// each slot in memory, of which there may be many.
#[rustler::nif(schedule = "DirtyCpu")]
fn flight_recent<'a>(env: Env<'a>, node: &str, most: usize) -> Vec<Term<'a>> {
    let slots = inet_rdma_flight::recorder().map_or(Vec::new(), |recorder| recorder.recent(node, most));
    slots.iter().map(|slot| binary(env, slot)).collect()
}
