//! Errors as Erlang terms.

use inet_rdma_engine::connection::Closed;
use inet_rdma_engine::fabric::FabricError;
use inet_rdma_stream::{PROTOCOL_VERSION, WireError};
use rustler::{Encoder, Env, Term};

use crate::atoms;

/// Why a connection ended, as a reason.
pub fn closed<'a>(env: Env<'a>, closed: &Closed) -> Term<'a> {
    match closed {
        Closed::Here | Closed::ByPeer => atoms::closed().encode(env),
        Closed::PeerGone => atoms::peer_gone().encode(env),
        Closed::PeerMisbehaved(how) => (atoms::peer_misbehaved(), how).encode(env),
        Closed::Fabric(what) => (atoms::fabric(), what).encode(env),
        Closed::NoMemory(what) => (atoms::no_memory(), what).encode(env),
    }
}

/// What went wrong below the stream, as a reason.
pub fn fabric_error<'a>(env: Env<'a>, error: &FabricError) -> Term<'a> {
    match error {
        FabricError::PeerGone => atoms::peer_gone().encode(env),
        FabricError::PeerMisbehaved(how) => (atoms::peer_misbehaved(), how).encode(env),
        FabricError::WrongUser { theirs, ours } => (atoms::wrong_user(), theirs, ours).encode(env),
        FabricError::Hello(WireError::Version { theirs }) => {
            (atoms::version_mismatch(), theirs, PROTOCOL_VERSION).encode(env)
        }
        FabricError::Hello(other) => (atoms::bad_hello(), other.to_string()).encode(env),
        FabricError::WrongToken => (atoms::wrong_token(), error.to_string()).encode(env),
        FabricError::Refused(_) => atoms::econnrefused().encode(env),
        FabricError::PortsTaken { .. } => atoms::eaddrinuse().encode(env),
        FabricError::TimedOut => atoms::etimedout().encode(env),
        FabricError::OnlyStrangers { .. } => (atoms::etimedout(), error.to_string()).encode(env),
        FabricError::QueueFull => atoms::enobufs().encode(env),
        FabricError::NoRoute(why) => (atoms::no_route(), why).encode(env),
        FabricError::Rejected(why) => (atoms::rejected(), why).encode(env),
        FabricError::LockedMemory { .. } | FabricError::SharedMemory { .. } => {
            (atoms::no_memory(), error.to_string()).encode(env)
        }
        FabricError::System { doing, error } => (atoms::system(), doing, error.to_string()).encode(env),
        other => (atoms::fabric(), other.to_string()).encode(env),
    }
}
