//! Sends and receives that are posted, and complete as messages.

use inet_rdma_socket::stream_socket::Parcel;
use rustler::{Encoder, Env, NifResult, ResourceArc, Term};

use crate::atoms;
use crate::connection::ConnectionResource;
use crate::receipt::Receipt;
use crate::terms::{accepted, closed_error};
use crate::timeslice::charge;

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
    let receipt = Receipt::to(env.pid(), socket, reference).with_binaries(binaries)?;
    let posted = conn.call(env, |socket| {
        charge(env, receipt.bytes().min(socket.bounds().call_bytes));
        socket.post_send(receipt)
    });
    if let Some(Ok(Some(holder))) = posted {
        ConnectionResource::watch_writer(&conn, env, holder);
    }
    Ok(accepted(env, posted.map(|posted| posted.map(|_| ()))))
}

/// `post_recv(Conn, Socket, Reference, Length) -> ok | {error, Reason}`: after `ok` the caller gets one
/// `{inet_rdma_received, Socket, Reference, {ok, Data} | {error, Reason}}`. `enobufs`: `receives_max` are posted
/// already; `einval`: in active mode, or a length although the framing says the lengths of packets.
#[rustler::nif]
fn post_recv<'a>(
    env: Env<'a>,
    conn: ResourceArc<ConnectionResource>,
    socket: Term<'a>,
    reference: Term<'a>,
    length: usize,
) -> Term<'a> {
    let receipt = Receipt::to(env.pid(), socket, reference);
    // A connection that the peer has ended may still hold bytes that the peer sent before.
    let posted = conn.call(env, |socket| {
        charge(env, length.min(socket.bounds().call_bytes));
        socket.post_receive(receipt, length)
    });
    accepted(env, posted)
}

/// `leave(Conn, Binaries, Sent) -> ok`: the caller gives up on a `send/3` of these binaries, of which `Sent` bytes have
/// gone, with the header. 0: no byte of the send goes. Otherwise the polling thread sends the rest, so that the peer's
/// stream stays whole.
#[rustler::nif]
fn leave<'a>(
    env: Env<'a>,
    conn: ResourceArc<ConnectionResource>,
    binaries: Term<'a>,
    sent: usize,
) -> NifResult<Term<'a>> {
    let rest = match sent {
        0 => None,
        _ => Some((Receipt::silent().with_binaries(binaries)?, sent)),
    };
    let left = conn.call(env, |socket| socket.leave(env.pid(), rest));
    Ok(accepted(env, left.or(Some(Ok(())))))
}

/// `cancel(Conn, Reference) -> ok | {error, too_late | closed}`: after `ok` there is no message. `too_late`: bytes of
/// the send have gone, or the message was sent already.
#[rustler::nif]
fn cancel<'a>(env: Env<'a>, conn: ResourceArc<ConnectionResource>, reference: Term<'a>) -> Term<'a> {
    match conn.call(env, |socket| socket.cancel(|receipt| receipt.is(reference))) {
        None => closed_error(env),
        Some(true) => atoms::ok().encode(env),
        Some(false) => (atoms::error(), atoms::too_late()).encode(env),
    }
}

/// `posted(Conn) -> {Sends, BytesToSend, Receives} | closed`
#[rustler::nif]
fn posted<'a>(env: Env<'a>, conn: ResourceArc<ConnectionResource>) -> Term<'a> {
    match conn.open() {
        None => atoms::closed().encode(env),
        Some(open) => {
            let posted = open.socket.posted();
            (posted.sends, posted.send_bytes, posted.receives).encode(env)
        }
    }
}
