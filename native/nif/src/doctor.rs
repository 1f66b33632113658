//! Facts about the RDMA devices of this machine, for `inet_rdma_doctor:report/0`.

use inet_rdma_engine::VerbsFabric;
use inet_rdma_fabric::FabricError;
use inet_rdma_verbs::device::{self, Device, OpenDevice, Unopened};
use inet_rdma_verbs::{Transport, VerbsError};
use rustler::{Encoder, Env, Term};

use crate::atoms;
use crate::names::{ByName, named};
use crate::terms;

named!(Transport {
    InfiniBand => infiniband,
    Iwarp => iwarp,
});

/// `#{name, transport, firmware, limits, without, ports}` of a device that answers. `inet_rdma_verbs::device` says what
/// each is; without: [`VerbsFabric::without`].
fn facts<'a>(env: Env<'a>, device: Device<'_>) -> Result<Term<'a>, VerbsError> {
    let limits = device.limits()?;
    let ports = (1..=limits.ports).map(|number| {
        let port = device.port(number)?;
        let rows: &[(&str, &dyn Encoder)] = &[
            ("number", &number),
            ("active", &port.is_active),
            ("active_mtu", &port.active_mtu_bytes),
            ("max_mtu", &port.max_mtu_bytes),
        ];
        Ok(terms::map(env, rows))
    });
    let ports = ports.collect::<Result<Vec<_>, VerbsError>>()?;
    let queue: &[(&str, &dyn Encoder)] = &[
        ("queue_entries", &limits.queue_entries),
        ("sges", &limits.sges),
        ("completion_entries", &limits.completion_entries),
    ];
    let rows: &[(&str, &dyn Encoder)] = &[
        ("name", &device.name()),
        ("transport", &ByName(device.transport())),
        ("firmware", &limits.firmware),
        ("limits", &terms::map(env, queue)),
        (
            "without",
            &terms::tried_names(env, &VerbsFabric.without(&device.name())),
        ),
        ("ports", &ports),
    ];
    Ok(terms::map(env, rows))
}

/// `#{name, refused}` of a device that cannot be opened, or does not answer.
fn refused<'a>(env: Env<'a>, name: &str, why: &VerbsError) -> Term<'a> {
    terms::map(env, &[("name", &name), ("refused", &why.to_string())])
}

fn found(env: Env<'_>, opened: Result<OpenDevice, Unopened>) -> Term<'_> {
    match opened {
        Ok(open) => facts(env, open.device()).unwrap_or_else(|why| refused(env, &open.device().name(), &why)),
        Err(Unopened { name, refusal }) => refused(env, &name, &refusal),
    }
}

/// `verbs_devices() -> {ok, [Device | #{name, refused}]} | {error, Reason}`: every RDMA device that libibverbs knows.
/// Error: the libraries or the kernel's modules are missing.
///
/// Opens each device: not for a normal scheduler.
#[rustler::nif(schedule = "DirtyIo")]
fn verbs_devices(env: Env<'_>) -> Term<'_> {
    match device::open_all() {
        Ok(devices) => {
            let found: Vec<_> = devices.into_iter().map(|opened| found(env, opened)).collect();
            (atoms::ok(), found).encode(env)
        }
        Err(failed) => {
            let why = VerbsFabric.check().err().unwrap_or_else(|| FabricError::Verbs {
                doing: failed.doing,
                error: failed.error.into(),
            });
            (atoms::error(), terms::fabric_error(env, &why)).encode(env)
        }
    }
}
