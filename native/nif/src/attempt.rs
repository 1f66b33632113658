//! A queue pair in the making, as a resource. [`drop_attempt`] cancels it, as does the collection of the last term that
//! names it.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use inet_rdma_engine::attempt::{self, Attempt, Made, Notify, Outcome};
use inet_rdma_fabric::{Fabric, FabricError, FabricName, ListenOptions, Parameters};
use inet_rdma_fabric_shm::directory::SharedDirectory;
use inet_rdma_fabric_shm::socket_name::SocketName;
use inet_rdma_socket::auto::AutoFabric;
use rustler::{Atom, Binary, Encoder, Env, NewBinary, NifResult, OwnedEnv, Resource, ResourceArc, Term};

use crate::atoms;
use crate::clocks;
use crate::config::Config;
use crate::connection::establish;
use crate::names::ByName;
use crate::protection::ProtectionOption;
use crate::registry::next_id;
use crate::terms;

/// The resource behind the Erlang term `Attempt`.
pub struct AttemptResource {
    /// Names the attempt in its message, and later the connection that it becomes.
    pub id: u64,
    attempt: Attempt,
    config: Config,
}

#[rustler::resource_impl]
impl Resource for AttemptResource {}

impl AttemptResource {
    /// Takes the queue pair, and the reason for its fabric in words; a second call is an error. None: the attempt has
    /// not ended; the message `connected` tells when it has.
    pub fn take(&self) -> Option<Outcome> {
        self.attempt.take()
    }
}

fn resource(id: u64, attempt: Attempt, config: Config) -> ResourceArc<AttemptResource> {
    ResourceArc::new(AttemptResource { id, attempt, config })
}

/// `notify(Attempt) -> ok`: the caller gets `{'$inet_rdma', Id, connected}` once the attempt has ended, or at once.
#[rustler::nif]
fn notify(env: Env<'_>, attempt: ResourceArc<AttemptResource>) -> Atom {
    if !attempt.attempt.notify(tell(env, attempt.id)) {
        // Fails only if the caller is dying.
        let _ = env.send(&env.pid(), (atoms::event(), attempt.id, atoms::connected()));
    }
    atoms::ok()
}

/// `drop_attempt(Attempt) -> ok`: cancels the attempt. A queue pair that was not taken is closed.
#[rustler::nif]
fn drop_attempt(attempt: ResourceArc<AttemptResource>) -> Atom {
    attempt.attempt.cancel();
    atoms::ok()
}

/// Tells the calling process: `{'$inet_rdma', Id, connected}`.
fn tell(env: Env<'_>, id: u64) -> Notify {
    let caller = env.pid();
    Box::new(move || {
        let _ = OwnedEnv::new().send_and_clear(&caller, |_| (atoms::event(), id, atoms::connected()));
    })
}

/// `connect(auto | shm | verbs | tcp, From | <<>>, {Address, Port}, Token, TimeoutMs, Config) -> {ok, Attempt, Id} |
/// {error, Reason}`: the addresses as text; over shm any address of this host. `From`: the address of this side's
/// device; shm ignores it. Token 0: no token. The caller gets `{'$inet_rdma', Id, connected}` once the attempt has
/// succeeded or failed; [`stream`] tells which.
///
/// Never blocks. The timeout counts from now, and bounds all waiting for the peer.
#[rustler::nif]
fn connect<'a>(
    env: Env<'a>,
    fabric: ByName<FabricName>,
    from: &str,
    (address, port): (&str, u32),
    token: u64,
    timeout_ms: u64,
    config: Config,
) -> NifResult<Term<'a>> {
    // A term that is decoded as u16 is cut to 16 bits.
    let port = u16::try_from(port).map_err(|_| rustler::Error::BadArg)?;
    let from = optional(from)?;
    let to = SocketAddr::new(parse(address)?, port);
    Ok(connecting(env, token, timeout_ms, config, move |parameters, left| {
        AutoFabric(fabric.0).connect_because(from, to, parameters, left)
    }))
}

/// `{ok, Attempt, Id} | {error, Reason}`: connects by this function, which gets the time that is left.
fn connecting<'a>(
    env: Env<'a>,
    token: u64,
    timeout_ms: u64,
    config: Config,
    connect: impl FnOnce(&Parameters, Duration) -> Result<Made, FabricError> + Send + 'static,
) -> Term<'a> {
    let id = next_id();
    let parameters = config.parameters(id, token);
    let attempt = Attempt::connect(
        Duration::from_millis(timeout_ms),
        move |left| connect(&parameters, left),
        tell(env, id),
    );
    match attempt {
        Ok(attempt) => (atoms::ok(), resource(id, attempt, config), id).encode(env),
        Err(error) => failed(env, &error),
    }
}

/// `expect_shm(Token, TimeoutMs, Config) -> {ok, Attempt, Id, Name} | {error, Reason}`: waits for the peer whose hello
/// has this token, at the listener that all such attempts of the node share. No message reports the outcome unless
/// [`notify`] asks for it.
///
/// Makes no system call, except that the first call opens the listener.
#[rustler::nif]
fn expect_shm<'a>(env: Env<'a>, token: u64, timeout_ms: u64, config: Config) -> NifResult<Term<'a>> {
    check_token(token)?;
    let id = next_id();
    let timeout = Duration::from_millis(timeout_ms);
    let expected = Attempt::expect_shm(&config.parameters(id, token), timeout);
    let expected = expected.map(|(attempt, name)| (attempt, name.to_string()));
    Ok(expecting(env, id, config, expected))
}

/// `connect_shm(Name, Token, TimeoutMs, Config) -> {ok, Attempt, Id} | {error, Reason}`: as [`connect`], to the attempt
/// of [`expect_shm`] of the node of this network namespace that has this name.
///
/// Never blocks.
#[rustler::nif]
fn connect_shm<'a>(env: Env<'a>, name: &str, token: u64, timeout_ms: u64, config: Config) -> NifResult<Term<'a>> {
    check_token(token)?;
    let name: SocketName = name.parse().map_err(|_| rustler::Error::BadArg)?;
    Ok(connecting(env, token, timeout_ms, config, move |parameters, left| {
        attempt::connect_to(&name, parameters, left)
    }))
}

/// `shm_file(Directory, Users) -> {ok, Name} | {error, Reason}`: the name of this node's socket file in a
/// directory that containers share. Through it a peer of another network namespace reaches the attempts of
/// [`expect_shm`]. Makes the file if it is missing. Processes of this node's user and of `Users` may connect.
///
/// Reads the directory: not for a normal scheduler.
#[rustler::nif(schedule = "DirtyIo")]
fn shm_file<'a>(env: Env<'a>, directory: Binary<'a>, users: Vec<u32>) -> Term<'a> {
    let directory = SharedDirectory::new(&directory, users);
    let name = Attempt::expect_in(&directory).map(|name| name.to_string());
    name.map_err(|error| terms::fabric_error(env, &error)).encode(env)
}

/// `find_shm_file({Directory, Users, Name}) -> boolean()`: whether the directory has something of this name, and so is
/// that of a peer which has told the name. [`connect_shm_file`] checks what it is.
#[rustler::nif(schedule = "DirtyIo")]
fn find_shm_file((directory, users, name): (Binary<'_>, Vec<u32>, &str)) -> NifResult<bool> {
    let name: SocketName = name.parse().map_err(|_| rustler::Error::BadArg)?;
    Ok(SharedDirectory::new(&directory, users).has(&name))
}

/// `check_shm_directory(Directory, Users) -> ok | {error, Reason}`: whether [`shm_file`] would make a file in
/// this directory.
#[rustler::nif(schedule = "DirtyIo")]
fn check_shm_directory<'a>(env: Env<'a>, directory: Binary<'a>, users: Vec<u32>) -> Term<'a> {
    let directory = SharedDirectory::new(&directory, users);
    let checked = Attempt::check_directory(&directory);
    terms::done(env, checked, terms::fabric_error)
}

/// `remove_shm_file() -> ok`: removes the file of [`shm_file`], whose next call makes another file.
#[rustler::nif(schedule = "DirtyIo")]
fn remove_shm_file() -> Atom {
    Attempt::leave_directory();
    atoms::ok()
}

/// `connect_shm_file({Directory, Users, Name}, Token, TimeoutMs, Config) -> {ok, Attempt, Id} | {error, Reason}`: as
/// [`connect`], to the peer whose socket file has this name in the directory. The peer must run as this node's user or
/// as one of `Users`.
///
/// Never blocks.
#[rustler::nif]
fn connect_shm_file<'a>(
    env: Env<'a>,
    (directory, users, name): (Binary<'a>, Vec<u32>, &str),
    token: u64,
    timeout_ms: u64,
    config: Config,
) -> NifResult<Term<'a>> {
    check_token(token)?;
    let name: SocketName = name.parse().map_err(|_| rustler::Error::BadArg)?;
    let directory = SharedDirectory::new(&directory, users);
    Ok(connecting(env, token, timeout_ms, config, move |parameters, left| {
        attempt::connect_in(&directory, &name, parameters, left)
    }))
}

/// `expect(verbs | tcp, Address | <<>>, Token, TimeoutMs, Config) -> {ok, Attempt, Id, Port} | {error, Reason}`: opens
/// a listener on one address of this machine, as text, or on all, for the peer whose hello has this token, and waits
/// for it. The caller gets `{'$inet_rdma', Id, connected}` once there is a queue pair or a failure; [`stream`] tells
/// which. Then the port is closed, as it is when `Attempt` is collected.
///
/// Opening a listener takes some system calls: not for a normal scheduler.
#[rustler::nif(schedule = "DirtyIo")]
fn expect<'a>(
    env: Env<'a>,
    fabric: ByName<FabricName>,
    address: &str,
    token: u64,
    timeout_ms: u64,
    config: Config,
) -> NifResult<Term<'a>> {
    check_token(token)?;
    let address = optional(address)?;
    let id = next_id();
    let timeout = Duration::from_millis(timeout_ms);
    let options = ListenOptions {
        address,
        ports: 0..=0,
        backlog: config.backlog,
        hello_timeout: timeout.min(Duration::from_millis(config.connect_timeout_ms.into())),
        parameters: config.parameters(id, token),
    };
    let expected = AutoFabric(fabric.0).listen(&options).and_then(|listener| {
        let port = listener.port();
        Attempt::accept(listener, timeout, tell(env, id)).map(|attempt| (attempt, port))
    });
    Ok(expecting(env, id, config, expected))
}

fn expecting<'a>(
    env: Env<'a>,
    id: u64,
    config: Config,
    expected: Result<(Attempt, impl Encoder), FabricError>,
) -> Term<'a> {
    match expected {
        Ok((attempt, place)) => (atoms::ok(), resource(id, attempt, config), id, place).encode(env),
        Err(error) => failed(env, &error),
    }
}

/// The token 0 is refused: any peer knows it.
fn check_token(token: u64) -> NifResult<()> {
    if token == 0 {
        return Err(rustler::Error::BadArg);
    }
    Ok(())
}

/// `stream(Attempt, Protection) -> {ok, Conn} | {error, Reason} | waiting`: the queue pair becomes a stream connection,
/// with the attempt's id and the caller as its owner. `waiting`: call again after the message `connected`, which always
/// comes. A second call for a queue pair that was taken is an error.
#[rustler::nif]
fn stream<'a>(env: Env<'a>, attempt: ResourceArc<AttemptResource>, protection: ProtectionOption) -> Term<'a> {
    let (qp, why) = match attempt.take() {
        None => return atoms::waiting().encode(env),
        Some(Err(error)) => return (atoms::error(), terms::attempt_error(env, &error)).encode(env),
        Some(Ok(made)) => made,
    };
    let conn = establish(env, qp, attempt.id, &attempt.config, protection.0.as_ref(), why);
    conn.map_err(|closed| terms::closed(env, &closed)).encode(env)
}

/// `token() -> Token`: 64 random bits from the system, never 0.
#[rustler::nif(name = "token")]
fn token_nif() -> u64 {
    attempt::token()
}

/// `nonce() -> Nonce`: 16 random bytes from the system, with the time in them: a machine that is restored from a
/// snapshot may get the bytes again that it had after the snapshot was taken.
#[rustler::nif]
fn nonce(env: Env<'_>) -> Binary<'_> {
    let mut nonce = NewBinary::new(env, 16);
    for (half, mixed) in nonce
        .as_mut_slice()
        .chunks_exact_mut(size_of::<u64>())
        .zip([0, clocks::nanoseconds()])
    {
        half.copy_from_slice(&(attempt::token() ^ mixed).to_ne_bytes());
    }
    nonce.into()
}

pub fn parse(address: &str) -> NifResult<IpAddr> {
    address.parse().map_err(|_| rustler::Error::BadArg)
}

/// An address; None: the text is empty.
pub fn optional(address: &str) -> NifResult<Option<IpAddr>> {
    match address {
        "" => Ok(None),
        text => parse(text).map(Some),
    }
}

fn failed<'a>(env: Env<'a>, error: &FabricError) -> Term<'a> {
    (atoms::error(), terms::fabric_error(env, error)).encode(env)
}
