//! A distribution link between its settlement and its port.

use std::sync::Arc;

use inet_rdma_assembly::Framing;
use inet_rdma_engine::connection::{Closed, Connection, Notifier, Settings};
use inet_rdma_fabric::QueuePair;
use inet_rdma_port::handover::{self, Carried};
use inet_rdma_port::notifications::Notifications;
use inet_rdma_port::number_keys;
use inet_rdma_port::{can_decompress, ended};
use inet_rdma_records::Protection;
use parking_lot::Mutex;
use rustler::{Atom, Binary, Encoder, Env, Resource, ResourceArc, Term};

use crate::atoms;
use crate::attempt::AttemptResource;
use crate::config::{Config, PollingOption};
use crate::flight;
use crate::protection::ProtectionOption;
use crate::registry::{self, Registered};
use crate::terms;

/// The resource behind the Erlang term `Link`: the connection of a port, which answers questions about it after the
/// port's end, too.
pub struct LinkResource {
    id: u64,
    state: Mutex<State>,
}

enum State {
    Held(Arc<Registered>),
    /// See [`release_link`]. None: the connection was still up.
    Released(Option<Closed>),
}

#[rustler::resource_impl]
impl Resource for LinkResource {}

impl LinkResource {
    fn closed(&self) -> Option<Closed> {
        match &*self.state.lock() {
            State::Held(registered) => registered.connection.closed(),
            State::Released(closed) => closed.clone(),
        }
    }

    fn release(&self) {
        let closed = self.closed();
        let held = std::mem::replace(&mut *self.state.lock(), State::Released(closed));
        // Dropped without the lock held: it may end the connection.
        drop(held);
    }
}

impl Drop for LinkResource {
    fn drop(&mut self) {
        // Drops the connection if no port has taken it.
        handover::take(self.id);
    }
}

/// `can_decompress() -> boolean()`: whether there is memory for what the peer of a link compresses.
#[rustler::nif(name = "can_decompress")]
fn can_decompress_nif() -> bool {
    can_decompress()
}

/// `link(Attempt, Node, Config, Protection) -> {ok, Link, Id, Fabric, Why} | waiting | {error, Reason}`: the connection
/// of an attempt for a port, which asks for it by `Id`.
#[rustler::nif]
fn link<'a>(
    env: Env<'a>,
    attempt: ResourceArc<AttemptResource>,
    node: String,
    config: Config,
    protection: ProtectionOption,
) -> Term<'a> {
    let (qp, why) = match attempt.take() {
        None => return atoms::waiting().encode(env),
        Some(Err(error)) => return (atoms::error(), terms::attempt_error(env, &error)).encode(env),
        Some(Ok(made)) => made,
    };
    match establish(qp, attempt.id, why, node, &config, protection.0.as_ref()) {
        Ok(registered) => {
            let fabric = registered.connection.queue_pair().fabric();
            let (id, why) = (registered.id, registered.why.clone());
            let state = Mutex::new(State::Held(registered));
            let link = ResourceArc::new(LinkResource { id, state });
            (atoms::ok(), link, id, fabric.name(), why).encode(env)
        }
        Err(closed) => (atoms::error(), terms::closed(env, &closed)).encode(env),
    }
}

fn establish(
    qp: Box<dyn QueuePair>,
    id: u64,
    why: String,
    node: String,
    config: &Config,
    protection: Option<&Protection>,
) -> Result<Arc<Registered>, Closed> {
    let settings = Settings {
        // No polling thread looks at a link: it asks for events. The option `polling` is for streams.
        busy: false,
        ..config.settings()
    };
    let parameters = config.parameters(id, 0);
    let noted = Arc::new(Notifications::default());
    let user = Arc::clone(&noted) as Arc<dyn Notifier>;
    let (connection, reader, writer) = Connection::new(qp, &parameters, settings, Framing::Length4, protection, user)?;
    let registered = registry::add(id, connection, why, node);
    handover::offer(
        id,
        Carried {
            connection: Arc::clone(&registered.connection),
            reader,
            writer,
            noted,
            never_polls: config.polling.0 == PollingOption::Event,
            listed: Arc::clone(&registered) as _,
        },
    );
    Ok(registered)
}

/// `link_end(Link) -> up | Reason`: why the connection has ended.
#[rustler::nif]
fn link_end<'a>(env: Env<'a>, link: ResourceArc<LinkResource>) -> Term<'a> {
    match link.closed() {
        None => atoms::up().encode(env),
        Some(closed) => terms::closed(env, &closed),
    }
}

/// `release_link(Link) -> ok`: the term no longer keeps the connection, which ends when its port has dropped it. A term
/// on the heap of a process that sleeps would keep the connection, its memory and its device.
#[rustler::nif]
fn release_link(link: ResourceArc<LinkResource>) -> Atom {
    link.release();
    atoms::ok()
}

/// `take_back(Socket) -> ok`: closes a descriptor that the port's command socket has answered.
#[rustler::nif]
fn take_back(socket: i32) -> Atom {
    handover::take_back(socket);
    atoms::ok()
}

/// `ended_attribution(Name) -> none | Binary`: the counts of senders and targets that an ended port has kept of the
/// session with this name; once. Empty: they were not counted. `none`: the port has not ended yet.
#[rustler::nif]
fn ended_attribution<'a>(env: Env<'a>, name: Binary<'a>) -> Term<'a> {
    match ended::take(&name) {
        Some(term) => flight::binary(env, &term),
        None => atoms::none().encode(env),
    }
}

/// `features() -> [verbs]`: the cargo features that the library was built with.
#[rustler::nif]
fn features() -> Vec<Atom> {
    if cfg!(feature = "verbs") {
        vec![atoms::verbs()]
    } else {
        Vec::new()
    }
}

/// `has_driver() -> boolean()`: whether the VM's driver is of this library, too.
#[rustler::nif]
fn has_driver() -> bool {
    handover::has_driver()
}

/// `link_numbers() -> [{Command, [Key]}]`: the commands of a link's port that answer numbers, and which.
#[rustler::nif]
fn link_numbers<'a>(env: Env<'a>) -> Vec<(Term<'a>, Vec<Term<'a>>)> {
    let atoms = |keys: Vec<&str>| keys.into_iter().map(|key| terms::atom(env, key)).collect();
    number_keys()
        .into_iter()
        .map(|(command, keys)| (terms::atom(env, command), atoms(keys)))
        .collect()
}
