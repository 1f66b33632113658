//! The facts by which two nodes settle on a fabric: a node's host, and the addresses of its RDMA devices.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

use inet_rdma_engine::VerbsFabric;
use inet_rdma_engine::local;
use rustler::{Encoder, Env, NifMap, NifResult, Term};

use crate::attempt::parse;
use crate::terms;

/// The facts that two nodes compare to learn whether they share a host, its network, and a user. A fact that cannot be
/// read is empty, or 0, and equals no other.
#[derive(NifMap, Clone)]
struct Identity {
    /// The kernel's name for this boot: the same for all containers of a host, and another after each start.
    boot: String,
    /// The network namespace: device and inode of its file, 32 bits each. Abstract sockets connect only processes of
    /// the same one.
    netns: u64,
    /// The effective user.
    user: u32,
    /// The user namespace, as `netns`: the same number names different users in different user namespaces.
    userns: u64,
    /// A random number of this VM.
    instance: u64,
}

/// `identity() -> #{boot := binary(), netns := integer(), user := integer(), userns := integer(), instance :=
/// integer()}`: read once, so that it stays the same as long as the VM runs.
///
/// The kernel makes the contents of the files that it reads, without a disk: this does not block.
#[rustler::nif]
fn identity() -> Identity {
    static IDENTITY: OnceLock<Identity> = OnceLock::new();
    IDENTITY.get_or_init(read).clone()
}

fn read() -> Identity {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Identity {
        boot: boot.trim_end().to_owned(),
        netns: namespace("net"),
        user: inet_rdma_fabric_shm::user(),
        userns: namespace("user"),
        instance: RandomState::new().hash_one(std::process::id()),
    }
}

fn namespace(kind: &str) -> u64 {
    // The inode numbers of namespaces have 32 bits.
    std::fs::metadata(format!("/proc/self/ns/{kind}")).map_or(0, |file| file.dev() << 32 | file.ino())
}

/// `is_local(Address) -> boolean()`: whether this address, as text, is this host's.
///
/// Asks the kernel for all addresses of all interfaces. Not for a normal scheduler.
#[rustler::nif(schedule = "DirtyIo")]
fn is_local(address: &str) -> NifResult<bool> {
    parse(address).map(local::is_local)
}

/// `verbs_addresses([Address]) -> {ok, [Address]} | {error, Reason}`: which of these addresses of this machine, as
/// text, belong to an RDMA device, in the given order, without loopback and link-local addresses. The error says why
/// verbs cannot be used here.
///
/// Opens each device that it finds, and starts the thread of RDMA events. librdmacm keeps each device open until it is
/// removed: one descriptor per device.
/// Not for a normal scheduler.
#[rustler::nif(schedule = "DirtyIo")]
fn verbs_addresses<'a>(env: Env<'a>, addresses: Vec<&str>) -> NifResult<Term<'a>> {
    let parsed: Vec<IpAddr> = addresses.into_iter().map(parse).collect::<NifResult<_>>()?;
    let found = VerbsFabric.addresses_of_devices(&parsed);
    let found = found.map(|found| found.iter().map(IpAddr::to_string).collect::<Vec<_>>());
    Ok(found.map_err(|error| terms::fabric_error(env, &error)).encode(env))
}
