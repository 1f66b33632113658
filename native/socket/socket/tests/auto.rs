//! Addresses of this host, and the choice of a fabric for a peer.

#[path = "../../../core/fabric/tests/support/mod.rs"]
#[allow(dead_code, reason = "shared with the contract suite, which uses all of it")]
mod support;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::process::Command;

use inet_rdma_engine::local::is_local;
use inet_rdma_fabric::{Fabric, FabricError, FabricName, ListenOptions, Listener, Parameters, QueuePair};
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_fabric_tcp::TcpFabric;
use inet_rdma_socket::auto::AutoFabric;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use rustix::thread::UnshareFlags;
use support::{BOUND, accept, listen, options, parameters};

const AUTO: AutoFabric = AutoFabric(FabricName::Auto);

/// An address of TEST-NET-1, which no interface has.
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

fn here(listener: &dyn Listener) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, listener.port()).into()
}

/// Both ends' outcomes of one connect, the first with its reason.
#[allow(clippy::type_complexity, reason = "it is read once, at its use")]
fn meet(
    connecting: AutoFabric,
    to: SocketAddr,
    listener: &mut dyn Listener,
) -> (
    Result<(Box<dyn QueuePair>, String), FabricError>,
    Result<Box<dyn QueuePair>, FabricError>,
) {
    let connect = move || connecting.connect_because(None, to, &parameters(), BOUND);
    std::thread::scope(|scope| {
        let connecting = scope.spawn(connect);
        let accepted = accept(listener);
        (connecting.join().expect("no panic"), accepted)
    })
}

#[test]
fn a_listener_has_one_port_over_shm_and_tcp() {
    let mut listener = listen(&AUTO, parameters());
    let to = here(&*listener);
    for fabric in [FabricName::Shm, FabricName::Tcp, FabricName::Tcp, FabricName::Shm] {
        let (client, server) = meet(AutoFabric(fabric), to, &mut *listener);
        let (client, why) = client.expect("a connection");
        assert_eq!(
            (client.fabric(), server.expect("a connection").fabric()),
            (fabric, fabric)
        );
        assert!(why.contains("the option fabric is"), "{why}");
    }
    assert!(
        listener.over().contains("shm and tcp") || listener.over().contains("and verbs"),
        "{}",
        listener.over()
    );
}

#[test]
fn this_host_is_reached_over_shm_first() {
    let mut listener = listen(&AUTO, parameters());
    let to = here(&*listener);
    let (client, _server) = meet(AUTO, to, &mut *listener);
    let (client, why) = client.expect("a connection");
    assert_eq!((client.fabric(), &why[..13]), (FabricName::Shm, "the same host"));
}

#[test]
fn tcp_leads_where_no_process_listens_over_shm() {
    let mut listener = listen(&TcpFabric, parameters());
    let to = here(&*listener);
    let (client, server) = meet(AUTO, to, &mut *listener);
    let (client, why) = client.expect("a connection");
    assert_eq!((client.fabric(), server.is_ok()), (FabricName::Tcp, true));
    assert!(
        why.contains("nobody listens over shm") && why.contains("TCP, "),
        "{why}"
    );
}

#[test]
fn a_refusal_over_shm_is_final() {
    let token = Parameters {
        token: 7,
        ..parameters()
    };
    let (mut listener, mut over_tcp) = loop {
        let listener = listen(&ShmFabric, token);
        let on_its_port = ListenOptions {
            ports: listener.port()..=listener.port(),
            ..options(parameters())
        };
        // Else the port is taken by a connection of another test.
        if let Ok(over_tcp) = TcpFabric.listen(&on_its_port) {
            break (listener, over_tcp);
        }
    };
    let to = here(&*listener);
    let (client, server) = meet(AUTO, to, &mut *listener);
    assert!(client.is_err() && matches!(server, Err(FabricError::WrongToken)));
    assert!(over_tcp.poll_accept().is_none(), "nobody came");
}

#[test]
fn a_port_without_a_listener_over_any_fabric_refuses() {
    let refused = AUTO.connect((Ipv4Addr::LOCALHOST, 9).into(), &parameters(), BOUND);
    assert!(matches!(refused.map(|_| ()), Err(FabricError::Refused(9))));
}

#[test]
fn a_port_that_is_taken_over_tcp_is_taken() {
    let other = std::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port");
    let port = other.local_addr().expect("its address").port();
    let on = |first, last| {
        let listening = AUTO.listen(&ListenOptions {
            ports: first..=last,
            ..options(parameters())
        });
        listening.map(|listener| listener.port())
    };
    let taken = on(port, port);
    assert!(matches!(taken, Err(FabricError::PortsTaken { .. })), "{taken:?}");
    let next = on(port, port.saturating_add(20)).expect("one of twenty is free");
    assert!(next > port);
}

/// An address that no interface has, though it leads here: it looks like another host's.
#[test]
fn another_host_is_reached_over_tcp_where_no_device_leads() {
    let thread = std::thread::spawn(|| {
        // SAFETY: a network namespace is the thread's own; descriptors and memory stay shared with the other threads.
        if let Err(errno) = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) } {
            return println!("skipped: no network namespace of its own: {errno}");
        }
        for words in ["link set lo up", "route add local 192.0.2.0/24 dev lo"] {
            match Command::new("ip").args(words.split(' ')).status() {
                Ok(status) if status.success() => {}
                other => return println!("skipped: ip {words}: {other:?}"),
            }
        }
        assert!(!is_local(ELSEWHERE));
        let mut listener = listen(&AUTO, parameters());
        let to = SocketAddr::new(ELSEWHERE, listener.port());
        // Threads that this one starts are in its namespace.
        let connected = std::thread::scope(|scope| {
            let accepting = scope.spawn(|| accept(&mut *listener).map(|end| end.fabric()));
            let connected = AUTO.connect_because(None, to, &parameters(), BOUND);
            let accepted = accepting.join().expect("no panic");
            connected.map(|(client, why)| (client.fabric(), accepted, why))
        });
        let (client, server, why) = connected.expect("a connection");
        assert_eq!((client, server), (FabricName::Tcp, Ok(FabricName::Tcp)));
        assert!(why.starts_with("another host, and the verbs fabric"), "{why}");
        drop(listener);
        let nobody = AUTO.connect(to, &parameters(), BOUND).map(|_| ());
        assert!(matches!(nobody, Err(FabricError::Refused(_))), "{nobody:?}");
        let unreachable = AUTO.connect((Ipv4Addr::new(198, 51, 100, 1), 9).into(), &parameters(), BOUND);
        let Err(FabricError::NoRoute(text)) = unreachable.map(|_| ()) else {
            panic!("there is no route");
        };
        for word in ["shared memory", "verbs", "TCP"] {
            assert!(text.contains(word), "{text}");
        }
    });
    thread.join().expect("no panic");
}

const NOBODY: u32 = 65533;

/// Runs it on a thread in a network namespace of its own, where one can be had.
fn in_a_network_of_its_own(run: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(|| {
        // SAFETY: a network namespace is the thread's own; descriptors and memory stay shared with the other threads.
        match unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) } {
            Err(errno) => println!("skipped: no network namespace of its own: {errno}"),
            Ok(()) => run(),
        }
    });
    thread.join().expect("no panic");
}

/// Abstract sockets of another user with the names of these ports, in the network namespace of the calling thread.
fn taken_by_another_user(ports: std::ops::RangeInclusive<u16>, listens: bool) -> Vec<OwnedFd> {
    let taken = std::thread::spawn(move || {
        let nobody = rustix::process::Uid::from_raw(NOBODY);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("root may");
        let take = |port: u16| {
            let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
            let name = format!("inet_rdma/{port}");
            let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a name");
            rustix::net::bind(&socket, &address).expect("a free name");
            if listens {
                rustix::net::listen(&socket, 0).expect("it listens");
            }
            socket
        };
        ports.map(take).collect()
    });
    taken.join().expect("no panic")
}

#[test]
fn a_name_that_another_user_has_leaves_the_other_fabrics() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can take a name as another user");
    }
    in_a_network_of_its_own(|| {
        Command::new("ip")
            .args(["link", "set", "lo", "up"])
            .status()
            .expect("ip");
        for listens in [true, false] {
            let _taken = taken_by_another_user(50000..=50000, listens);
            let options = ListenOptions {
                ports: 50000..=50000,
                ..options(parameters())
            };
            match (ShmFabric.listen(&options).map(|_| ()), listens) {
                (
                    Err(FabricError::PortHeld {
                        port: 50000,
                        user: Some(NOBODY),
                        pid: Some(pid),
                    }),
                    true,
                ) => assert_eq!(pid, std::process::id(), "a thread of this process holds it"),
                (
                    Err(FabricError::PortHeld {
                        port: 50000,
                        user: None,
                        pid: None,
                    }),
                    false,
                ) => {}
                (other, _) => panic!("{other:?}"),
            }
            let mut listener = AUTO.listen(&options).expect("over TCP");
            assert!(
                listener.over().contains("tcp only; port 50000 over shm is taken"),
                "{}",
                listener.over()
            );
            let to = here(&*listener);
            let (connected, _) = meet(AUTO, to, &mut *listener);
            let (connected, why) = connected.expect("over TCP");
            assert_eq!(connected.fabric(), FabricName::Tcp, "{why}");
        }
    });
}

#[test]
fn all_names_in_the_hands_of_another_user_leave_the_other_fabrics() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can take names as another user");
    }
    if rustix::process::getrlimit(rustix::process::Resource::Nofile).current < Some(17_000) {
        return println!("skipped: the limit of descriptors is too low to take all names");
    }
    in_a_network_of_its_own(|| {
        Command::new("ip")
            .args(["link", "set", "lo", "up"])
            .status()
            .expect("ip");
        let _taken = taken_by_another_user(49152..=65535, false);
        let mut listener = AUTO.listen(&options(parameters())).expect("over TCP");
        let to = here(&*listener);
        let (connected, _) = meet(AUTO, to, &mut *listener);
        assert_eq!(connected.expect("over TCP").0.fabric(), FabricName::Tcp);
    });
}

#[test]
fn a_port_of_the_own_user_is_taken() {
    let first = listen(&ShmFabric, parameters());
    let options = ListenOptions {
        ports: first.port()..=first.port(),
        ..options(parameters())
    };
    assert!(matches!(
        ShmFabric.listen(&options),
        Err(FabricError::PortsTaken { .. })
    ));
    assert!(matches!(AUTO.listen(&options), Err(FabricError::PortsTaken { .. })));
}
