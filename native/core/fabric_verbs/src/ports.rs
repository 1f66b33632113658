//! Ids that listen, on one port for all addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use inet_rdma_fabric::{FabricError, ListenOptions};
use inet_rdma_verbs::cm::{CmId, EventChannel};

use crate::refusal::failed_call;

/// Listens on the first port of the range that is free for all addresses.
pub(crate) fn open_range(events: &Arc<EventChannel>, options: &ListenOptions) -> Result<(Vec<CmId>, u16), FabricError> {
    let (first, last) = (*options.ports.start(), *options.ports.end());
    for port in options.ports_to_try() {
        match open(events, options, port) {
            Err(Taken::Port) => {}
            Err(Taken::Other(error)) => return Err(error),
            Ok(opened) => return Ok(opened),
        }
    }
    Err(FabricError::PortsTaken { first, last })
}

enum Taken {
    Port,
    Other(FabricError),
}

fn open(events: &Arc<EventChannel>, options: &ListenOptions, port: u16) -> Result<(Vec<CmId>, u16), Taken> {
    let addresses = match options.address {
        Some(address) => vec![address],
        None => vec![IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)],
    };
    let mut ids: Vec<CmId> = Vec::new();
    let mut port = port;
    for address in addresses {
        match open_one(events, SocketAddr::new(address, port), options.backlog) {
            Ok(id) => {
                port = id.port();
                ids.push(id);
            }
            // A machine without IPv6 has no address of that family.
            Err(failed) if failed.errno() == libc::EAFNOSUPPORT && !ids.is_empty() => {}
            Err(failed) => {
                return Err(match failed.errno() {
                    // The second family: a listener on all addresses has the port.
                    libc::EADDRINUSE | libc::EADDRNOTAVAIL => Taken::Port,
                    libc::ENODEV => Taken::Other(FabricError::NoRoute(format!(
                        "cannot listen over verbs on {address}: it is no address of an RDMA device"
                    ))),
                    libc::EACCES => Taken::Other(FabricError::PortsTaken {
                        first: port,
                        last: port,
                    }),
                    _ => Taken::Other(failed_call(failed)),
                });
            }
        }
    }
    Ok((ids, port))
}

fn open_one(
    events: &Arc<EventChannel>,
    address: SocketAddr,
    backlog: u16,
) -> Result<CmId, inet_rdma_verbs::VerbsError> {
    let id = CmId::create(events)?;
    if address.is_ipv6() {
        id.one_family()?;
    }
    id.bind(address)?;
    id.listen(backlog)?;
    Ok(id)
}
