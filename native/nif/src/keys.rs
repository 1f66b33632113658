//! New keys of sealed connections.

use inet_rdma_records::KeyRefused;
use rustler::{Env, NifResult, ResourceArc, Term};

use crate::guard::GuardResource;
use crate::link::LinkResource;
use crate::messages;
use crate::protection::key;
use crate::terms;

/// `link_receive_key(Link, Generation, Key) -> ok | {error, Reason}`: the peer may use this key from here on. The first
/// key has generation 0, each further one the next number.
#[rustler::nif]
fn link_receive_key<'a>(
    env: Env<'a>,
    link: ResourceArc<LinkResource>,
    generation: u32,
    bytes: Term<'a>,
) -> NifResult<Term<'a>> {
    let key = key(bytes)?;
    Ok(match link.connection() {
        Some(connection) => taken(env, connection.install_receive_key(generation, &key)),
        None => terms::closed_error(env),
    })
}

/// `link_send_key(Link, Generation, Key) -> ok | {error, Reason}`: all that the link sends from here on is sealed under
/// this key, which the peer must have installed. Send a tick behind it: the peer sees the change even if nothing else
/// is sent.
#[rustler::nif]
fn link_send_key<'a>(
    env: Env<'a>,
    link: ResourceArc<LinkResource>,
    generation: u32,
    bytes: Term<'a>,
) -> NifResult<Term<'a>> {
    let key = key(bytes)?;
    Ok(match link.connection() {
        Some(connection) => taken(env, connection.rekey_sending(generation, &key)),
        None => terms::closed_error(env),
    })
}

/// `receive_key(Guard, Generation, Key) -> ok | {error, Reason}`: as [`link_receive_key`], of a stream.
#[rustler::nif]
fn receive_key<'a>(
    env: Env<'a>,
    guard: ResourceArc<GuardResource>,
    generation: u32,
    bytes: Term<'a>,
) -> NifResult<Term<'a>> {
    let key = key(bytes)?;
    let connection = guard.connection();
    let result = messages::with_env(env, || connection.install_receive_key(generation, &key));
    Ok(taken(env, result))
}

/// `send_key(Guard, Generation, Key) -> ok | {error, Reason}`: as [`link_send_key`], of a stream, with the tick.
#[rustler::nif]
fn send_key<'a>(
    env: Env<'a>,
    guard: ResourceArc<GuardResource>,
    generation: u32,
    bytes: Term<'a>,
) -> NifResult<Term<'a>> {
    let key = key(bytes)?;
    let connection = guard.connection();
    let result = messages::with_env(env, || {
        connection.rekey_sending(generation, &key)?;
        // The guard learns of the connection's end by its own message `ended`.
        let _ = connection.tick();
        Ok(())
    });
    Ok(taken(env, result))
}

fn taken(env: Env<'_>, result: Result<(), KeyRefused>) -> Term<'_> {
    terms::done(env, result, terms::key_refused)
}
