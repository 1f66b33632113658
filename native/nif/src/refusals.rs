//! Log lines of peers that a listener has refused, and their bound.

use std::time::Instant;

use inet_rdma_fabric::FabricError;
use inet_rdma_socket::log_limit::LogLimit;
use parking_lot::Mutex;
use rustler::{Encoder, Env, LocalPid, Resource, ResourceArc, Term};

use crate::atoms;
use crate::messages;
use crate::terms;

/// Tells the VM's logger of refused peers.
pub struct Refusals {
    /// The process that logs for native code: `erlang:system_info(system_logger)`.
    logger: LocalPid,
    port: u16,
    limit: Mutex<LogLimit>,
}

impl Refusals {
    /// The log of the listener with this port.
    pub fn new(logger: LocalPid, port: u16) -> Self {
        Self {
            logger,
            port,
            limit: Mutex::new(LogLimit::new(Instant::now())),
        }
    }

    /// Logs one refused peer, unless the limit is reached. Never blocks. Call it on threads of the library only.
    pub fn log(&self, error: &FabricError) {
        if let Some(left_out) = self.limit.lock().admit(Instant::now()) {
            messages::send(&self.logger, |env| self.event(env, error, left_out));
        }
    }

    /// The event in the shape of the runtime system's own events: `{log, Level, Format, Arguments, Metadata}`.
    fn event<'a>(&self, env: Env<'a>, error: &FabricError, left_out: u64) -> Term<'a> {
        let reason = terms::fabric_error(env, error);
        let metadata = terms::map(env, &[("inet_rdma_reason", &reason)]);
        let (format, arguments) = match left_out {
            0 => (
                "inet_rdma: refused a peer on port ~b: ~tp",
                vec![self.port.encode(env), reason],
            ),
            _ => (
                "inet_rdma: refused a peer on port ~b: ~tp (and ~b others that are not in the log)",
                vec![self.port.encode(env), reason, left_out.encode(env)],
            ),
        };
        let format = charlist(env, format);
        (atoms::log(), atoms::warning(), format, arguments, metadata).encode(env)
    }
}

/// The resource behind the Erlang term `LogLimit`, for a listener that is a process.
pub struct LimitResource(Mutex<LogLimit>);

#[rustler::resource_impl]
impl Resource for LimitResource {}

/// `log_limit() -> LogLimit`: a bound on the log lines of one listener.
#[rustler::nif]
fn log_limit(env: Env<'_>) -> Term<'_> {
    ResourceArc::new(LimitResource(Mutex::new(LogLimit::new(Instant::now())))).encode(env)
}

/// `log_admits(LogLimit) -> LeftOut | none`: the lines left out since the last one; none: no line may be written now.
#[rustler::nif]
fn log_admits<'a>(env: Env<'a>, limit: ResourceArc<LimitResource>) -> Term<'a> {
    match limit.0.lock().admit(Instant::now()) {
        Some(left_out) => left_out.encode(env),
        None => atoms::none().encode(env),
    }
}

fn charlist<'a>(env: Env<'a>, text: &str) -> Term<'a> {
    text.chars().map(u32::from).collect::<Vec<_>>().encode(env)
}
