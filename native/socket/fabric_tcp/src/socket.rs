//! TCP sockets of connections and listeners.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use inet_rdma_fabric::{FabricError, Network};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// Time after the last byte until the kernel probes an idle connection; then it probes at intervals. So the end of a
/// peer's host shows after two minutes. With bytes under way it shows by retransmissions (`net.ipv4.tcp_retries2`).
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 6;

/// The error for an established connection that has failed.
pub(crate) fn lost(doing: &'static str, errno: Errno) -> FabricError {
    match errno {
        // NOTCONN: the peer has reset the connection before this call.
        Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => FabricError::PeerGone,
        // The kernel has given up: neither keepalives nor retransmissions are answered.
        Errno::TIMEDOUT => FabricError::TimedOut,
        errno => FabricError::system(doing, errno),
    }
}

/// A socket of the address's family that blocks no call.
pub(crate) fn new(family: &IpAddr) -> Result<OwnedFd, Errno> {
    let family = match family {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(family, SocketType::STREAM, flags, None)
}

/// A socket that listens on an address, None: on all of this machine.
pub(crate) fn listening(address: Option<IpAddr>, port: u16, backlog: u16) -> Result<OwnedFd, Errno> {
    let on = |address: IpAddr| {
        let socket = new(&address)?;
        // Without it a port would stay taken for a minute after its last connection.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        if address.is_ipv6() {
            // The unspecified address takes both versions of IP.
            sockopt::set_ipv6_v6only(&socket, !address.is_unspecified())?;
        }
        rustix::net::bind(&socket, &SocketAddr::new(address, port))?;
        rustix::net::listen(&socket, backlog.into())?;
        Ok(socket)
    };
    match address {
        Some(address) => on(address),
        None => match on(Ipv6Addr::UNSPECIFIED.into()) {
            // A kernel, or a network namespace, without IPv6.
            Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) => on(Ipv4Addr::UNSPECIFIED.into()),
            bound => bound,
        },
    }
}

/// Sets the options of a connection. Fails only for options that the user has asked for.
pub(crate) fn prepare(socket: BorrowedFd<'_>, network: &Network) -> Result<(), FabricError> {
    // Each post is a message that the peer may wait for. These fail on no kernel, and a connection works without them.
    let _faster = sockopt::set_tcp_nodelay(socket, true);
    let _alive = sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)
        .and_then(|()| sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL))
        .and_then(|()| sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES))
        .and_then(|()| sockopt::set_socket_keepalive(socket, true));
    let Some(bits) = network.type_of_service else {
        return Ok(());
    };
    // A socket of IPv6 takes both options: the second is for a peer with an address of IPv4.
    let v6 = sockopt::set_ipv6_tclass(socket, bits.into());
    let v4 = sockopt::set_ip_tos(socket, bits);
    v6.or(v4)
        .map_err(|errno| FabricError::system("setting the type of service", errno))
}

/// Own address and peer's.
pub(crate) fn addresses(socket: BorrowedFd<'_>) -> Result<(SocketAddr, SocketAddr), FabricError> {
    let own =
        rustix::net::getsockname(socket).map_err(|errno| FabricError::system("asking for the own address", errno))?;
    let peer = rustix::net::getpeername(socket).map_err(|errno| lost("asking for the address of the peer", errno))?;
    let canonical = |address| match SocketAddr::try_from(address) {
        Ok(address) => Ok(SocketAddr::new(address.ip().to_canonical(), address.port())),
        Err(errno) => Err(FabricError::system("reading an address", errno)),
    };
    let peer = peer.ok_or(FabricError::PeerGone)?;
    Ok((canonical(own)?, canonical(peer)?))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::time::Duration;

    use inet_rdma_fabric::FabricError;
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::net::sockopt;

    use super::addresses;

    #[test]
    fn a_peer_that_has_reset_its_connection_is_gone() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let peer = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
        let (accepted, _) = listener.accept().expect("a connection waits");
        sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).expect("a TCP socket has it");
        drop(peer);
        poll(&mut [PollFd::new(&accepted, PollFlags::IN)], None).expect("a descriptor is open");
        assert_eq!(addresses(accepted.as_fd()), Err(FabricError::PeerGone));
    }
}
