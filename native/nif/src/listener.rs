//! A listener as a resource.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use inet_rdma_fabric::{Fabric, FabricError, ListenOptions};
use inet_rdma_socket::acceptor::{AcceptWaker, Acceptor};
use inet_rdma_socket::auto::AutoFabric;
use parking_lot::Mutex;
use rustler::{Atom, Encoder, Env, LocalPid, Monitor, NifResult, OwnedEnv, Resource, ResourceArc, Term};

use crate::atoms;
use crate::attempt::optional;
use crate::config::{Config, pollers};
use crate::connection::establish;
use crate::refusals::Refusals;
use crate::registry::next_id;
use crate::terms;
use crate::user::add_caller;

/// The resource behind the Erlang term `Listener`: the death of its owner closes the port.
pub struct ListenerResource {
    /// None: it is closed.
    open: Mutex<Option<Open>>,
    waiting: Arc<Waiting>,
}

struct Open {
    acceptor: Acceptor,
    /// None: not monitored yet, or its owner has ended before it was.
    owner: Option<Monitor>,
}

/// The processes that wait for a connection.
struct Waiting {
    id: u64,
    acceptors: Mutex<Vec<LocalPid>>,
}

#[rustler::resource_impl]
impl Resource for ListenerResource {
    fn down<'a>(&'a self, env: Env<'a>, _pid: LocalPid, _monitor: Monitor) {
        let _monitor_that_is_over = self.close(env);
    }
}

impl ListenerResource {
    /// Closes the port. Returns the monitor of the owner.
    fn close(&self, env: Env<'_>) -> Option<Monitor> {
        // Closed before a process that waits for a connection is told; by its thread, if that accepts at this moment.
        let owner = self.open.lock().take().and_then(|open| open.owner);
        for pid in self.waiting.acceptors.lock().drain(..) {
            let _ = env.send(&pid, (atoms::event(), self.waiting.id, atoms::acceptable()));
        }
        owner
    }
}

/// The waker of one listener, called on the listener's thread.
struct ListenerWaker {
    waiting: Arc<Waiting>,
    refusals: Refusals,
}

impl AcceptWaker for ListenerWaker {
    fn accepted(&self) {
        let mut message = OwnedEnv::new();
        for pid in self.waiting.acceptors.lock().drain(..) {
            let _ = message.send_and_clear(&pid, |_| (atoms::event(), self.waiting.id, atoms::acceptable()));
        }
    }

    fn refused(&self, error: &FabricError) {
        self.refusals.log(error);
    }
}

/// `listen(Address | <<>>, FirstPort, LastPort, Config, Logger) -> {ok, Listener, Id, Port, Over} | {error, Reason}`:
/// listens on one address of this machine, as text, or on all. `Over`: its fabrics, in words. The process `Logger` gets
/// an event of the VM's logger for each refused peer.
///
/// May try many ports and starts the polling threads: not for a normal scheduler.
#[rustler::nif(schedule = "DirtyIo")]
fn listen<'a>(
    env: Env<'a>,
    address: &str,
    first: u16,
    last: u16,
    config: Config,
    logger: LocalPid,
) -> NifResult<Term<'a>> {
    let address = optional(address)?;
    let id = next_id();
    Ok(match open(env, id, address, first..=last, &config, logger) {
        Ok((listener, port, over)) => (atoms::ok(), listener, id, port, over).encode(env),
        Err(error) => (atoms::error(), terms::fabric_error(env, &error)).encode(env),
    })
}

fn open(
    env: Env<'_>,
    id: u64,
    address: Option<IpAddr>,
    ports: std::ops::RangeInclusive<u16>,
    config: &Config,
    logger: LocalPid,
) -> Result<(ResourceArc<ListenerResource>, u16, String), FabricError> {
    let options = ListenOptions {
        address,
        ports,
        backlog: config.backlog,
        hello_timeout: Duration::from_millis(config.connect_timeout_ms.into()),
        parameters: config.parameters(id, 0),
    };
    let listener = AutoFabric(config.fabric.0).listen(&options)?;
    let over = listener.over();
    let waiting = Arc::new(Waiting {
        id,
        acceptors: Mutex::new(Vec::new()),
    });
    let waker = Box::new(ListenerWaker {
        waiting: Arc::clone(&waiting),
        refusals: Refusals::new(logger, listener.port()),
    });
    // The first listener or stream of a node starts its polling threads, with its own options.
    pollers(config)?;
    let acceptor = Acceptor::start(listener, config.backlog.into(), waker)?;
    let port = acceptor.port();
    let resource = ResourceArc::new(ListenerResource {
        open: Mutex::new(Some(Open { acceptor, owner: None })),
        waiting,
    });
    let owner = env.monitor(&resource, &env.pid());
    if let Some(open) = &mut *resource.open.lock() {
        open.owner = owner;
    }
    Ok((resource, port, over))
}

/// `accept(Listener, Config) -> {ok, Conn, Id} | empty | {error, Reason}`: after `empty` the caller gets one message
/// `acceptable`.
#[rustler::nif]
fn accept<'a>(env: Env<'a>, listener: ResourceArc<ListenerResource>, config: Config) -> Term<'a> {
    let open = listener.open.lock();
    let Some(Open { acceptor, .. }) = &*open else {
        return terms::closed_error(env);
    };
    // The caller goes on the list before it looks: a connection that comes in between makes a message.
    add_caller(env, &mut listener.waiting.acceptors.lock());
    let Some(found) = acceptor.accept().transpose() else {
        return atoms::empty().encode(env);
    };
    listener.waiting.acceptors.lock().retain(|pid| *pid != env.pid());
    let qp = match found {
        Ok(qp) => qp,
        Err(error) => return (atoms::error(), terms::fabric_error(env, &error)).encode(env),
    };
    let id = next_id();
    let why = format!("the peer chose it: {}", qp.route());
    match establish(env, qp, id, &config, None, why) {
        Ok(resource) => (atoms::ok(), resource, id).encode(env),
        Err(closed) => (atoms::error(), terms::closed(env, &closed)).encode(env),
    }
}

/// `stop_accepting(Listener) -> ok`: the caller no longer waits. A message `acceptable` may be in its message queue
/// already; none comes later.
#[rustler::nif]
fn stop_accepting(env: Env<'_>, listener: ResourceArc<ListenerResource>) -> Atom {
    let caller = env.pid();
    listener.waiting.acceptors.lock().retain(|pid| *pid != caller);
    atoms::ok()
}

/// `close_listener(Listener) -> ok`: closes the port; connections stay open. Idempotent.
#[rustler::nif]
fn close_listener(env: Env<'_>, listener: ResourceArc<ListenerResource>) -> Atom {
    if let Some(owner) = listener.close(env) {
        env.demonitor(&listener, &owner);
    }
    atoms::ok()
}
