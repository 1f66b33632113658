//! Refusals by a device, the kernel or the peer as errors that tell the remedy; and this side's own refusals.

use std::net::SocketAddr;

use inet_rdma_fabric::{FabricError, Lack, Misbehaviour, Rejection};
use inet_rdma_stream::{HELLO_BYTES, Hello, WireError};
use inet_rdma_verbs::VerbsError;
use inet_rdma_verbs::cm::{Event, EventChannel, Kind};

/// The first byte of a rejection's private data: the listener has no room.
pub(crate) const REFUSED_BUSY: u8 = 1;
/// The listener refused the hello, or could not make its own side; its log tells the reason.
pub(crate) const REFUSED_HELLO: u8 = 2;

/// The connection manager's reason when a port has no listener: "Invalid Service ID" among the rejection reasons of the
/// InfiniBand specification.
const REJECTED_NO_LISTENER: i32 = 8;

const CONNECTION_MANAGER: &str = "/dev/infiniband/rdma_cm";

/// The error for a failed call that no other function here explains.
pub(crate) fn failed_call(failed: VerbsError) -> FabricError {
    FabricError::Verbs {
        doing: failed.doing,
        error: failed.error.into(),
    }
}

/// The error for an event channel that could not be made. That is the first call of the library, so a part that is
/// missing on this machine shows here.
pub(crate) fn no_connection_manager(failed: VerbsError) -> FabricError {
    FabricError::Unavailable(match failed.errno() {
        libc::EOPNOTSUPP => Lack::Libraries,
        // The library gives this error also for a file that may not be opened.
        libc::ENOENT | libc::ENODEV | libc::ENXIO | libc::ENOSYS if !is_forbidden(CONNECTION_MANAGER) => {
            Lack::ConnectionManager
        }
        libc::ENOENT | libc::ENODEV | libc::ENXIO | libc::ENOSYS | libc::EACCES | libc::EPERM => Lack::Permission,
        libc::EMFILE | libc::ENFILE => Lack::Descriptors(failed.error.into()),
        _ => Lack::System(failed.error.into()),
    })
}

fn is_forbidden(file: &str) -> bool {
    let opened = std::fs::File::options().read(true).write(true).open(file);
    opened.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
}

/// Whether this machine can be expected to connect over verbs at all.
pub(crate) fn check_machine() -> Result<(), FabricError> {
    EventChannel::create().map_err(no_connection_manager)?;
    let has_device = std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some());
    if has_device {
        return Ok(());
    }
    Err(FabricError::Unavailable(Lack::Device))
}

/// The error for a failed look for the way to the peer.
pub(crate) fn no_route(to: SocketAddr, errno: i32) -> FabricError {
    let why = match errno.abs() {
        // Over iWARP this error means that the port has no listener.
        libc::ECONNREFUSED => return FabricError::Refused(to.port()),
        libc::ENODEV | libc::EADDRNOTAVAIL => {
            "no RDMA device has an address in its network (`rdma link` shows which interface a device belongs to)"
                .to_owned()
        }
        libc::ENETUNREACH | libc::EHOSTUNREACH => "there is no route to it, or nobody answers there".to_owned(),
        libc::ETIMEDOUT => "nobody answers there".to_owned(),
        other => std::io::Error::from_raw_os_error(other).to_string(),
    };
    FabricError::NoRoute(format!("no way over verbs to {to}: {why}"))
}

/// An address without an interface: the kernel would look for it on any interface until the time is over.
pub(crate) fn check_address(to: SocketAddr) -> Result<(), FabricError> {
    let SocketAddr::V6(v6) = to else { return Ok(()) };
    if v6.scope_id() != 0 || !v6.ip().is_unicast_link_local() {
        return Ok(());
    }
    Err(FabricError::NoRoute(format!(
        "no way over verbs to {to}: a link-local address means nothing without its interface, and a node's name has no \
         place for one; use another address of the peer"
    )))
}

/// The error for a call about the peer's address that failed at once.
pub(crate) fn address(to: SocketAddr, failed: VerbsError) -> FabricError {
    match failed.errno() {
        0 | libc::ENOMEM => failed_call(failed),
        errno => no_route(to, errno),
    }
}

/// The error for memory that could not be registered.
pub(crate) fn registration(bytes: usize, failed: VerbsError) -> FabricError {
    match failed.errno() {
        libc::ENOMEM | libc::EPERM | libc::EAGAIN => FabricError::LockedMemory {
            bytes,
            limit: rustix::process::getrlimit(rustix::process::Resource::Memlock).current,
        },
        _ => failed_call(failed),
    }
}

/// The error for an option of the user's that could not be set.
pub(crate) fn option(option: &'static str, failed: VerbsError) -> FabricError {
    match failed.errno() {
        libc::ENOSYS | libc::EOPNOTSUPP | libc::ENOPROTOOPT => FabricError::OptionUnknown { option },
        _ => failed_call(failed),
    }
}

/// The error for an event that ends the making of a connection.
pub(crate) fn of_event(to: SocketAddr, event: &Event) -> FabricError {
    match event.kind {
        Kind::AddressError | Kind::RouteError => no_route(to, event.status),
        Kind::Unreachable if event.status == -libc::ETIMEDOUT => FabricError::TimedOut,
        Kind::Unreachable => no_route(to, event.status),
        Kind::Rejected => rejected(to, event),
        Kind::ConnectError if event.status == -libc::ETIMEDOUT => FabricError::TimedOut,
        Kind::ConnectError | Kind::Disconnected => FabricError::PeerGone,
        Kind::DeviceRemoval => FabricError::DeviceRemoved,
        kind => FabricError::PeerMisbehaved(Misbehaviour::AnswerEvent {
            event: kind.to_string(),
            status: event.status,
        }),
    }
}

fn rejected(to: SocketAddr, event: &Event) -> FabricError {
    match event.private_data.first() {
        Some(&REFUSED_BUSY) => return FabricError::Rejected(Rejection::Busy),
        Some(&REFUSED_HELLO) => return FabricError::Rejected(Rejection::Hello),
        _ => {}
    }
    if let Err(FabricError::Hello(error @ WireError::Version { .. })) = parse_hello(&event.private_data) {
        return FabricError::Hello(error);
    }
    match event.status {
        REJECTED_NO_LISTENER => FabricError::Refused(to.port()),
        // Over iWARP the reason is an error's number.
        errno if errno < 0 => no_route(to, errno),
        reason => FabricError::Rejected(Rejection::Reason(reason)),
    }
}

/// The hello in private data, which the transport may have padded with zeros.
pub(crate) fn parse_hello(private_data: &[u8]) -> Result<Hello, FabricError> {
    let hello = Hello::parse(private_data.get(..HELLO_BYTES).unwrap_or(private_data))?;
    if u32::try_from(hello.ring.key).is_err() {
        return Err(WireError::Field("ring key").into());
    }
    let checked = hello.limits().check();
    checked.map_err(|error| FabricError::PeerMisbehaved(error.into()))?;
    Ok(hello)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_no_device_has_is_refused() {
        let hello = |key| Hello {
            ring: inet_rdma_stream::RemoteAddress { key, address: 0 },
            ring_bytes: 4_096,
            receive_slots: 16,
            adverts: 1,
            ..Hello::default()
        };
        assert!(parse_hello(&hello(u32::MAX.into()).emit()).is_ok());
        let refused = parse_hello(&hello(1 << 32).emit());
        assert!(
            matches!(refused, Err(FabricError::Hello(WireError::Field("ring key")))),
            "{refused:?}"
        );
    }

    #[test]
    fn an_option_that_the_kernel_does_not_know_is_named() {
        let failed = VerbsError {
            doing: "setting an option of a connection id",
            error: std::io::Error::from_raw_os_error(libc::ENOSYS),
        };
        let refused = option("ack_timeout_ms", failed);
        assert!(
            refused.to_string().contains("does not know the option ack_timeout_ms"),
            "{refused}"
        );
    }
}
