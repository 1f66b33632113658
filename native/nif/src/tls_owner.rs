//! The owner of the TLS connection in which a stream began: a process, as a resource of its own.

use std::sync::Arc;

use inet_rdma_engine::connection::{Closed, Connection, ContentsViolation};
use inet_rdma_socket::stream_socket::StreamSocket;
use rustler::{Atom, Encoder, Env, NifResult, Resource, ResourceArc, Term};

use crate::atoms;
use crate::connection::ConnectionResource;
use crate::messages;
use crate::terms::closed_error;
use crate::user::User;

/// The resource behind the Erlang term `Owner`: the connection, without keeping the stream open. If the term is
/// collected before the stream has ended (the owner has died), the stream ends.
pub struct TlsOwnerResource(Arc<StreamSocket<User>>);

#[rustler::resource_impl]
impl Resource for TlsOwnerResource {
    fn destructor(self, env: Env<'_>) {
        messages::with_env(env, || self.connection().close_behind_arrivals(Closed::TlsGone));
    }
}

impl TlsOwnerResource {
    pub fn connection(&self) -> &Connection {
        self.0.connection()
    }
}

/// `tls_owner(Conn) -> {ok, Owner, Id} | {error, closed}`: the caller gets `{'$inet_rdma', Id, ended}` when either side
/// has ended the stream; at once if that has happened already. `Owner` does not keep the stream open.
#[rustler::nif]
fn tls_owner<'a>(env: Env<'a>, conn: ResourceArc<ConnectionResource>) -> Term<'a> {
    let Some(open) = conn.open() else {
        return closed_error(env);
    };
    let socket = Arc::clone(&open.socket);
    messages::with_env(env, || socket.notifier().set_owner(env.pid()));
    let id = open.registered.id;
    (atoms::ok(), ResourceArc::new(TlsOwnerResource(socket)), id).encode(env)
}

/// `end_stream(Owner, tls_gone | tls_bytes) -> ok`: ends the stream with this reason, after the bytes that have
/// arrived. A stream that the peer has ended in order ends in order.
#[rustler::nif]
fn end_stream(env: Env<'_>, owner: ResourceArc<TlsOwnerResource>, reason: Term<'_>) -> NifResult<Atom> {
    let closed = if atoms::tls_gone() == reason {
        Closed::TlsGone
    } else if atoms::tls_bytes() == reason {
        Closed::ContentsViolated(ContentsViolation::TlsBytes)
    } else {
        return Err(rustler::Error::BadArg);
    };
    messages::with_env(env, || owner.connection().close_behind_arrivals(closed));
    Ok(atoms::ok())
}
