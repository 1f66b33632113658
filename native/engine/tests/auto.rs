//! Which addresses are this host's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use inet_rdma_engine::auto::is_local;
use rustix::thread::UnshareFlags;

/// Of TEST-NET-1: no interface has it.
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

#[test]
fn loopback_and_addresses_of_interfaces_are_local() {
    let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped().into();
    let loopback: [IpAddr; 4] = [
        Ipv4Addr::LOCALHOST.into(),
        Ipv4Addr::new(127, 1, 2, 3).into(),
        Ipv6Addr::LOCALHOST.into(),
        mapped,
    ];
    for address in loopback {
        assert!(is_local(address), "{address}");
    }
    assert!(is_local(Ipv4Addr::UNSPECIFIED.into()) && is_local(Ipv6Addr::UNSPECIFIED.into()));
    assert!(!is_local(ELSEWHERE));
    // The kernel's own choice of a source, where there is a route: an address of an interface.
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a socket");
    match socket.connect((ELSEWHERE, 9)).and_then(|()| socket.local_addr()) {
        Ok(source) => assert!(is_local(source.ip()), "{source}"),
        Err(error) => println!("skipped: this host has no route to ask for: {error}"),
    }
}

#[test]
fn an_address_that_can_only_be_bound_is_not_local() {
    let thread = std::thread::spawn(|| {
        // SAFETY: a network namespace is the thread's own; descriptors and memory stay shared with the other threads.
        if let Err(errno) = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) } {
            return println!("skipped: no network namespace of its own: {errno}");
        }
        if let Err(error) = std::fs::write("/proc/sys/net/ipv4/ip_nonlocal_bind", "1") {
            return println!("skipped: cannot set ip_nonlocal_bind: {error}");
        }
        std::net::UdpSocket::bind((ELSEWHERE, 0)).expect("any address can be bound here");
        assert!(!is_local(ELSEWHERE));
    });
    thread.join().expect("no panic");
}
