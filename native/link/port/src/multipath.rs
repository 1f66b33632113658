//! MPTCP (RFC 8684): a TCP connection of several subflows, each over a way of its own. The kernel makes the subflows.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::{DupFlags, dup3};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};

use crate::handover;
use crate::socket_options::{get, option};

/// The state of a connection that is at its end: `TCP_CLOSE` of the kernel's tcp_states.h.
const CLOSE: u8 = 7;
/// `SOL_MPTCP`, `MPTCP_INFO` and `MPTCP_TCPINFO` of linux/mptcp.h.
const SOL_MPTCP: i32 = 284;
const MPTCP_INFO: i32 = 1;
const MPTCP_TCPINFO: i32 = 2;

/// The kernel's own limit is 8 beside the first one, which may have closed.
const SUBFLOWS_MAX: usize = 9;

/// The beginning of `struct mptcp_info`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Info {
    _counts: [u8; 8],
    _flags: u32,
    _token: u32,
    write_seq: u64,
    snd_una: u64,
}

/// `struct mptcp_subflow_data`, and a `struct tcp_info` for each subflow.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Subflows {
    header_bytes: u32,
    /// Set by the kernel: the number that there are.
    count: u32,
    _bytes_in_kernel: u32,
    bytes_each: u32,
    each: [libc::tcp_info; SUBFLOWS_MAX],
}

/// What the kernel says of a connection with MPTCP.
pub struct Facts {
    /// The peer's kernel has not acknowledged all bytes: those on their way, and those that wait for room there.
    pub is_unacknowledged: bool,
    /// The number of the first byte that it has not acknowledged.
    pub acknowledged: u64,
    /// The number after the last byte that was written.
    pub written: u64,
    subflows: Subflows,
}

impl Facts {
    /// What it says of each subflow.
    pub fn subflows(&self) -> &[libc::tcp_info] {
        &self.subflows.each[..(self.subflows.count as usize).min(SUBFLOWS_MAX)]
    }
}

/// Whether it is a socket of MPTCP. The connection may be plain TCP all the same: see [`facts`].
pub fn is_multipath(socket: BorrowedFd<'_>) -> bool {
    option(socket, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Some(libc::IPPROTO_MPTCP)
}

/// None: the connection has fallen back to plain TCP, as the peer or something on the way has no MPTCP; or the kernel
/// does not say (before Linux 5.16).
pub fn facts(socket: BorrowedFd<'_>) -> Option<Facts> {
    // SAFETY: the type has integers only, for which all bytes are values.
    let info: Info = unsafe { get(socket, SOL_MPTCP, MPTCP_INFO, std::mem::zeroed()) }?;
    let subflows = Subflows {
        header_bytes: (size_of::<Subflows>() - size_of::<[libc::tcp_info; SUBFLOWS_MAX]>()) as u32,
        count: 0,
        _bytes_in_kernel: 0,
        bytes_each: size_of::<libc::tcp_info>() as u32,
        // SAFETY: as above.
        each: unsafe { std::mem::zeroed() },
    };
    // SAFETY: as above.
    let subflows = unsafe { get(socket, SOL_MPTCP, MPTCP_TCPINFO, subflows) }?;
    Some(Facts {
        is_unacknowledged: info.write_seq != info.snd_una,
        acknowledged: info.snd_una,
        written: info.write_seq,
        subflows,
    })
}

/// The flow is closed.
pub fn has_ended(flow: &libc::tcp_info) -> bool {
    flow.tcpi_state == CLOSE
}

/// The subflows of a connection; 0: it is plain TCP.
pub fn subflows(socket: BorrowedFd<'_>) -> u64 {
    let facts = is_multipath(socket).then(|| facts(socket)).flatten();
    facts.map_or(0, |facts| {
        let open = facts.subflows().iter().filter(|subflow| !has_ended(subflow));
        open.count() as u64
    })
}

/// A new socket, which waits for nothing.
fn new(is_v6: bool) -> io::Result<OwnedFd> {
    let family = if is_v6 {
        AddressFamily::INET6
    } else {
        AddressFamily::INET
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(family, SocketType::STREAM, flags, Some(ipproto::MPTCP))?)
}

/// A socket for a listener of inet, which leaves a descriptor open that it was given: lent until
/// [`take_back`](handover::take_back).
pub fn lend(is_v6: bool) -> io::Result<RawFd> {
    Ok(handover::lend(new(is_v6)?))
}

/// Has the descriptor of a socket that inet has just opened, and that nobody uses yet, name a socket of MPTCP. inet
/// closes it as its own.
pub fn replace(fd: RawFd, is_v6: bool) -> io::Result<()> {
    let socket = new(is_v6)?;
    // SAFETY: inet's port, which the caller owns, keeps the descriptor open during this call, and closes it later: it
    // is not dropped here.
    let mut target = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd) });
    dup3(&socket, &mut target, DupFlags::CLOEXEC)?;
    debug_assert_eq!(target.as_raw_fd(), fd, "dup3 keeps the number");
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use rustix::net::{bind, listen};

    use super::*;

    /// None: the kernel has no MPTCP.
    pub fn listener() -> Option<TcpListener> {
        let socket = new(false).ok()?;
        bind(
            &socket,
            &"127.0.0.1:0".parse::<std::net::SocketAddrV4>().expect("an address"),
        )
        .expect("a port");
        listen(&socket, 8).expect("a listener");
        let listener = TcpListener::from(socket);
        listener.set_nonblocking(false).expect("it waits");
        Some(listener)
    }

    pub fn connect(listener: &TcpListener) -> TcpStream {
        let socket = new(false).expect("as the listener");
        rustix::io::ioctl_fionbio(&socket, false).expect("it waits");
        let std::net::SocketAddr::V4(address) = listener.local_addr().expect("bound") else {
            panic!("it was bound to an address of IPv4");
        };
        rustix::net::connect(&socket, &address).expect("a connection");
        TcpStream::from(socket)
    }

    #[test]
    fn both_sides_have_a_subflow() {
        let Some(listener) = listener() else {
            return println!("skipped: the kernel has no MPTCP");
        };
        let socket = connect(&listener);
        let (peer, _) = listener.accept().expect("the connection");
        for side in [&socket, &peer] {
            assert!(is_multipath(side.as_fd()));
            assert_eq!(subflows(side.as_fd()), 1);
        }
    }

    #[test]
    fn plain_tcp_at_either_side_has_none() {
        let Some(listener) = listener() else {
            return println!("skipped: the kernel has no MPTCP");
        };
        let plain = TcpListener::bind("127.0.0.1:0").expect("a port");
        let socket = connect(&plain);
        let caller = TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
        let (accepted, _) = listener.accept().expect("the connection");
        for side in [&socket, &caller, &accepted] {
            assert!(facts(side.as_fd()).is_none());
            assert_eq!(subflows(side.as_fd()), 0);
        }
    }

    #[test]
    fn a_descriptor_gets_another_socket() {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
        if new(false).is_err() {
            return println!("skipped: the kernel has no MPTCP");
        }
        let number = socket.as_raw_fd();
        assert!(!is_multipath(socket.as_fd()));
        replace(number, false).expect("room");
        assert!(is_multipath(socket.as_fd()));
        assert!(socket.local_addr().expect("unbound").port() == 0);
    }
}
