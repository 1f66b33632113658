//! The guard of a stream that began inside TLS: the process that owns the TLS connection, as a resource of its own.

use std::sync::Arc;

use inet_rdma_engine::connection::{Closed, Connection, ContentsViolation};
use inet_rdma_socket::stream_socket::StreamSocket;
use rustler::{Atom, Encoder, Env, NifResult, Resource, ResourceArc, Term};

use crate::atoms;
use crate::connection::ConnectionResource;
use crate::messages;
use crate::terms::closed_error;
use crate::user::User;

/// The resource behind the Erlang term `Guard`: the connection, without keeping the stream open. If the term is
/// collected before the stream has ended (the guard has died), the stream ends: no process brings new keys any more.
pub struct GuardResource(Arc<StreamSocket<User>>);

#[rustler::resource_impl]
impl Resource for GuardResource {
    fn destructor(self, env: Env<'_>) {
        messages::with_env(env, || self.connection().close_behind_arrivals(Closed::NoNewKeys));
    }
}

impl GuardResource {
    pub fn connection(&self) -> &Connection {
        self.0.connection()
    }
}

/// `guard(Conn) -> {ok, Guard, Id} | {error, closed}`: the caller gets `{'$inet_rdma', Id, key_due}` when the sending
/// key of the stream nears its limit, once for each key, and `{'$inet_rdma', Id, ended}` when either side has ended the
/// stream; at once if that has happened already. `Guard` does not keep the stream open.
#[rustler::nif]
fn guard<'a>(env: Env<'a>, conn: ResourceArc<ConnectionResource>) -> Term<'a> {
    let Some(open) = conn.open() else {
        return closed_error(env);
    };
    let socket = Arc::clone(&open.socket);
    messages::with_env(env, || socket.notifier().guard(env.pid()));
    let id = open.registered.id;
    (atoms::ok(), ResourceArc::new(GuardResource(socket)), id).encode(env)
}

/// `end_stream(Guard, tls_gone | key_message) -> ok`: ends the stream with this reason, behind the bytes that have
/// arrived. A stream that the peer has ended in order ends in order.
#[rustler::nif]
fn end_stream(env: Env<'_>, guard: ResourceArc<GuardResource>, reason: Term<'_>) -> NifResult<Atom> {
    let closed = if atoms::tls_gone() == reason {
        Closed::NoNewKeys
    } else if atoms::key_message() == reason {
        Closed::ContentsViolated(ContentsViolation::KeyMessage)
    } else {
        return Err(rustler::Error::BadArg);
    };
    messages::with_env(env, || guard.connection().close_behind_arrivals(closed));
    Ok(atoms::ok())
}
