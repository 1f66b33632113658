//! A queue pair in the making, as a resource: when the last term that names it is collected, it is cancelled.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use inet_rdma_engine::attempt::{self, Attempt, Notify, Outcome};
use inet_rdma_engine::fabric::{Fabric, FabricError, ListenOptions};
use rustler::{Encoder, Env, NifResult, OwnedEnv, Resource, ResourceArc, Term};

use crate::atoms;
use crate::config::{Config, FabricOption};
use crate::connection::{establish, next_id};
use crate::terms;

/// What `Attempt` is in Erlang.
pub struct AttemptResource {
    id: u64,
    attempt: Attempt,
    config: Config,
}

#[rustler::resource_impl]
impl Resource for AttemptResource {}

impl AttemptResource {
    /// Names the attempt in its message, and afterwards the connection.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// What the attempt was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The queue pair, and why it is over its fabric, in words; once. None: not there yet, the message tells.
    pub fn take(&self) -> Option<Outcome> {
        self.attempt.take()
    }
}

/// Tells the calling process: `{'$inet_rdma', Id, connected}`.
fn tell(env: Env<'_>, id: u64) -> Notify {
    let caller = env.pid();
    Box::new(move || {
        let _ = OwnedEnv::new().send_and_clear(&caller, |_| (atoms::event(), id, atoms::connected()));
    })
}

/// `connect(auto | shm | verbs, Address, Port, Token, TimeoutMs, Config) -> {ok, Attempt, Id} | {error, Reason}`: the
/// address as text; over shm any of this host. Token 0: none. The caller gets `{'$inet_rdma', Id, connected}` once it
/// has connected or failed, which [`stream`] tells.
///
/// Never blocks. The timeout counts from now, and bounds all waiting for the peer.
#[rustler::nif]
fn connect<'a>(
    env: Env<'a>,
    fabric: FabricOption,
    address: &str,
    port: u32,
    token: u64,
    timeout_ms: u64,
    config: Config,
) -> NifResult<Term<'a>> {
    // A term that is decoded as u16 is cut to 16 bits.
    let port = u16::try_from(port).map_err(|_| rustler::Error::BadArg)?;
    let to = SocketAddr::new(parse(address)?, port);
    let id = next_id();
    let parameters = config.parameters(id, token);
    let attempt = Attempt::connect(
        Duration::from_millis(timeout_ms),
        move |left| fabric.fabric().connect_because(to, &parameters, left),
        tell(env, id),
    );
    Ok(match attempt {
        Ok(attempt) => (
            atoms::ok(),
            ResourceArc::new(AttemptResource { id, attempt, config }),
            id,
        )
            .encode(env),
        Err(error) => failed(env, &error),
    })
}

/// `expect(shm | verbs, Address | <<>>, Token, TimeoutMs, Config) -> {ok, Attempt, Id, Port} | {error, Reason}`: opens
/// a listener on one address of this machine, as text, or on all, for the one peer whose hello has this token, and
/// waits for it. Shm has no addresses. The caller gets `{'$inet_rdma', Id, connected}` once there is a queue pair or a
/// failure, which [`stream`] tells. Then the port is closed, as it is when `Attempt` is collected.
///
/// Opening a listener takes some system calls: not for a normal scheduler.
#[rustler::nif(schedule = "DirtyIo")]
fn expect<'a>(
    env: Env<'a>,
    fabric: FabricOption,
    address: &str,
    token: u64,
    timeout_ms: u64,
    config: Config,
) -> NifResult<Term<'a>> {
    // Any peer knows the token 0, and a listener over both fabrics would take a peer over each.
    if token == 0 || fabric == FabricOption::Auto {
        return Err(rustler::Error::BadArg);
    }
    let address = match address {
        "" => None,
        text => Some(parse(text)?),
    };
    let id = next_id();
    let timeout = Duration::from_millis(timeout_ms);
    let options = ListenOptions {
        address,
        ports: 0..=0,
        backlog: config.backlog,
        hello_timeout: timeout.min(Duration::from_millis(config.connect_timeout_ms.into())),
        parameters: config.parameters(id, token),
    };
    let expected = fabric.fabric().listen(&options).and_then(|listener| {
        let port = listener.port();
        Attempt::accept(listener, timeout, tell(env, id)).map(|attempt| (attempt, port))
    });
    Ok(match expected {
        Ok((attempt, port)) => {
            let resource = ResourceArc::new(AttemptResource { id, attempt, config });
            (atoms::ok(), resource, id, port).encode(env)
        }
        Err(error) => failed(env, &error),
    })
}

/// `stream(Attempt) -> {ok, Conn} | {error, Reason} | waiting`: the queue pair becomes a stream connection, whose id is
/// the attempt's and whose owner the caller is. `waiting`: ask again after the message `connected`, which comes in any
/// case, also to those who ask before. An error the second time.
#[rustler::nif]
fn stream<'a>(env: Env<'a>, attempt: ResourceArc<AttemptResource>) -> Term<'a> {
    let Some(outcome) = attempt.take() else {
        return atoms::waiting().encode(env);
    };
    match outcome.and_then(|(qp, why)| establish(env, qp, attempt.id(), attempt.config(), why)) {
        Ok(conn) => (atoms::ok(), conn).encode(env),
        Err(error) => failed(env, &error),
    }
}

/// `token() -> Token`: 64 random bits of the system's, never 0.
#[rustler::nif(name = "token")]
fn token_nif() -> u64 {
    attempt::token()
}

fn parse(address: &str) -> NifResult<IpAddr> {
    address.parse().map_err(|_| rustler::Error::BadArg)
}

fn failed<'a>(env: Env<'a>, error: &FabricError) -> Term<'a> {
    (atoms::error(), terms::fabric_error(env, error)).encode(env)
}
