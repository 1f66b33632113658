//! Facts that the kernel gives about a TCP connection (tcp(7), `TCP_INFO`).

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use inet_rdma_paths::{Debt, Look};

/// The state of a connection that is at its end: `TCP_CLOSE` of the kernel's tcp_states.h.
const CLOSE: u8 = 7;
/// An answer may take this many round trips, by the kernel's average: the round-trip time may grow at once.
const ROUND_TRIPS: u32 = 4;
/// Window or keepalive probes in a row of which one must be answered: a kernel answers a window probe only 500 ms after
/// its last answer to one (ip-sysctl.rst, `tcp_invalid_ratelimit`), and the second one may come earlier.
const PROBES: u8 = 2;

/// The value of a socket option that is an integer.
pub fn option(socket: BorrowedFd<'_>, level: i32, name: i32) -> Option<i32> {
    // SAFETY: integers have no invalid value.
    unsafe { get(socket, level, name, 0) }
}

/// The value of a socket option, of which the kernel may leave the last bytes as they are in `value`.
///
/// # Safety
/// Any bytes must be a valid `T`.
unsafe fn get<T>(socket: BorrowedFd<'_>, level: i32, name: i32, mut value: T) -> Option<T> {
    let mut bytes = libc::socklen_t::try_from(size_of::<T>()).ok()?;
    // SAFETY: the descriptor is open as long as `socket` lives; the kernel writes at most `bytes` bytes, which `value`
    // has.
    let status = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut value).cast(), &mut bytes) };
    (status == 0).then_some(value)
}

/// What the peer's kernel owes over this connection. The call does not wait.
pub fn look(socket: BorrowedFd<'_>) -> Look {
    let Some(info) = info(socket) else {
        return Look::UNKNOWN;
    };
    let owed = |owed_us| Debt::Owed {
        owed: Duration::from_micros(u64::from(owed_us)),
        due: Duration::from_micros(info.tcpi_rtt.into()) * ROUND_TRIPS,
    };
    let debt = if info.tcpi_state == CLOSE {
        Debt::Ended
    } else if info.tcpi_unacked > 0 {
        // The kernel doubles the time until the next retransmission with each one. The sum of the times before is the
        // present one without the first.
        let first_us = info.tcpi_rto.checked_shr(info.tcpi_backoff.into()).unwrap_or(0);
        owed(if info.tcpi_retransmits > 0 {
            info.tcpi_rto - first_us
        } else {
            0
        })
    } else if info.tcpi_probes >= PROBES {
        owed(0)
    } else if info.tcpi_notsent_bytes > 0 || info.tcpi_probes > 0 {
        Debt::Later
    } else {
        Debt::Nothing
    };
    Look {
        heard: Duration::from_millis(info.tcpi_last_ack_recv.into()),
        debt,
    }
}

/// None: the kernel does not say. The socket's own error shows with the next read.
fn info(socket: BorrowedFd<'_>) -> Option<libc::tcp_info> {
    // SAFETY: the type has integers only, for which all bytes are values.
    unsafe { get(socket, libc::IPPROTO_TCP, libc::TCP_INFO, std::mem::zeroed()) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::time::Instant;

    use inet_rdma_paths::{Path, Paths};

    use super::*;

    /// The smallest value of the option `dead_after_ms`.
    const PATIENCE: Duration = Duration::from_millis(500);

    fn connection() -> (TcpListener, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
        (listener, socket)
    }

    #[test]
    fn the_peers_kernel_acknowledges_what_its_process_does_not_read() {
        let (_listener, mut socket) = connection();
        socket.write_all(b"never read, never accepted").expect("room");
        while look(socket.as_fd()).debt != Debt::Nothing {
            std::thread::yield_now();
        }
    }

    #[test]
    fn another_descriptor_says_nothing() {
        let file = std::fs::File::open("/dev/null").expect("it is there");
        assert_eq!(look(file.as_fd()), Look::UNKNOWN);
    }

    #[test]
    fn a_connection_that_the_peer_has_reset_is_at_its_end() {
        let (listener, mut socket) = connection();
        let (peer, _) = listener.accept().expect("the connection");
        socket.write_all(b"unread").expect("room");
        while look(socket.as_fd()).debt != Debt::Nothing {
            std::thread::yield_now();
        }
        // With bytes unread this is a reset.
        drop(peer);
        while look(socket.as_fd()).debt != Debt::Ended {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_peer_that_reads_nothing_is_not_suspected() {
        let (listener, mut socket) = connection();
        let _never_read = listener.accept().expect("the connection");
        socket.set_nonblocking(true).expect("nonblocking");
        let mut paths = Paths::default();
        paths.set_patience(Some(PATIENCE));
        paths.add(Path::Tcp);
        let end = Instant::now() + PATIENCE * 8;
        // Longer than the first four probes take.
        while Instant::now() < end {
            while socket.write(&[0; 4096]).is_ok() {}
            paths.handle_loud(Path::Tcp, Instant::now());
            std::thread::sleep(PATIENCE / 4);
            let now = Instant::now();
            if paths.is_due(Path::Tcp, now) {
                paths.handle_look(Path::Tcp, now, look(socket.as_fd()));
            }
            assert_eq!(paths.poll_notice(), None);
        }
        assert!(paths.at().is_some(), "bytes wait in the kernel");
    }
}
