//! The requests of OTP's `inet` to its ports (`inet:getstat/1`, `peername/1`, `sockname/1`, `getopts/2`, `i/0`).
//!
//! Tools take the port of a link for a socket of `inet`, as over inet_tcp it is one. Requests that change nothing are
//! answered as that socket would; all others are `einval`.

use std::net::SocketAddr;

use crate::link::Link;
use crate::socket_options;

/// Added to the number of each request: `ERTS_INET_DRV_CONTROL_MAGIC_NUMBER` of erts, since OTP 23.
const MAGIC: u32 = 0x03f1_a300;

/// `INET_REQ_*` of kernel's inet_int.hrl.
mod request {
    pub const PEER: u32 = 4;
    pub const NAME: u32 = 5;
    pub const GETOPTS: u32 = 8;
    pub const GETSTAT: u32 = 11;
    pub const GETTYPE: u32 = 15;
    pub const GETSTATUS: u32 = 16;
    /// The largest number, with room for those of later versions.
    pub const MAX: u32 = 255;
}

// `INET_REP_*`, `INET_AF_*`, `INET_TYPE_*` and `INET_STAT_*` of kernel's inet_int.hrl.
const REPLY_ERROR: u8 = 0;
const REPLY_OK: u8 = 1;
const FAMILY_INET: u8 = 1;
const FAMILY_INET6: u8 = 2;
const TYPE_STREAM: u32 = 1;
const OCTETS_RECEIVED: u8 = 9;
const OCTETS_SENT: u8 = 10;
/// `INET_F_OPEN` and `INET_F_ACTIVE`: connected.
const STATUS_CONNECTED: u32 = 0x0001 | 0x0004;

/// Options of the VM's own: number, and the value that a distribution socket of inet_tcp has.
const LOCAL_OPTIONS: &[(u8, u32)] = &[
    // header 0, active true, packet 4, deliver port, exit_on_close true
    (21, 0),
    (22, 1),
    (23, 3),
    (25, 0),
    (26, 1),
];

/// Options of the system's socket: number, and level and name of socket(7), ip(7), tcp(7).
const SOCKET_OPTIONS: &[(u8, i32, i32)] = &[
    (0, libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (1, libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (2, libc::SOL_SOCKET, libc::SO_DONTROUTE),
    (6, libc::SOL_SOCKET, libc::SO_SNDBUF),
    (7, libc::SOL_SOCKET, libc::SO_RCVBUF),
    (8, libc::SOL_SOCKET, libc::SO_PRIORITY),
    (9, libc::IPPROTO_IP, libc::IP_TOS),
    (10, libc::IPPROTO_TCP, libc::TCP_NODELAY),
];

type Reply = Result<Vec<u8>, &'static str>;

/// The number of inet's request that a command is.
pub(crate) fn request_of(command: u32) -> Option<u32> {
    command.checked_sub(MAGIC).filter(|&request| request <= request::MAX)
}

/// The answer, with its code.
pub(crate) fn answer(link: Option<&Link>, request: u32, argument: &[u8]) -> Vec<u8> {
    let reply = link.map_or(Err("einval"), |link| match request {
        request::PEER => link.ends().map(|(_own, peer)| address(peer)).ok_or("enotconn"),
        request::NAME => link.ends().map(|(own, _peer)| address(own)).ok_or("enotconn"),
        request::GETOPTS => options(link, argument),
        request::GETSTAT => counts(link, argument),
        request::GETTYPE => kind(link),
        request::GETSTATUS => Ok(STATUS_CONNECTED.to_be_bytes().to_vec()),
        _ => Err("einval"),
    });
    match reply {
        Ok(bytes) => [&[REPLY_OK][..], &bytes].concat(),
        Err(reason) => [&[REPLY_ERROR][..], reason.as_bytes()].concat(),
    }
}

/// `<<Family:8, Port:16, Ip/binary>>`
fn address(address: SocketAddr) -> Vec<u8> {
    let port = address.port().to_be_bytes();
    match address {
        SocketAddr::V4(v4) => [&[FAMILY_INET][..], &port, &v4.ip().octets()].concat(),
        SocketAddr::V6(v6) => [&[FAMILY_INET6][..], &port, &v6.ip().octets()].concat(),
    }
}

/// `<<Family:32, Type:32>>`
fn kind(link: &Link) -> Reply {
    let family = match link.ends().ok_or("enotconn")?.0 {
        SocketAddr::V4(_) => FAMILY_INET,
        SocketAddr::V6(_) => FAMILY_INET6,
    };
    Ok([u32::from(family).to_be_bytes(), TYPE_STREAM.to_be_bytes()].concat())
}

/// For each byte of the argument, `INET_STAT_*`: the byte, and the count in 4 bytes, of octets in 8 bytes.
fn counts(link: &Link, wanted: &[u8]) -> Reply {
    let mut reply = Vec::new();
    for &number in wanted {
        let count = link.socket_count(number).ok_or("einval")?;
        reply.push(number);
        match number {
            OCTETS_RECEIVED | OCTETS_SENT => reply.extend(count.to_be_bytes()),
            // As inet's own counts: the low 32 bits.
            _ => reply.extend((count as u32).to_be_bytes()),
        }
    }
    Ok(reply)
}

/// For each byte of the argument, an option's number: the byte, and the value in 4 bytes.
fn options(link: &Link, wanted: &[u8]) -> Reply {
    let mut reply = Vec::new();
    for &number in wanted {
        let own = LOCAL_OPTIONS.iter().find(|(own, _)| *own == number);
        let value = match own {
            Some((_, value)) => *value,
            None => {
                let (_, level, name) = SOCKET_OPTIONS
                    .iter()
                    .find(|(of_socket, ..)| *of_socket == number)
                    .ok_or("einval")?;
                let socket = link.tcp_socket().ok_or("einval")?;
                socket_options::option::<i32>(socket, *level, *name).ok_or("einval")? as u32
            }
        };
        reply.push(number);
        reply.extend_from_slice(&value.to_be_bytes());
    }
    Ok(reply)
}
