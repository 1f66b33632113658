//! Facts about the RDMA devices of this machine, for `inet_rdma_doctor:report/0`.

use inet_rdma_engine::VerbsFabric;
use inet_rdma_fabric::FabricError;
use inet_rdma_verbs::device::{self, Device, OpenDevice, Unopened};
use inet_rdma_verbs::{Transport, VerbsError};
use rustler::{Encoder, Env, NifMap, NifUntaggedEnum, Term};

use crate::atoms;
use crate::named::{ByName, named};
use crate::terms;

named!(Transport {
    InfiniBand => infiniband,
    Iwarp => iwarp,
});

/// See `inet_rdma_verbs::device::PortState`.
#[derive(NifMap)]
struct PortMap {
    number: u8,
    active: bool,
    active_mtu: u32,
    max_mtu: u32,
}

/// See `inet_rdma_verbs::device::DeviceLimits`.
#[derive(NifMap)]
struct LimitsMap {
    queue_entries: u32,
    sges: u32,
    completion_entries: u32,
}

/// A device that answers.
#[derive(NifMap)]
struct DeviceMap {
    name: String,
    transport: ByName<Transport>,
    firmware: String,
    limits: LimitsMap,
    ports: Vec<PortMap>,
}

/// A device that cannot be opened, or does not answer.
#[derive(NifMap)]
struct RefusedMap {
    name: String,
    refused: String,
}

#[derive(NifUntaggedEnum)]
enum Found {
    Usable(DeviceMap),
    Refused(RefusedMap),
}

impl From<Result<OpenDevice, Unopened>> for Found {
    fn from(opened: Result<OpenDevice, Unopened>) -> Self {
        let refused = |name, why: VerbsError| {
            Found::Refused(RefusedMap {
                name,
                refused: why.to_string(),
            })
        };
        match opened {
            Ok(open) => match look(open.device()) {
                Ok(map) => Found::Usable(map),
                Err(why) => refused(open.device().name(), why),
            },
            Err(Unopened { name, refusal }) => refused(name, refusal),
        }
    }
}

fn look(device: Device<'_>) -> Result<DeviceMap, VerbsError> {
    let limits = device.limits()?;
    let ports = (1..=limits.ports).map(|number| {
        let port = device.port(number)?;
        Ok(PortMap {
            number,
            active: port.is_active,
            active_mtu: port.active_mtu_bytes,
            max_mtu: port.max_mtu_bytes,
        })
    });
    Ok(DeviceMap {
        name: device.name(),
        transport: ByName(device.transport()),
        ports: ports.collect::<Result<_, VerbsError>>()?,
        firmware: limits.firmware,
        limits: LimitsMap {
            queue_entries: limits.queue_entries,
            sges: limits.sges,
            completion_entries: limits.completion_entries,
        },
    })
}

/// `verbs_devices() -> {ok, [Device | #{name, refused}]} | {error, Reason}`: every RDMA device that libibverbs knows.
/// Error: the libraries or the kernel's modules are missing.
///
/// Opens each device: not for a normal scheduler.
#[rustler::nif(schedule = "DirtyIo")]
fn verbs_devices(env: Env<'_>) -> Term<'_> {
    match device::open_all() {
        Ok(devices) => {
            let found: Vec<Found> = devices.into_iter().map(Found::from).collect();
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
