//! The name of this node on its host, by which another node proves that both share one, and later whether this one
//! lives.

use std::collections::BTreeMap;

use inet_rdma_engine::attempt::Attempt;
use inet_rdma_fabric::crash::EndsAtCrash;
use inet_rdma_fabric_shm::own_name;
use inet_rdma_fabric_shm::socket_name::SocketName;
use parking_lot::Mutex;
use rustler::{Atom, Binary, Encoder, Env, Term};

use crate::atoms;
use crate::terms;

/// `witness_name() -> {ok, Name} | {error, Reason}`: this VM's name in its network namespace, 42 bytes of which 128
/// bits are random. It stays while the VM lives: the VM accepts connections there, and closes them at once. From a
/// crash on they are refused, before the dump is written.
///
/// Makes no system call, except that the first call opens the listener.
#[rustler::nif]
fn witness_name(env: Env<'_>) -> Term<'_> {
    let name = Attempt::own_name().map(|name| name.to_string());
    name.map_err(|error| terms::fabric_error(env, &error)).encode(env)
}

/// `find_witness(Name) -> {present, #{pid := Pid, uid := User}} | absent | {error, Reason}`: the process of this
/// network namespace that listens under the name of [`witness_name`] of another VM. `absent`: there is none. `einval`:
/// no VM has such a name. `Pid` 0: of another process-id namespace, or not known. `User` 16#ffffffff: not known, as too
/// many connections wait there.
///
/// Never blocks.
#[rustler::nif]
fn find_witness<'a>(env: Env<'a>, name: Binary<'a>) -> Term<'a> {
    let text = std::str::from_utf8(&name).ok();
    let Some(name) = text.and_then(|text| text.parse::<SocketName>().ok()) else {
        return (atoms::error(), atoms::einval()).encode(env);
    };
    match own_name::find(&name) {
        Ok(Some(found)) => {
            let process = terms::map(env, &[("pid", &found.pid), ("uid", &found.user)]);
            (atoms::present(), process).encode(env)
        }
        Ok(None) => atoms::absent().encode(env),
        Err(error) => (atoms::error(), terms::fabric_error(env, &error)).encode(env),
    }
}

/// Listening sockets of other parts of the VM.
static LISTENERS: Mutex<BTreeMap<i32, EndsAtCrash>> = Mutex::new(BTreeMap::new());

/// `refuse_at_crash(Descriptor) -> ok`: the listening socket of this number refuses connections from a crash of the VM
/// on, before the dump is written. Until [`keep_at_crash`].
#[rustler::nif]
fn refuse_at_crash(descriptor: i32) -> Atom {
    LISTENERS
        .lock()
        .entry(descriptor)
        .or_insert_with(|| EndsAtCrash::enter_number(descriptor));
    atoms::ok()
}

/// `keep_at_crash(Descriptor) -> ok`: takes back [`refuse_at_crash`]. Call it before the socket is closed.
#[rustler::nif]
fn keep_at_crash(descriptor: i32) -> Atom {
    LISTENERS.lock().remove(&descriptor);
    atoms::ok()
}
