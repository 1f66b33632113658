//! Sends and receives that are posted, and complete as messages.

use inet_rdma_engine::assembly::Framing;
use inet_rdma_engine::connection::{Closed, Wakes};
use inet_rdma_engine::fabric::FabricError;
use rustler::{Encoder, Env, LocalPid, NifResult, ResourceArc, Term};

use crate::atoms;
use crate::connection::{ConnectionResource, closed_error};
use crate::posted_sends::PostedSend;
use crate::receipt::Receipt;
use crate::terms;
use crate::transfer::charge;

const WRITER: Wakes = Wakes {
    reader: false,
    writer: true,
};
const READER: Wakes = Wakes {
    reader: true,
    writer: false,
};

fn error<'a>(env: Env<'a>, why: impl Encoder) -> Term<'a> {
    (atoms::error(), why).encode(env)
}

/// `post_send(Conn, Socket, Reference, Binaries) -> ok | {error, Reason}`: after `ok` the caller gets one
/// `{inet_rdma_sent, Socket, Reference, {ok, Bytes} | {error, Reason}}`. `enobufs`: `sends_max` are posted already.
#[rustler::nif]
fn post_send<'a>(
    env: Env<'a>,
    conn: ResourceArc<ConnectionResource>,
    socket: Term<'a>,
    reference: Term<'a>,
    binaries: Term<'a>,
) -> NifResult<Term<'a>> {
    let Some(open) = conn.open() else {
        return Ok(closed_error(env));
    };
    if let Some(closed) = open.connection().closed() {
        return Ok(error(env, terms::closed(env, &closed)));
    }
    let posts = conn.posts();
    let framing = open.connection().framing();
    let send = PostedSend::new(Receipt::new(env, socket, reference), binaries, framing)?;
    let bytes = send.left();
    let Ok(holder) = posts.pen.post(send, posts.bounds.sends) else {
        return Ok(error(env, atoms::enobufs()));
    };
    if let Some(holder) = holder {
        watch(env, &conn, holder);
    }
    conn.go_on(env, &open, WRITER);
    charge(env, bytes.min(posts.bounds.call_bytes));
    Ok(atoms::ok().encode(env))
}

/// `post_recv(Conn, Socket, Reference, Length) -> ok | {error, Reason}`: after `ok` the caller gets one
/// `{inet_rdma_received, Socket, Reference, {ok, Data} | {error, Reason}}`. `enobufs`: `receives_max` are posted already;
/// `einval`: in active mode, or a length where packets say theirs.
#[rustler::nif]
fn post_recv<'a>(
    env: Env<'a>,
    conn: ResourceArc<ConnectionResource>,
    socket: Term<'a>,
    reference: Term<'a>,
    length: usize,
) -> Term<'a> {
    // One that the peer has ended may still hold what it sent before.
    let Some(open) = conn.open() else {
        return closed_error(env);
    };
    let posts = conn.posts();
    {
        let mut receives = posts.receives.lock();
        let fits = length == 0 || open.connection().framing() == Framing::Raw;
        if !fits || conn.subscribers().active().is_some() {
            return error(env, atoms::einval());
        }
        if receives.len() >= posts.bounds.receives {
            return error(env, atoms::enobufs());
        }
        receives.post(open.connection(), Receipt::new(env, socket, reference), length);
    }
    conn.go_on(env, &open, READER);
    charge(env, length.min(posts.bounds.call_bytes));
    atoms::ok().encode(env)
}

/// `leave(Conn, Binaries, Sent) -> ok`: the caller gives up on a `send/3` of these binaries, of which `Sent` bytes have
/// gone, with the header. None: none will. Else the rest goes by itself, so that the peer's stream stays whole.
#[rustler::nif]
fn leave<'a>(
    env: Env<'a>,
    conn: ResourceArc<ConnectionResource>,
    binaries: Term<'a>,
    sent: usize,
) -> NifResult<Term<'a>> {
    let Some(open) = conn.open() else {
        return Ok(atoms::ok().encode(env));
    };
    let rest = if sent == 0 {
        None
    } else {
        let framing = open.connection().framing();
        let mut rest = PostedSend::new(Receipt::silent(), binaries, framing)?;
        rest.advance(sent);
        Some(rest)
    };
    let wakes = conn.posts().pen.leave(env.pid(), rest);
    conn.wake(env, wakes);
    Ok(atoms::ok().encode(env))
}

/// `cancel(Conn, Reference) -> ok | {error, too_late | closed}`: `ok`, and there is no message. `too_late`: bytes of the
/// send have gone, or the message is under way or was read already.
#[rustler::nif]
fn cancel<'a>(env: Env<'a>, conn: ResourceArc<ConnectionResource>, reference: Term<'a>) -> Term<'a> {
    let Some(open) = conn.open() else {
        return closed_error(env);
    };
    let posts = conn.posts();
    let (send, wakes) = posts.pen.cancel(reference);
    if send == Some(true) {
        conn.wake(env, wakes);
        return atoms::ok().encode(env);
    }
    if send.is_none() && posts.receives.lock().cancel(open.connection(), reference) {
        // What was kept for it may be what the next one waits for.
        conn.go_on(env, &open, READER);
        return atoms::ok().encode(env);
    }
    error(env, atoms::too_late())
}

/// `posted(Conn) -> {Sends, BytesToSend, Receives} | closed`
#[rustler::nif]
fn posted<'a>(env: Env<'a>, conn: ResourceArc<ConnectionResource>) -> Term<'a> {
    if conn.open().is_none() {
        return atoms::closed().encode(env);
    }
    let (sends, bytes) = conn.posts().pen.posted();
    (sends, bytes, conn.posts().receives.lock().len()).encode(env)
}

/// Somebody's posted send waits for the end of this process's: if that never comes the connection is broken.
fn watch(env: Env<'_>, conn: &ResourceArc<ConnectionResource>, holder: LocalPid) {
    let mut watched = conn.watched.lock();
    if *watched == Some(holder) {
        return;
    }
    *watched = Some(holder);
    drop(watched);
    if env.monitor(conn, &holder).is_none() {
        conn.holder_died(env, holder);
    }
}

/// Why a connection ends whose sender died in the middle of its bytes.
pub fn half_sent() -> Closed {
    Closed::Fabric(FabricError::HalfSent)
}
