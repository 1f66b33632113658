//! Bytes in both directions, and waiting for them.

use inet_rdma_assembly::ReadLimit;
use inet_rdma_engine::connection::ReadEnd;
use inet_rdma_socket::stream_socket::{Holder, StreamSocket};
use rustler::{Atom, Encoder, Env, NifResult, ResourceArc, Term};

use crate::atoms;
use crate::connection::ConnectionResource;
use crate::packets::{Outgoing, encode_packets};
use crate::terms::{self, closed_error};
use crate::timeslice::charge;
use crate::user::{User, add_caller};

/// `send(Conn, Packets, Offset) -> ok | {more | blocked, Rest, Offset} | {error, Reason}`
///
/// `Offset`: bytes of the first packet (its header included) that an earlier call has sent. A process finishes the send
/// that it has begun before bytes of another process follow. After `blocked` the caller tries again, or calls
/// `arm_writer/1`.
#[rustler::nif]
fn send<'a>(
    env: Env<'a>,
    conn: ResourceArc<ConnectionResource>,
    packets: Term<'a>,
    offset: usize,
) -> NifResult<Term<'a>> {
    conn.call(env, |socket| send_some(env, socket, packets, offset))
        .unwrap_or_else(|| Ok(closed_error(env)))
}

fn send_some<'a>(env: Env<'a>, socket: &StreamSocket<User>, packets: Term<'a>, offset: usize) -> NifResult<Term<'a>> {
    let max = socket.bounds().call_bytes;
    let mut lock = match socket.send_lock(env.pid()) {
        Ok(lock) => lock,
        Err(Holder::Writer(holder)) if !holder.is_alive(env) => {
            socket.writer_died(holder);
            return Ok(closed_error(env));
        }
        Err(_) => return Ok((atoms::blocked(), packets, offset).encode(env)),
    };
    let outgoing = match Outgoing::decode(packets, lock.framing(), max.saturating_add(offset)) {
        Ok(outgoing) => outgoing,
        Err(error) => {
            // No byte of this send has gone: other writers need not wait for it.
            if offset == 0 {
                lock.release();
            }
            return Err(error);
        }
    };
    let gather = outgoing.gather();
    let written = match lock.write(&gather, offset, max) {
        Ok(written) => written,
        Err(closed) => {
            lock.release();
            return Ok((atoms::error(), terms::closed(env, &closed)).encode(env));
        }
    };
    charge(env, written.at - offset);
    let index = gather.packets_before(written.at);
    let rest = outgoing.list_from(index);
    let sent = written.at - if index == 0 { 0 } else { gather.ends()[index - 1] };
    if rest.is_empty_list() {
        lock.release();
        return Ok(atoms::ok().encode(env));
    }
    let how = if written.blocked {
        atoms::blocked()
    } else {
        atoms::more()
    };
    Ok((how, rest, sent).encode(env))
}

/// `recv(Conn, Exact) -> {ok | more, Packets} | empty | {error, Reason, Packets}`: one packet at most.
///
/// `more`: there may be more at once; `ok`: nothing more has arrived. `einval`: posted receives get all that arrives;
/// or a length although the framing says the lengths of packets.
#[rustler::nif]
fn recv<'a>(env: Env<'a>, conn: ResourceArc<ConnectionResource>, exact: usize) -> NifResult<Term<'a>> {
    let mut received = Vec::with_capacity(1);
    let read = conn.call(env, |socket| {
        let limit = ReadLimit {
            bytes: socket.bounds().call_bytes,
            packets: 1,
            exact,
        };
        socket.read_unposted(limit, &mut received)
    });
    let (end, copied) = match read {
        Some(Some(read)) => read,
        Some(None) => return Ok((atoms::error(), atoms::einval(), Term::list_new_empty(env)).encode(env)),
        None => return Ok((atoms::error(), atoms::closed(), Term::list_new_empty(env)).encode(env)),
    };
    charge(env, copied);
    if received.is_empty() && end == ReadEnd::Empty {
        return Ok(atoms::empty().encode(env));
    }
    let list = encode_packets(env, received)?;
    Ok(match end {
        ReadEnd::More => (atoms::more(), list).encode(env),
        ReadEnd::Empty => (atoms::ok(), list).encode(env),
        ReadEnd::Closed(closed) => (atoms::error(), terms::closed(env, &closed), list).encode(env),
    })
}

/// `arm(Conn) -> Armed`. True: the caller gets one `readable` when there is something to read. False: there may be
/// something already.
#[rustler::nif]
fn arm(env: Env<'_>, conn: ResourceArc<ConnectionResource>) -> bool {
    armed(env, &conn, |socket| {
        add_caller(env, &mut socket.notifier().readers.lock());
        socket.arm_reader()
    })
}

/// `arm_writer(Conn) -> Armed`. True: the caller gets one `writable` when there may be room. False: there is room.
#[rustler::nif]
fn arm_writer(env: Env<'_>, conn: ResourceArc<ConnectionResource>) -> bool {
    armed(env, &conn, |socket| {
        add_caller(env, &mut socket.notifier().writers.lock());
        socket.arm_writer_in_turn(env.pid())
    })
}

fn armed(env: Env<'_>, conn: &ConnectionResource, arm: impl FnOnce(&StreamSocket<User>) -> bool) -> bool {
    let armed = conn.call(env, |socket| {
        let armed = arm(socket);
        if !armed {
            socket.notifier().remove(env.pid());
        }
        armed
    });
    armed.unwrap_or(false)
}

/// `disarm(Conn) -> ok`: the caller no longer waits; a message may be in its queue already.
#[rustler::nif]
fn disarm(env: Env<'_>, conn: ResourceArc<ConnectionResource>) -> Atom {
    conn.call(env, |socket| socket.notifier().remove(env.pid()));
    atoms::ok()
}
