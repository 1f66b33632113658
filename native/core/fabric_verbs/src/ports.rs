//! Ids that listen, on one port for all addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use inet_rdma_fabric::{FabricError, ListenOptions};
use inet_rdma_verbs::cm::{CmId, EventChannel};

use crate::refusal::failed_call;

/// Listens on the first port of the range that is free for all addresses.
pub(crate) fn open_range(events: &Arc<EventChannel>, options: &ListenOptions) -> Result<(Vec<CmId>, u16), FabricError> {
    options.on_first_free(|port| open(events, options, port))
}

/// None: the port is taken.
fn open(
    events: &Arc<EventChannel>,
    options: &ListenOptions,
    mut port: u16,
) -> Result<Option<(Vec<CmId>, u16)>, FabricError> {
    let addresses = match options.address {
        Some(address) => vec![address],
        None => vec![IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)],
    };
    let mut ids: Vec<CmId> = Vec::new();
    for address in addresses {
        match open_one(events, SocketAddr::new(address, port), options.backlog) {
            Ok(id) => {
                port = id.port();
                ids.push(id);
            }
            // A machine without IPv6 has no address of that family.
            Err(failed) if failed.errno() == libc::EAFNOSUPPORT && !ids.is_empty() => {}
            Err(failed) => {
                return match failed.errno() {
                    // The second family: a listener on all addresses has the port.
                    libc::EADDRINUSE | libc::EADDRNOTAVAIL => Ok(None),
                    libc::ENODEV => Err(FabricError::NoRoute(format!(
                        "cannot listen over verbs on {address}: it is no address of an RDMA device"
                    ))),
                    libc::EACCES => Err(FabricError::PortsTaken {
                        first: port,
                        last: port,
                    }),
                    _ => Err(failed_call(failed)),
                };
            }
        }
    }
    Ok(Some((ids, port)))
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
