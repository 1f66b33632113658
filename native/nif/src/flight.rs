//! The flight recorder of the node.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use inet_rdma_flight::Event;
use rustler::{Atom, Binary, Encoder, Env, NewBinary, NifTuple, Term};

use crate::atoms;

/// The place of an event that Erlang records, and its figures.
#[derive(NifTuple)]
pub struct Measured {
    is_tick: bool,
    link: u64,
    duration_ns: u64,
    amount: u64,
}

fn binary<'a>(env: Env<'a>, bytes: &[u8]) -> Term<'a> {
    let mut binary = NewBinary::new(env, bytes.len());
    binary.as_mut_slice().copy_from_slice(bytes);
    binary.into()
}

/// `flight_start(Directory, Node, Bytes) -> {ok, File} | {error, Why}`: opens the recorder of this VM, unless it is
/// open already.
#[rustler::nif(schedule = "DirtyIo")]
fn flight_start<'a>(env: Env<'a>, directory: Binary<'a>, node: &str, bytes: u64) -> Term<'a> {
    let directory = Path::new(OsStr::from_bytes(directory.as_slice()));
    match inet_rdma_flight::start(directory, node, bytes) {
        Ok(recorder) => (atoms::ok(), binary(env, recorder.path().as_os_str().as_bytes())).encode(env),
        Err(error) => (atoms::error(), binary(env, error.to_string().as_bytes())).encode(env),
    }
}

/// `flight_record(Node, Kind, Path, Cause, Words, {IsTick, Link, DurationNs, Amount}) -> ok`: appends an event, if
/// there is a recorder. Neither a lock nor a system call.
#[rustler::nif]
fn flight_record(node: &str, kind: &str, path: &str, cause: &str, words: &str, measured: Measured) -> Atom {
    inet_rdma_flight::record(&Event {
        node,
        kind,
        path,
        cause,
        words,
        link: measured.link,
        duration_ns: measured.duration_ns,
        amount: measured.amount,
        is_tick: measured.is_tick,
    });
    atoms::ok()
}

/// `flight_recent(Node, Most) -> [Slot]`: the newest events of a node, newest first, as the file has them. It looks at
/// each slot of the file, of which there may be many.
#[rustler::nif(schedule = "DirtyCpu")]
fn flight_recent<'a>(env: Env<'a>, node: &str, most: usize) -> Vec<Term<'a>> {
    let slots = inet_rdma_flight::recorder().map_or(Vec::new(), |recorder| recorder.recent(node, most));
    slots.iter().map(|slot| binary(env, slot)).collect()
}
