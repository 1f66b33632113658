//! How the kernel sends over a connection to another host: how much it keeps unsent, and in what bursts it sends.

use std::os::fd::BorrowedFd;

use inet_rdma_session::WINDOW_BYTES_FIRST;

use crate::socket_options::{option, set_option};

/// Bytes that are not sent wait in the session above this number of them, where packets of other senders and answers
/// overtake them. The kernel asks for more at half of it. 4 ms at 1 Gbit/s; with 256 KiB 4 senders of 1 MB over a
/// virtual cable are a tenth slower.
const UNSENT_BYTES_MIN: usize = 512 * 1024;
/// The part of a larger window that may be unsent: a tenth of a round trip, as the window is three of them. Where it
/// is less the kernel runs out of bytes while the senders wait for a processor, and BBR takes that for the rate of the
/// path: at 1 Gbit/s and 200 ms it has 0.95 of inet_tcp's rate with 512 KiB, 0.98 with 2 MiB and 1.00 without a bound
/// (`bench/run.py distance --rtt-ms 200 --congestion bbr --buffers 64M --only throughput`).
const UNSENT_PART: usize = 32;

/// A rate that is no bound. The kernel paces a connection that has any (socket(7), `SO_MAX_PACING_RATE`).
const UNBOUND_RATE: u64 = i64::MAX as u64;

/// What was set of one connection.
#[derive(Default)]
pub struct Distance {
    /// The bound of unsent bytes, if it is this module's and not the user's.
    unsent_bytes: Option<i32>,
    is_paced: bool,
}

impl Distance {
    /// Has the kernel take bytes only while few of the connection are unsent: `TCP_NOTSENT_LOWAT` of tcp(7). A user's
    /// own value stays.
    pub fn begin(socket: BorrowedFd<'_>, window_bytes: usize) -> Distance {
        let mut distance = Distance::default();
        if option(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT) == Some(0_i32) {
            distance.bound(socket, UNSENT_BYTES_MIN);
        }
        distance.follow(socket, window_bytes);
        distance
    }

    /// The link has this window now. Beyond the first one the path is long: what a grown window lets go at once is more
    /// than a queue in the network takes, and after a loss in slow start `cubic` needs many round trips to grow again.
    /// Pacing sends it over the round trip: at 1 Gbit/s and 200 ms `cubic` has twice the rate or more (`bench/run.py
    /// distance --rtt-ms 200 --congestion cubic --buffers 64M --only throughput`).
    pub fn follow(&mut self, socket: BorrowedFd<'_>, window_bytes: usize) {
        if self.unsent_bytes.is_some() {
            self.bound(socket, UNSENT_BYTES_MIN.max(window_bytes / UNSENT_PART));
        }
        if window_bytes > WINDOW_BYTES_FIRST && !self.is_paced {
            self.is_paced = true;
            // Another value is the user's own.
            if option(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE) == Some(u64::MAX) {
                set_option(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, UNBOUND_RATE);
            }
        }
    }

    fn bound(&mut self, socket: BorrowedFd<'_>, bytes: usize) {
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        if self.unsent_bytes != Some(bytes) {
            self.unsent_bytes = Some(bytes);
            set_option(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    fn connection() -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection")
    }

    fn unsent(socket: &TcpStream) -> Option<i32> {
        option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT)
    }

    fn rate(socket: &TcpStream) -> Option<u64> {
        option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE)
    }

    #[test]
    fn the_bound_of_unsent_bytes_follows_the_window() {
        let socket = connection();
        assert_eq!(unsent(&socket), Some(0), "the kernel's default");
        let mut distance = Distance::begin(socket.as_fd(), WINDOW_BYTES_FIRST);
        assert_eq!(unsent(&socket), Some(512 * 1024));
        distance.follow(socket.as_fd(), 64 << 20);
        assert_eq!(unsent(&socket), Some(2 << 20));
        distance.follow(socket.as_fd(), WINDOW_BYTES_FIRST);
        assert_eq!(unsent(&socket), Some(512 * 1024));
    }

    #[test]
    fn a_connection_is_paced_from_the_first_larger_window_on() {
        let socket = connection();
        let mut distance = Distance::begin(socket.as_fd(), WINDOW_BYTES_FIRST);
        assert_eq!(rate(&socket), Some(u64::MAX), "the kernel's default");
        distance.follow(socket.as_fd(), 2 * WINDOW_BYTES_FIRST);
        assert_eq!(rate(&socket), Some(UNBOUND_RATE));
        let next = connection();
        let _next = Distance::begin(next.as_fd(), 2 * WINDOW_BYTES_FIRST);
        assert_eq!(rate(&next), Some(UNBOUND_RATE), "a connection that replaces a lost one");
    }

    #[test]
    fn values_of_the_user_stay() {
        let socket = connection();
        set_option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, 4096);
        set_option(
            socket.as_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            1_000_000_u64,
        );
        let mut distance = Distance::begin(socket.as_fd(), WINDOW_BYTES_FIRST);
        distance.follow(socket.as_fd(), 64 << 20);
        assert_eq!((unsent(&socket), rate(&socket)), (Some(4096), Some(1_000_000)));
    }
}
