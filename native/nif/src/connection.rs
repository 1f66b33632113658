//! A connection as a resource: its process's death closes it.

use std::net::SocketAddr;
use std::sync::Arc;

use inet_rdma_assembly::Framing;
use inet_rdma_engine::VerbsFabric;
use inet_rdma_engine::connection::Closed;
use inet_rdma_fabric::QueuePair;
use inet_rdma_records::Protection;
use inet_rdma_socket::endpoint::Attachment;
use inet_rdma_socket::stream_socket::{ActiveOption, Left, Refused, StreamSocket};
use parking_lot::Mutex;
use rustler::{Atom, Encoder, Env, LocalPid, Monitor, NifResult, Resource, ResourceArc, Term};

use crate::atoms;
use crate::config::{Config, pollers};
use crate::kept_term::KeptTerm;
use crate::messages;
use crate::receipt::Receipt;
use crate::registry::{self, Registered};
use crate::terms::{self, accepted, closed_error};
use crate::user::User;

/// The stream of an open connection.
pub struct Open {
    pub socket: Arc<StreamSocket<User>>,
    /// Its place in the list of connections.
    pub registered: Arc<Registered>,
}

/// The resource behind the Erlang term `Conn`.
pub struct ConnectionResource {
    /// None: it is closed, and all that it held is given back, however long the VM keeps the term.
    state: Mutex<Option<Box<Held>>>,
}

/// An open connection, and the state that the resource keeps for it.
struct Held {
    open: Arc<Open>,
    owner: (LocalPid, Monitor),
    /// The socket's options, which `inet_rdma` keeps here so that the term that names the socket stays small.
    options: Option<KeptTerm>,
    /// A process in the middle of a send, while a send that another process has posted waits for that send's end.
    watched: Option<(LocalPid, Monitor)>,
    /// Dropped after `open`: the polling thread looks until the stream is closed.
    _attachment: Attachment,
}

#[rustler::resource_impl]
impl Resource for ConnectionResource {
    fn down<'a>(&'a self, env: Env<'a>, pid: LocalPid, monitor: Monitor) {
        let mut state = self.state.lock();
        let is_owner = state.as_ref().is_some_and(|held| held.owner.1 == monitor);
        let ended = state.take_if(|_| is_owner);
        drop(state);
        match ended {
            Some(held) => end(env, *held),
            None => self.writer_died(env, pid),
        }
    }

    fn destructor(self, env: Env<'_>) {
        if let Some(held) = self.state.into_inner() {
            end(env, *held);
        }
    }
}

impl ConnectionResource {
    /// The connection; None: it is closed.
    pub fn open(&self) -> Option<Arc<Open>> {
        self.state.lock().as_ref().map(|held| Arc::clone(&held.open))
    }

    /// Calls the stream on behalf of the calling process. None: it is closed.
    pub fn call<R>(&self, env: Env<'_>, call: impl FnOnce(&StreamSocket<User>) -> R) -> Option<R> {
        let open = self.open()?;
        Some(messages::with_env(env, || call(&open.socket)))
    }

    /// Handles the death of a process that may have been in the middle of a send.
    pub fn writer_died(&self, env: Env<'_>, pid: LocalPid) {
        self.call(env, |socket| socket.writer_died(pid));
    }

    /// Monitors this process, which is in the middle of a send that a posted send waits for, and the one before it no
    /// longer. If the process dies its send is never finished, and the connection ends.
    pub fn watch_writer(conn: &ResourceArc<Self>, env: Env<'_>, pid: LocalPid) {
        let needs_none = {
            let state = conn.state.lock();
            let held = state.as_ref();
            held.is_none_or(|held| held.watched.is_some_and(|(watched, _)| watched == pid))
        };
        if needs_none {
            return;
        }
        let Some(monitor) = env.monitor(conn, &pid) else {
            return conn.writer_died(env, pid);
        };
        let replaced = match &mut *conn.state.lock() {
            // Another call may watch the next writer already: only the present one is watched.
            Some(held) if held.open.socket.holder() == Some(pid) => held.watched.replace((pid, monitor)),
            // Its send is done, or the connection is closed.
            _ => Some((pid, monitor)),
        };
        if let Some((_, before)) = replaced {
            env.demonitor(conn, &before);
        }
    }

    fn owner(&self) -> Option<LocalPid> {
        self.state.lock().as_ref().map(|held| held.owner.0)
    }
}

/// Ends a connection that was closed.
fn end(env: Env<'_>, held: Held) {
    messages::with_env(env, || held.open.socket.close());
}

/// A stream over a new queue pair, owned by the calling process. `why`: the reason for the choice of its fabric.
pub fn establish(
    env: Env<'_>,
    qp: Box<dyn QueuePair>,
    id: u64,
    config: &Config,
    protection: Option<&Protection>,
    why: String,
) -> Result<ResourceArc<ConnectionResource>, Closed> {
    let parameters = config.parameters(id, 0);
    let socket = StreamSocket::new(
        qp,
        &parameters,
        config.settings(),
        config.bounds(),
        Framing::Raw,
        protection,
        User::new(id),
    )?;
    let connection = Arc::clone(socket.connection());
    let attachment = pollers(config)?.attach(Arc::clone(&connection))?;
    let registered = registry::add(id, connection, why, String::new());
    let resource = ResourceArc::new(ConnectionResource {
        state: Mutex::new(None),
    });
    let caller = env.pid();
    // Locked until the owner is stored: the handler of the owner's death reads it.
    let mut state = resource.state.lock();
    match env.monitor(&resource, &caller) {
        Some(monitor) => {
            *state = Some(Box::new(Held {
                open: Arc::new(Open { socket, registered }),
                owner: (caller, monitor),
                options: None,
                watched: None,
                _attachment: attachment,
            }));
        }
        // The caller is dead.
        None => messages::with_env(env, || socket.close()),
    }
    drop(state);
    Ok(resource)
}

/// `addresses(Conn) -> {Fabric, none | {Local, LocalPort}, none | {Peer, PeerPort}} | closed`: addresses as text.
#[rustler::nif]
fn addresses<'a>(env: Env<'a>, conn: ResourceArc<ConnectionResource>) -> Term<'a> {
    let Some(open) = conn.open() else {
        return atoms::closed().encode(env);
    };
    let qp = open.socket.queue_pair();
    let term = |address: Option<SocketAddr>| match address {
        Some(address) => (address.ip().to_string(), address.port()).encode(env),
        None => atoms::none().encode(env),
    };
    let (local, peer) = qp.addresses().unzip();
    (qp.fabric().name(), term(local), term(peer)).encode(env)
}

/// `check_verbs() -> ok | {error, Reason}`: whether this machine has what the verbs fabric needs.
#[rustler::nif(schedule = "DirtyIo")]
fn check_verbs(env: Env<'_>) -> Term<'_> {
    terms::done(env, VerbsFabric.check(), terms::fabric_error)
}

/// `framing(Conn, Framing, PacketMaxBytes) -> ok | {error, einval | closed}`: `Framing` is raw, length1, length2,
/// length4 or `{line, BytesMax}`. einval: in the middle of a packet, or receives are posted. From an unfinished line
/// the framing can change to raw, and raw reads get its bytes.
#[rustler::nif]
fn framing<'a>(
    env: Env<'a>,
    conn: ResourceArc<ConnectionResource>,
    how: Term<'a>,
    packet_max_bytes: usize,
) -> NifResult<Term<'a>> {
    let framing = decode_framing(how)?;
    let reframed = conn.open().map(|open| open.socket.reframe(framing, packet_max_bytes));
    Ok(accepted(
        env,
        reframed.map(|is_fit| is_fit.then_some(()).ok_or(Refused::Unfit)),
    ))
}

fn decode_framing(how: Term<'_>) -> NifResult<Framing> {
    if let Ok((line, bytes_max)) = how.decode::<(Atom, usize)>() {
        let is_line = line == atoms::line() && bytes_max > 0;
        return is_line
            .then_some(Framing::Line { bytes_max })
            .ok_or(rustler::Error::BadArg);
    }
    match how.decode::<Atom>()? {
        raw if raw == atoms::raw() => Ok(Framing::Raw),
        length1 if length1 == atoms::length1() => Ok(Framing::Length1),
        length2 if length2 == atoms::length2() => Ok(Framing::Length2),
        length4 if length4 == atoms::length4() => Ok(Framing::Length4),
        _ => Err(rustler::Error::BadArg),
    }
}

/// `active(Conn, Socket, passive | once | infinity | Count) -> ok | {error, einval | closed}`: the bytes that arrive go
/// to the owner as messages that name `Socket`. A count adds to the count that is left, as in `inet:setopts/2`: a sum
/// of 0 or less makes the socket passive, and the owner gets `{inet_rdma_passive, Socket}`. einval: receives are
/// posted, or the sum is out of range.
#[rustler::nif]
fn active<'a>(
    env: Env<'a>,
    conn: ResourceArc<ConnectionResource>,
    socket: Term<'a>,
    option: Term<'a>,
) -> NifResult<Term<'a>> {
    let option = match option.decode::<i64>() {
        // A term that is decoded as i16 is cut to 16 bits.
        Ok(count) => ActiveOption::Add(i16::try_from(count).map_err(|_| rustler::Error::BadArg)?),
        Err(_) if atoms::infinity() == option => ActiveOption::Infinity,
        Err(_) if atoms::once() == option => ActiveOption::Once,
        Err(_) if atoms::passive() == option => ActiveOption::Passive,
        Err(error) => return Err(error),
    };
    let Some(owner) = conn.owner() else {
        return Ok(closed_error(env));
    };
    let receipt = Receipt::to(owner, socket, atoms::none().encode(env));
    Ok(accepted(
        env,
        conn.call(env, |socket| socket.set_active(option, receipt)),
    ))
}

/// `active_left(Conn) -> passive | once | infinity | Count`
#[rustler::nif]
fn active_left<'a>(env: Env<'a>, conn: ResourceArc<ConnectionResource>) -> Term<'a> {
    encode_left(env, conn.open().and_then(|open| open.socket.active()))
}

/// `make_passive(Conn) -> passive | once | infinity | Count`: the messages that active mode had left.
#[rustler::nif]
fn make_passive<'a>(env: Env<'a>, conn: ResourceArc<ConnectionResource>) -> Term<'a> {
    encode_left(env, conn.call(env, |socket| socket.make_passive()).flatten())
}

fn encode_left(env: Env<'_>, left: Option<Left>) -> Term<'_> {
    match left {
        None => atoms::passive().encode(env),
        Some(Left::Once) => atoms::once().encode(env),
        Some(Left::Infinity) => atoms::infinity().encode(env),
        Some(Left::Count(count)) => count.encode(env),
    }
}

/// `stop_reading(Conn) -> ok`: from now on a read finds the end.
#[rustler::nif]
fn stop_reading(env: Env<'_>, conn: ResourceArc<ConnectionResource>) -> Atom {
    conn.call(env, |socket| socket.connection().stop_reading());
    atoms::ok()
}

/// `own(Conn, Pid) -> ok | {error, badarg | closed}`: `Pid`'s death closes the connection from now on. `badarg`:
/// `Pid` is dead already, and the owner does not change.
#[rustler::nif]
fn own(env: Env<'_>, conn: ResourceArc<ConnectionResource>, pid: LocalPid) -> Term<'_> {
    let mut state = conn.state.lock();
    let Some(held) = &mut *state else {
        return closed_error(env);
    };
    let Some(monitor) = env.monitor(&conn, &pid) else {
        return (atoms::error(), atoms::badarg()).encode(env);
    };
    let (_, before) = std::mem::replace(&mut held.owner, (pid, monitor));
    drop(state);
    env.demonitor(&conn, &before);
    atoms::ok().encode(env)
}

/// `owner(Conn) -> Pid | closed`
#[rustler::nif]
fn owner<'a>(env: Env<'a>, conn: ResourceArc<ConnectionResource>) -> Term<'a> {
    match conn.owner() {
        Some(pid) => pid.encode(env),
        None => atoms::closed().encode(env),
    }
}

/// `set_options(Conn, Term) -> ok`: keeps a copy of the socket's options.
#[rustler::nif]
fn set_options(conn: ResourceArc<ConnectionResource>, options: Term<'_>) -> Atom {
    let kept = KeptTerm::new(options);
    if let Some(held) = &mut *conn.state.lock() {
        held.options = Some(kept);
    }
    atoms::ok()
}

/// `options(Conn) -> Term | closed`: the term of the last `set_options/2`.
#[rustler::nif]
fn options<'a>(env: Env<'a>, conn: ResourceArc<ConnectionResource>) -> Term<'a> {
    match conn.state.lock().as_ref().and_then(|held| held.options.as_ref()) {
        Some(options) => options.copy(env),
        None => atoms::closed().encode(env),
    }
}

/// `finish(Conn) -> ok | {error, Reason}`: ends the outgoing stream.
#[rustler::nif]
fn finish<'a>(env: Env<'a>, conn: ResourceArc<ConnectionResource>) -> Term<'a> {
    let finished = conn.call(env, StreamSocket::finish);
    accepted(env, finished.map(|finished| finished.map_err(Refused::Closed)))
}

/// `close(Conn) -> ok`. Idempotent.
#[rustler::nif]
fn close(env: Env<'_>, conn: ResourceArc<ConnectionResource>) -> Atom {
    let ended = conn.state.lock().take();
    if let Some(held) = ended {
        env.demonitor(&conn, &held.owner.1);
        end(env, *held);
    }
    atoms::ok()
}
