//! Sockets of MPTCP for the VM's own driver of TCP.

use std::io;

use inet_rdma_port::{errno_name, multipath};
use rustler::{Encoder, Env, Term};

use crate::atoms;
use crate::terms;

/// `multipath_listener(IsV6) -> {ok, Socket} | {error, Posix}`: an unbound socket of MPTCP, which stays open until
/// `take_back(Socket)`.
#[rustler::nif]
fn multipath_listener(env: Env<'_>, is_v6: bool) -> Term<'_> {
    match multipath::lend(is_v6) {
        Ok(socket) => (atoms::ok(), socket).encode(env),
        Err(error) => failed(env, &error),
    }
}

/// `make_multipath(Socket, IsV6) -> ok | {error, Posix}`: the descriptor of a socket of inet, which is open and neither
/// bound nor connected, names a socket of MPTCP from now on. The caller owns the port, and nobody else uses it.
#[rustler::nif]
fn make_multipath(env: Env<'_>, socket: i32, is_v6: bool) -> Term<'_> {
    match multipath::replace(socket, is_v6) {
        Ok(()) => atoms::ok().encode(env),
        Err(error) => failed(env, &error),
    }
}

fn failed<'a>(env: Env<'a>, error: &io::Error) -> Term<'a> {
    let name = terms::atom(env, errno_name(error.raw_os_error().unwrap_or(0)));
    (atoms::error(), name).encode(env)
}
