//! The addresses of this host.

use std::net::IpAddr;

/// True if an address is this host's: loopback, unspecified, or that of an interface of this network namespace. False
/// if the system does not name its interfaces. A successful bind would prove nothing: with
/// `net.ipv4.ip_nonlocal_bind=1` any address can be bound.
pub fn is_local(address: IpAddr) -> bool {
    let address = address.to_canonical();
    address.is_loopback() || address.is_unspecified() || interface_addresses().any(|own| own == address)
}

fn interface_addresses() -> impl Iterator<Item = IpAddr> {
    let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten();
    interfaces.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
    })
}
