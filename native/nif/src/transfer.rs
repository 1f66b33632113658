//! Bytes in both directions, and waiting for them.

use inet_rdma_engine::assembly::{Framing, ReadLimit};
use inet_rdma_engine::connection::{ReadEnd, Wakes};
use rustler::{Atom, Encoder, Env, NifResult, ResourceArc, Term};

use crate::atoms;
use crate::connection::{ConnectionResource, closed_error};
use crate::packets::{Outgoing, encode_packets};
use crate::pen::Holder;
use crate::posting::half_sent;
use crate::registry::Registered;
use crate::terms;

/// `send(Conn, Packets, Offset) -> ok | {more | blocked, Rest, Offset} | {error, Reason}`
///
/// `Offset`: bytes of the first packet (its header included) that an earlier call has sent. What one process has begun
/// it finishes before another's bytes follow. After `blocked` the caller tries again, or asks `arm_writer/1`.
#[rustler::nif]
fn send<'a>(
    env: Env<'a>,
    conn: ResourceArc<ConnectionResource>,
    packets: Term<'a>,
    offset: usize,
) -> NifResult<Term<'a>> {
    let Some(open) = conn.open() else {
        return Ok(closed_error(env));
    };
    let max = conn.posts().bounds.call_bytes;
    let pen = match conn.posts().pen.take(env.pid()) {
        Ok(pen) => pen,
        Err(holder) => return Ok(wait_for_pen(env, &conn, &open, holder, packets, offset)),
    };
    let outgoing = match Outgoing::decode(packets, open.connection().framing(), max.saturating_add(offset)) {
        Ok(outgoing) => outgoing,
        Err(error) => {
            // What was never begun keeps nobody waiting.
            if offset == 0 {
                conn.wake(env, pen.put_down());
            }
            return Err(error);
        }
    };
    let gather = outgoing.gather();
    let written = match open.connection().write(&gather, offset, max) {
        Ok(written) => written,
        Err(closed) => {
            conn.wake(env, pen.put_down());
            return Ok((atoms::error(), terms::closed(env, &closed)).encode(env));
        }
    };
    charge(env, written.at - offset);
    let index = gather.packets_before(written.at);
    let rest = outgoing.list_from(index);
    let sent = written.at - if index == 0 { 0 } else { gather.ends()[index - 1] };
    if rest.is_empty_list() {
        let mut wakes = written.wakes;
        wakes.merge(pen.put_down());
        conn.wake(env, wakes);
        return Ok(atoms::ok().encode(env));
    }
    drop(pen);
    conn.wake(env, written.wakes);
    let how = if written.blocked {
        atoms::blocked()
    } else {
        atoms::more()
    };
    Ok((how, rest, sent).encode(env))
}

/// Another process is in the middle of its bytes, or sends are posted; if it died there, the stream is broken.
fn wait_for_pen<'a>(
    env: Env<'a>,
    conn: &ConnectionResource,
    open: &Registered,
    holder: Holder,
    packets: Term<'a>,
    offset: usize,
) -> Term<'a> {
    if let Holder::Process(holder) = holder
        && !holder.is_alive(env)
    {
        let wakes = open.connection().close_with(half_sent());
        conn.wake(env, wakes);
        return closed_error(env);
    }
    (atoms::blocked(), packets, offset).encode(env)
}

/// Charges the process for copying: a millisecond's slice is about a megabyte.
pub fn charge(env: Env<'_>, bytes: usize) {
    let percent = (bytes / (10 * 1024)).clamp(1, 100);
    rustler::schedule::consume_timeslice(env, i32::try_from(percent).unwrap_or(100));
}

/// `recv(Conn, Exact) -> {ok | more, Packets} | empty | {error, Reason, Packets}`: one packet at most.
///
/// `more`: there may be more at once; `ok`: that was all. `einval`: receives are posted, and what comes is theirs; or a
/// length where packets say theirs.
#[rustler::nif]
fn recv<'a>(env: Env<'a>, conn: ResourceArc<ConnectionResource>, exact: usize) -> NifResult<Term<'a>> {
    let Some(open) = conn.open() else {
        return Ok((atoms::error(), atoms::closed(), Term::list_new_empty(env)).encode(env));
    };
    if !conn.posts().receives.lock().is_empty() {
        return Ok((atoms::error(), atoms::einval(), Term::list_new_empty(env)).encode(env));
    }
    if exact > 0 && open.connection().framing() != Framing::Raw {
        return Ok((atoms::error(), atoms::einval(), Term::list_new_empty(env)).encode(env));
    }
    let mut received = Vec::with_capacity(1);
    let limit = ReadLimit {
        bytes: conn.posts().bounds.call_bytes,
        packets: 1,
        exact,
    };
    let (end, wakes) = open.connection().read(limit, &mut received);
    conn.wake(env, wakes);
    if received.is_empty() && end == ReadEnd::Empty {
        return Ok(atoms::empty().encode(env));
    }
    charge(env, received.len() * 512);
    let list = encode_packets(env, received)?;
    Ok(match end {
        ReadEnd::More => (atoms::more(), list).encode(env),
        ReadEnd::Empty => (atoms::ok(), list).encode(env),
        ReadEnd::Closed(closed) => (atoms::error(), terms::closed(env, &closed), list).encode(env),
    })
}

/// `arm(Conn) -> true | false`: true, the caller gets one `readable` when there is something; false, there is.
#[rustler::nif]
fn arm(env: Env<'_>, conn: ResourceArc<ConnectionResource>) -> bool {
    let Some(open) = conn.open() else { return false };
    conn.subscribers().add_reader(env.pid());
    let (armed, wakes) = open.connection().arm();
    if !armed {
        conn.subscribers().remove(env.pid());
    }
    conn.wake(env, wakes);
    armed
}

/// `arm_writer(Conn) -> true | false`: true, the caller gets one `writable` when there may be room; false, there is.
#[rustler::nif]
fn arm_writer(env: Env<'_>, conn: ResourceArc<ConnectionResource>) -> bool {
    let Some(open) = conn.open() else { return false };
    conn.subscribers().add_writer(env.pid());
    let (armed, wakes) = match conn.posts().pen.is_free_for(env.pid()) {
        true => open.connection().arm_writer(),
        // Whoever has the pen wakes all that wait for it.
        false => (true, Wakes::default()),
    };
    if !armed {
        conn.subscribers().remove(env.pid());
    }
    conn.wake(env, wakes);
    armed
}

/// `disarm(Conn) -> ok`: the caller waits no more; a message may be under way.
#[rustler::nif]
fn disarm(env: Env<'_>, conn: ResourceArc<ConnectionResource>) -> Atom {
    conn.subscribers().remove(env.pid());
    atoms::ok()
}
